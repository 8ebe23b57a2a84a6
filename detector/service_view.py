"""What the REST interface may see of a running service."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from detector.core.views import GroupSummary, SeriesView
from detector.errors import OddnodeError
from detector.explanation import Explanation
from detector.outcome import Incident, Outcome
from detector.store_contract import Reading


class BusyError(OddnodeError):
    """An evaluation is under way and the question needs what it is changing."""


@dataclass(frozen=True, slots=True)
class Latest:
    """The newest published evaluation.

    Parameters
    ----------
    outcome
        What it said.
    suspects
        Open incidents in state ``suspect``, strongest first, those of nodes that are silent
        since the start included.
    groups
        Peer groups as of then.
    """

    outcome: Outcome
    suspects: tuple[Incident, ...] = ()
    groups: tuple[GroupSummary, ...] = ()


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether the service can be relied on, and why not.

    Parameters
    ----------
    reasons
        One sentence per thing that is wrong; empty when ready.
    notes
        What a person should know although it is ready.
    """

    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_ready(self) -> bool:
        """True when nothing is wrong."""
        return not self.reasons


class ServiceView(Protocol):
    """A running service, as the REST interface sees it; every method is safe from any thread."""

    @property
    def store(self) -> Reading:
        """Stored incidents and their history."""

    def latest(self) -> Latest | None:
        """Return the newest published evaluation, None before the first."""

    def data_age_s(self) -> float | None:
        """Return seconds between the newest evaluation time and now, None before the first."""

    def readiness(self) -> Readiness:
        """Tell whether verdicts are fresh and stored. Never waits."""

    def series(self, node: str, metric: str, part: str, limit: int) -> Sequence[SeriesView]:
        """Return signals of a node against their peers; empty when unknown.

        Raises
        ------
        BusyError
            When an evaluation holds the data for too long.
        """

    def explain(self, node: str, n_signals: int) -> Explanation | None:
        """Tell why a node is or is not named by the newest evaluation; None when it is not known.

        Raises
        ------
        BusyError
            When an evaluation holds the data for too long.
        """

    def metrics_text(self) -> bytes:
        """Return own metrics in the Prometheus text format."""
