"""Trying other settings on the last hours: what can be tried, begin, progress and result, call off."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.exceptions import HTTPException

from api import examples_what_if as examples
from api import present, schemas_control
from api.errors import CONFLICT, INTERNAL, INVALID, UNAVAILABLE
from api.parameters import ok
from api.present import Plain
from api.schemas import Answer, Timed
from detector.service_view import Latest, ServiceView
from detector.store_read import IncidentFilter
from detector.what_if.model import Comparison
from detector.what_if.trials import State, Trial, Trials

TAGS: list[str | Enum] = ["what-if"]
MAX_CHANGES, MAX_SETTING = 20, 100

Value = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Number = Annotated[
    int | None, Query(ge=1, le=10**9, description="Only if it is this one (`run.number`); else 409.")
]
SettingName = Annotated[str, Field(min_length=1, max_length=MAX_SETTING)]


class SettingOut(Answer):
    """A setting that can be tried."""

    name: str
    value: float = Field(description="Value in effect.")
    least: float
    most: float
    unit: str
    is_whole: bool = Field(description="True when it is a whole number.")
    text: str = Field(description="What turning it up does.")


class RunOut(Answer):
    """One try."""

    number: int
    state: State
    by: str
    start: float
    end: float
    changes: dict[str, float] = Field(description="Values that are tried, by setting.")
    advice: list[str] = Field(description="Lines of a settings file that would keep them.")
    progress: float = Field(description="Share that is done, 0 to 1.")
    took_s: float
    problem: str = Field(description="Why it failed, empty when it did not.")
    comparison: Comparison | None = Field(description="Null until it is done.")


class WhatIfOut(Timed):
    """What can be tried, and the newest try."""

    is_on: bool = Field(description="False when the settings refuse it.")
    max_hours: float
    settings: list[SettingOut]
    run: RunOut | None = Field(description="Null before the first.")
    n_named: int | None = Field(
        description="Incidents that the service itself had in these hours; null until it is done."
    )


class WhatIfIn(schemas_control.Request):
    """Settings to try on the last hours."""

    changes: dict[SettingName, Value] = Field(
        min_length=1, max_length=MAX_CHANGES, description="Values by setting."
    )
    hours: float = Field(1.0, gt=0, le=168, allow_inf_nan=False, description="How many of the last hours.")


def add_what_if(router: APIRouter, view: ServiceView, trials: Trials | None) -> None:
    """Add the routes of tries to those of a running service; None answers 503."""

    def answer(taken: Trials, run: Trial | None, latest: Latest | None) -> Plain:
        offered = taken.offered()
        return {
            **present.timed(view, latest),
            "is_on": offered.is_on,
            "max_hours": offered.max_hours,
            "settings": [{**msgspec.to_builtins(knob), "value": value} for knob, value in offered.knobs],
            "run": None if run is None else msgspec.to_builtins(run),
            "n_named": None if run is None or run.comparison is None else _n_named(view, run),
        }

    @router.get(
        "/what-if",
        response_model=WhatIfOut,
        tags=TAGS,
        summary="What can be tried, and the newest try",
        responses={**ok(examples.WHAT_IF, "As of now."), **INVALID, **UNAVAILABLE, **INTERNAL},
    )
    def what_if() -> Plain:
        """Tell the settings that can be tried with their ranges, and how far the newest try is."""
        taken = _needed(trials)
        return answer(taken, taken.newest(), view.latest())

    @router.post(
        "/what-if",
        status_code=202,
        response_model=WhatIfOut,
        tags=TAGS,
        summary="Try settings on the last hours",
        responses={
            **ok(examples.STARTED, "It has begun.", 202),
            **CONFLICT, **INVALID, **UNAVAILABLE, **INTERNAL,
        },
        openapi_extra={"requestBody": {"content": {"application/json": {"example": examples.WHAT_IF_IN}}}},
    )  # fmt: skip
    def begin(request: Request, sent: WhatIfIn) -> Plain:
        """Judge the last hours under the settings in effect and under others. Nothing is saved by it."""
        taken, latest = _needed(trials), view.latest()
        if latest is None:
            reasons = "; ".join(view.readiness().reasons) or "nothing was evaluated yet"
            raise HTTPException(503, reasons, headers={"Retry-After": "10"})
        who = str(getattr(request.state, "token_name", "") or sent.by or schemas_control.ANYBODY)
        return answer(taken, taken.start(sent.changes, sent.hours, latest.outcome.at, who), latest)

    @router.delete(
        "/what-if",
        response_model=WhatIfOut,
        tags=TAGS,
        summary="Call off the try that is under way",
        responses={
            **ok(examples.CANCELLED, "It is called off."),
            **CONFLICT, **INVALID, **UNAVAILABLE, **INTERNAL,
        },
    )  # fmt: skip
    def cancel(number: Number = None) -> Plain:
        """End it; what it has found is lost."""
        taken = _needed(trials)
        return answer(taken, taken.cancel(number), view.latest())


def _needed(trials: Trials | None) -> Trials:
    if trials is None:
        raise HTTPException(503, "settings are not tried here: ask the replica that leads")
    return trials


def _n_named(view: ServiceView, run: Trial) -> int:
    """Count what the service itself named in the hours of a try."""
    wanted = IncidentFilter(since=run.start, until=run.end, was_suspect=True)
    return view.store.count_incidents(wanted)
