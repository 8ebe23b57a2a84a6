"""The page on delivery shows what is sent."""

from __future__ import annotations

import json
import re
from typing import get_args

import pytest

from detector.delivery import gate, ledger
from detector.delivery.alertmanager import (
    ALERT_GROUP,
    ALERT_POOL,
    ALERT_SUSPECT,
    LIVES_RESENDS,
    alert_of,
)
from detector.delivery.formats import FORMS
from detector.delivery.ledger import KEEP_CLOSED_S, Message, Out
from detector.delivery.messenger import EVENT, HOPELESS, KEY, MOST_RETRY_S, SIGNATURE, TIMESTAMP
from detector.delivery.notice import MOVED_TOGETHER, SHOWN_NODES, TOO_MANY, of_suspect
from detector.delivery.write_back import MAX_WAITING, lines_of
from detector.outcome import Outcome, Status, Verdict
from detector.settings_delivery import DeliverySettings, Format, ShadowRule, WebhookSettings
from tests.delivery_bench import suspect
from tests.test_docs import FENCE, coded, tables, text_of

T = 1_767_225_600.0
PAGE = text_of("delivery.md")
SENT = dict(re.findall(r"<!-- sent: (\w+) -->\n```\w+\n(.*?)```", PAGE, re.DOTALL))
SETTINGS = DeliverySettings.model_validate(
    {"cluster": "a", "labels": {"team": "gpu"}, "external_url": "https://oddnode.example.com"}
)
VERDICT = Verdict("gpu007", "main", Status.SUSPECT, 2.0)
NOTICE = of_suspect(suspect("gpu007", T), VERDICT, acknowledged=False)


def test_every_form_is_shown() -> None:
    assert set(SENT) == {"alertmanager", "write_back", *FORMS}
    assert set(get_args(Format)) == set(FORMS)


def test_the_alert_shown_is_the_one_sent() -> None:
    assert json.loads(SENT["alertmanager"]) == [alert_of(Out(NOTICE, T), SETTINGS, T + 60)]


@pytest.mark.parametrize("form", FORMS)
def test_the_bodies_shown_are_those_sent(form: str) -> None:
    message = Message(id=f"{NOTICE.key}/{ledger.RAISED}/{int(T)}", event=ledger.RAISED, at=T, notice=NOTICE)
    request = FORMS[form](message, SETTINGS)
    assert request is not None
    if form == "slurm":
        assert SENT[form] == request.body.decode()
    else:
        assert json.loads(SENT[form]) == json.loads(request.body)
    if request.suffix:
        assert f"{request.method} {request.suffix.replace('gpu007', 'NODE')}" in PAGE


def test_the_line_of_scores_shown_is_the_one_sent() -> None:
    assert SENT["write_back"] == lines_of(Outcome(T, (VERDICT,)), "a").decode()


def test_names_and_numbers_told_are_those_of_the_code() -> None:
    words = set(coded(FENCE.sub("", PAGE)))
    assert {ALERT_SUSPECT, ALERT_GROUP, ALERT_POOL, MOVED_TOGETHER, TOO_MANY} <= words
    assert {*ledger.EVENTS, *gate.REASONS, TIMESTAMP, SIGNATURE, KEY, EVENT} <= words
    assert f"{LIVES_RESENDS} times" in PAGE
    assert f"for {KEEP_CLOSED_S / 60:g} minutes" in PAGE
    assert f"up to {MOST_RETRY_S / 60:g} minutes" in PAGE
    assert ", ".join(str(status) for status in sorted(HOPELESS)) in PAGE
    assert f"names {SHOWN_NODES} nodes at most" in PAGE
    assert f"{MAX_WAITING} evaluations wait" in PAGE


def test_keys_of_receivers_and_of_rules_are_told_with_their_defaults() -> None:
    page = text_of("settings.md")
    for column, model in (("key of a receiver", WebhookSettings), ("key of a shadow rule", ShadowRule)):
        rows = {coded(row[column])[0]: row for row in tables(page) if column in row}
        assert set(rows) == set(model.model_fields), column
        for name, field in model.model_fields.items():
            if "by default" in rows[name] and not field.is_required():
                default = field.get_default(call_default_factory=True)
                assert json.loads(coded(rows[name]["by default"])[0]) == default, name
