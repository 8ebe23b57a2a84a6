"""Settings of delivery: who is told of suspects and group events, and what is held back."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from detector.settings_endpoint import EndpointSettings
from detector.settings_section import Section

DAY_S = 86400.0
MAX_RECEIVERS = 20
OWN_LABELS = frozenset({"alertname", "node", "pool", "kind", "cluster"})
_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")

Format = Literal["json", "slurm", "nvsentinel", "kubernetes_condition", "kubernetes_event"]


class WebhookSettings(EndpointSettings):
    """A receiver of one request per change.

    Parameters
    ----------
    name
        Names its place in the store: the receiver goes on there under whatever address. Required.
    format
        What is sent; ``json`` is ours.
    secret_file
        Key of the signature; None sends none. Read again when it changes.
    retry_for_s, max_attempts
        A message that is this old, or was tried this often, is given up.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9_.:-]+$", max_length=100)
    format: Format = "json"
    secret_file: Path | None = None
    retry_for_s: Annotated[float, Field(gt=0, le=7 * DAY_S, allow_inf_nan=False)] = DAY_S
    max_attempts: int = Field(default=1000, ge=1, le=100_000)


class ShadowRule(Section):
    """What is not sent; all fields that are given must fit.

    Parameters
    ----------
    kind
        ``suspect``, ``moved_together`` or a kind of event of a whole pool.
    pool
        Pool.
    fault_class
        Likely class of the fault.
    metric
        Metric of the strongest evidence.
    """

    kind: str | None = None
    pool: str | None = None
    fault_class: str | None = None
    metric: str | None = None

    @model_validator(mode="after")
    def _says_something(self) -> ShadowRule:
        if all(value is None for value in (self.kind, self.pool, self.fault_class, self.metric)):
            raise ValueError("a shadow rule needs kind, pool, fault_class or metric; shadow: true is for all")
        return self


class DeliverySettings(Section):
    """Who is told, and what is held back.

    Parameters
    ----------
    alertmanagers
        Alertmanagers; each gets everything.
    resend_s
        How often open alerts are sent again.
    webhooks
        Receivers of changes.
    drain_file
        File to which Slurm drain lines are appended; None for none.
    write_back
        VictoriaMetrics that takes the scores.
    external_url
        Where people reach this service; links begin with it. None leaves links out.
    evidence_path
        Path of a node's evidence; ``{node}`` stands for its name.
    cluster
        Value of the label ``cluster`` of all that is sent.
    labels
        Further labels of all alerts.
    shadow
        True sends nothing and logs what would be sent.
    shadow_rules
        What of it is not sent.
    guard_share, guard_nodes_per_hour
        More suspects than this share of a pool, or than this many per hour, become one alert.
    """

    alertmanagers: tuple[EndpointSettings, ...] = Field(default=(), max_length=MAX_RECEIVERS)
    resend_s: Annotated[float, Field(ge=1, le=3600, allow_inf_nan=False)] = 60.0
    webhooks: tuple[WebhookSettings, ...] = Field(default=(), max_length=MAX_RECEIVERS)
    drain_file: Path | None = None
    write_back: EndpointSettings | None = None
    external_url: str | None = Field(default=None, pattern=r"^https?://\S+$", max_length=1000)
    evidence_path: str = Field(default="/nodes/{node}", pattern=r"^/\S*$", max_length=500)
    cluster: str | None = Field(default=None, min_length=1, max_length=200)
    labels: dict[str, str] = Field(default_factory=dict, max_length=30)
    shadow: bool = False
    shadow_rules: tuple[ShadowRule, ...] = Field(default=(), max_length=100)
    guard_share: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 0.25
    guard_nodes_per_hour: int = Field(default=10, ge=1, le=100_000)

    @model_validator(mode="after")
    def _consistent(self) -> DeliverySettings:
        _require_different("webhooks", [hook.name for hook in self.webhooks])
        _require_different("alertmanagers", [one.shown_name for one in self.alertmanagers])
        for name in self.labels:
            if not _LABEL_NAME.fullmatch(name) or name in OWN_LABELS:
                raise ValueError(f"labels: {name[:60]!r} cannot be the name of a further label")
        return self


def _require_different(what: str, names: Sequence[str]) -> None:
    doubled = [name for name, count in Counter(names).items() if count > 1]
    if doubled:
        raise ValueError(f"{what}: the name {doubled[0]!r} is given twice")
