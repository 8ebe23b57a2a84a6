"""What operators send and get back. Times are epoch seconds."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from api.schemas import Answer
from detector.export import AFTER_S, BEFORE_S, MAX_AFTER_S, MAX_BEFORE_S

MAX_BY, MAX_NAME, MAX_REASON, MAX_NOTE = 64, 253, 500, 2000
ANYBODY = "anonymous"
"""Who acts when no tokens are set and no name is given."""


def one_line(text: str) -> str:
    """Return the text without blanks around it; refuses what cannot be shown in a line."""
    text = text.strip()
    if not text.isprintable():
        raise ValueError("must be one line without control characters")
    return text


def _lines(text: str) -> str:
    text = text.strip()
    if not all(line.isprintable() for line in text.replace("\t", " ").split("\n")):
        raise ValueError("must be without control characters")
    return text


By = Annotated[str, Field(max_length=MAX_BY), AfterValidator(one_line)]
Name = Annotated[str, Field(max_length=MAX_NAME), AfterValidator(one_line)]
Reason = Annotated[str, Field(max_length=MAX_REASON), AfterValidator(one_line)]
Note = Annotated[str, Field(max_length=MAX_NOTE), AfterValidator(_lines)]
Time = Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)]


class Request(BaseModel):
    """Base of what is sent."""

    model_config = ConfigDict(extra="forbid")

    by: By = Field(
        "", description="Who acts; with tokens the token's name stands instead. Empty for `anonymous`."
    )
    note: Note = Field("", description="What else there is to say.")


class NoteIn(Request):
    """An acknowledgement, or a repair that was done."""


class DismissIn(Request):
    """Why an incident is a false alarm."""

    reason: Reason = Field(description="Kept as feedback; must not be empty.")

    @model_validator(mode="after")
    def _given(self) -> DismissIn:
        if not self.reason:
            raise ValueError("reason must not be empty")
        return self


class MuteIn(Request):
    """What is to be muted, and until when; a start in the future makes a maintenance window."""

    node: Name = Field("", description="Node, exactly; empty for any.")
    pool: Name = Field("", description="Pool, exactly; empty for any.")
    metric: Name = Field(
        "", description="Metric of the catalog that is no evidence meanwhile; empty to mark suspects only."
    )
    apart: bool = Field(
        False,
        description="The node is out of its pool meanwhile: not compared, and no peer. Needs a node only.",
    )
    start: Time | None = Field(None, description="Null for now.")
    until: Time | None = Field(None, description="End; this or `for_s` must be given.")
    for_s: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)] | None = Field(
        None, description="Seconds from the start to the end."
    )
    reason: Reason = Field(description="Must not be empty.")

    @model_validator(mode="after")
    def _whole(self) -> MuteIn:
        if not (self.node or self.pool or self.metric):
            raise ValueError("a mute needs a node, a pool or a metric")
        if (self.until is None) == (self.for_s is None):
            raise ValueError("a mute needs its end: until or for_s")
        if not self.reason:
            raise ValueError("reason must not be empty")
        return self


class ExportIn(Request):
    """How much of the time around an incident is wanted."""

    before_s: Annotated[float, Field(ge=0, le=MAX_BEFORE_S, allow_inf_nan=False)] = Field(
        BEFORE_S, description="Seconds before the first sign: there is something to learn from only there."
    )
    after_s: Annotated[float, Field(ge=0, le=MAX_AFTER_S, allow_inf_nan=False)] = Field(
        AFTER_S, description="Seconds after its end."
    )


class MuteOut(Answer):
    """A mute or a maintenance window."""

    id: str
    state: Literal["active", "planned", "over"]
    node: str = Field(description="Empty for any.")
    pool: str = Field(description="Empty for any.")
    metric: str = Field(description="Empty for any; else it is no evidence meanwhile.")
    apart: bool = Field(description="The node is out of its pool meanwhile: not compared, and no peer.")
    start: float
    until: float
    reason: str
    note: str
    by: str
    made_at: float
    ended_at: float | None = Field(description="When it was ended early.")
    ended_by: str


class MuteDetailOut(Answer):
    """One mute."""

    mute: MuteOut


class MutesOut(Answer):
    """Mutes in order of their start."""

    at: float = Field(description="Time of the service, which the states refer to.")
    total: int
    limit: int
    offset: int
    mutes: list[MuteOut]


class FeedbackOut(Answer):
    """What an incident was, as told by an operator."""

    incident_id: str
    node: str
    start: float = Field(description="First sign.")
    end: float | None = Field(description="Null while the incident is open.")
    verdict: Literal["false_alarm", "fault"]
    by: str
    note: str = Field(description="Of a false alarm the reason.")
    at: float = Field(description="When it was said.")
    part: str = Field(description="Part that the incident pointed to.")
    fault_class: str = Field(description="Class of its diagnosis, empty without one.")
    lifted_at: float | None = Field(description="When a dismissed incident came back for other evidence.")
    lifted_for: str = Field(description="That evidence.")


class FeedbackDetailOut(Answer):
    """What was said of one incident."""

    feedback: FeedbackOut


class FeedbacksOut(Answer):
    """Labels, newest incident first."""

    total: int
    limit: int
    offset: int
    feedback: list[FeedbackOut]


class RepairedOut(Answer):
    """A node that was set healthy."""

    node: str
    at: float
    cleared: str | None = Field(description="Incident that was cleared, null when there was none.")


class AuditOut(Answer):
    """One line of the audit trail."""

    number: int = Field(description="Counts up without gaps.")
    at: float
    by: str
    action: Literal["acknowledge", "dismiss", "mute", "unmute", "repaired", "reopen", "export"]
    subject: str
    note: str


class AuditsOut(Answer):
    """The audit trail, newest first."""

    total: int
    limit: int
    offset: int
    entries: list[AuditOut]
