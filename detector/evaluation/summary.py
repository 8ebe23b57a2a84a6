"""Numbers over many cases; recorded, reconstructed and synthetic cases are never added up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from detector.evaluation.intervals import Interval, f1_interval, poisson_upper, wilson
from detector.evaluation.model import Rules
from detector.evaluation.scoring import CaseScore, FaultScore
from detector.evaluation.timelines import distinct
from detector.source.incident_file import MADE, Recording

UNSTATED = "unstated"
VISIBLE = "visible"
DAY_S = 86400.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Share:
    """A proportion with its count and Wilson interval.

    Parameters
    ----------
    k, n
        Successes and trials.
    """

    k: int
    n: int

    @property
    def value(self) -> float | None:
        """The proportion, None without trials."""
        return self.k / self.n if self.n else None

    @property
    def interval(self) -> Interval | None:
        """Wilson interval (95 %), None without trials."""
        return wilson(self.k, self.n)


@dataclass(frozen=True, slots=True)
class Delay:
    """Seconds from the onset to the alarm, over found faults only.

    Parameters
    ----------
    median_s, p90_s
        None when none was found.
    n
        Number of found faults.
    """

    median_s: float | None
    p90_s: float | None
    n: int


@dataclass(frozen=True, slots=True)
class FaultRow:
    """Faults of one kind or one severity.

    Parameters
    ----------
    name
        What they have in common.
    recall
        Found ones among them.
    delay
        From the onset.
    part, strongest_part
        Named right, among found ones of which the part is known.
    visible
        Found ones among those whose trace is visible.
    visible_delay
        From the beginning of the visible trace.
    """

    name: str
    recall: Share
    delay: Delay
    part: Share
    strongest_part: Share
    visible: Share = Share(0, 0)
    visible_delay: Delay = Delay(None, None, 0)


@dataclass(frozen=True, slots=True)
class GroupRow:
    """Labelled group events of one kind: called as such, and called with nobody blamed."""

    name: str
    called: Share
    right: Share
    n_blamed: int


@dataclass(frozen=True, slots=True)
class FalseRate:
    """False alarms over healthy time.

    Parameters
    ----------
    count
        False alarm episodes.
    node_days
        Healthy node-days.
    node_days_per_month
        Node-days of a cluster-month.
    """

    count: int
    node_days: float
    node_days_per_month: float

    @property
    def per_node_day(self) -> float | None:
        """Rate per node-day, None without healthy time."""
        return self.count / self.node_days if self.node_days > 0 else None

    @property
    def per_node_day_upper(self) -> float | None:
        """One-sided 95 % Poisson upper bound per node-day."""
        return poisson_upper(self.count, self.node_days)

    @property
    def per_month(self) -> float | None:
        """Rate per cluster-month."""
        return self.count / self.node_days * self.node_days_per_month if self.node_days > 0 else None

    @property
    def per_month_upper(self) -> float | None:
        """One-sided 95 % Poisson upper bound per cluster-month."""
        return poisson_upper(self.count, self.node_days / self.node_days_per_month)


@dataclass(frozen=True, slots=True)
class Summary:
    """The numbers of cases of one origin.

    Parameters
    ----------
    name
        How the cases were made, or the set they are from.
    n_cases, n_healthy_cases
        Cases, and those called healthy.
    found, missed
        Faults.
    false_rate
        False alarms over healthy time.
    false_causes
        False alarms by what was going on.
    n_neutral
        Alarms in masked time.
    n_other_group_events
        Group events told that are not labelled.
    alarmed_share
        Share of healthy node-time under an alarm, None without healthy time.
    n_repeated_alarms, repeated_node_days
        Left out of every number because another case of the same record holds them too.
    all_faults, kinds, severities, groups
        Tables.
    """

    name: str
    n_cases: int
    n_healthy_cases: int
    found: int
    missed: int
    false_rate: FalseRate
    false_causes: Mapping[str, int]
    n_neutral: int
    n_other_group_events: int
    alarmed_share: float | None
    n_repeated_alarms: int
    repeated_node_days: float
    all_faults: FaultRow
    kinds: tuple[FaultRow, ...]
    severities: tuple[FaultRow, ...]
    groups: tuple[GroupRow, ...]

    @property
    def precision(self) -> Share:
        """Found faults among found faults and false alarms."""
        return Share(self.found, self.found + self.false_rate.count)

    @property
    def recall(self) -> Share:
        """Found faults among all."""
        return Share(self.found, self.found + self.missed)

    @property
    def f1(self) -> float | None:
        """Harmonic mean of precision and recall, None when there is nothing to count."""
        total = 2 * self.found + self.false_rate.count + self.missed
        return 2 * self.found / total if total else None

    @property
    def f1_interval(self) -> Interval | None:
        """Interval of F1 from the Wilson interval of found / (found + false + missed)."""
        return f1_interval(self.found, self.false_rate.count, self.missed)

    @property
    def visible_recall(self) -> Share:
        """Found faults among those whose trace is visible; a missed faint one is no miss here."""
        return self.all_faults.visible

    @property
    def visible_f1(self) -> float | None:
        """Harmonic mean of precision and recall of visible faults, None when there is no such fault.

        An alarm that found a faint fault is right, so precision is that of all alarms.
        """
        k, n = self.visible_recall.k, self.visible_recall.n
        if not n:
            return None
        return 2 * k / (n + k + self._visible_false) if k else 0.0

    @property
    def visible_f1_interval(self) -> Interval | None:
        """Interval of `visible_f1`, as that of F1."""
        k, n = self.visible_recall.k, self.visible_recall.n
        return f1_interval(k, self._visible_false, n - k) if n else None

    @property
    def _visible_false(self) -> float:
        """False alarms for each right one, times the visible faults found."""
        share = self.visible_recall.k / self.found if self.visible_recall.k else 1.0
        return self.false_rate.count * share


def made_of(recording: Recording) -> str:
    """Return how a case was made; ``unstated`` when it does not say."""
    return str(recording.provenance.get("made") or UNSTATED)


def set_of(recording: Recording) -> str:
    """Return the name of the folder that holds the case: the set it belongs to."""
    return recording.path.resolve().parent.parent.name


def by_origin(scores: Iterable[CaseScore], rules: Rules) -> list[Summary]:
    """Summarise recorded, reconstructed, synthetic and unstated cases, each alone."""
    groups = _grouped(scores, lambda score: made_of(score.recording))
    order = [*MADE, UNSTATED]
    return [summarise(made, groups[made], rules) for made in order if made in groups]


def by_set(scores: Iterable[CaseScore], rules: Rules) -> dict[str, list[Summary]]:
    """Summarise each set of each origin."""
    groups = _grouped(scores, lambda score: made_of(score.recording))
    return {
        made: [
            summarise(name, part, rules)
            for name, part in sorted(_grouped(groups[made], lambda s: set_of(s.recording)).items())
        ]
        for made in [*MADE, UNSTATED]
        if made in groups
    }


def summarise(name: str, scores: Sequence[CaseScore], rules: Rules) -> Summary:
    """Add up cases of one origin."""
    once = distinct(scores, rules.merge_s)
    faults = once.faults
    found = sum(fault.delay_s is not None for fault in faults)
    healthy_s = once.healthy_node_s
    causes = Counter(alarm.during for alarm in once.false_alarms)
    return Summary(
        name=name,
        n_cases=len(scores),
        n_healthy_cases=sum(score.recording.healthy for score in scores),
        found=found,
        missed=len(faults) - found,
        false_rate=FalseRate(
            len(once.false_alarms), healthy_s / DAY_S, float(rules.nodes_per_cluster * rules.days_per_month)
        ),
        false_causes=dict(sorted(causes.items(), key=lambda item: (-item[1], item[0]))),
        n_neutral=sum(len(score.neutral) for score in scores),
        n_other_group_events=sum(score.n_other_calls for score in scores),
        alarmed_share=once.alarmed_node_s / healthy_s if healthy_s > 0 else None,
        n_repeated_alarms=once.n_repeated_alarms,
        repeated_node_days=once.repeated_node_s / DAY_S,
        all_faults=_fault_row("all", faults),
        kinds=_fault_rows(faults, lambda f: f.fault.kind),
        severities=_fault_rows(faults, lambda f: f.fault.severity or "unstated"),
        groups=_group_rows(scores),
    )


def _fault_rows(faults: Sequence[FaultScore], key: Callable[[FaultScore], str]) -> tuple[FaultRow, ...]:
    return tuple(_fault_row(name, part) for name, part in sorted(_grouped(faults, key).items()))


def _fault_row(name: str, faults: Sequence[FaultScore]) -> FaultRow:
    delays = [fault.delay_s for fault in faults if fault.delay_s is not None]
    parts = [fault.part_right for fault in faults if fault.part_right is not None]
    strongest = [fault.strongest_right for fault in faults if fault.strongest_right is not None]
    visible = [fault.delay_s is not None for fault in faults if fault.fault.visible == VISIBLE]
    after = [fault.visible_delay_s for fault in faults if fault.visible_delay_s is not None]
    return FaultRow(
        name,
        Share(len(delays), len(faults)),
        delay_of(delays),
        Share(sum(parts), len(parts)),
        Share(sum(strongest), len(strongest)),
        Share(sum(visible), len(visible)),
        delay_of(after),
    )


def delay_of(delays: Sequence[float]) -> Delay:
    """Return median and 90th percentile; the percentile is a delay that was seen, not one in between."""
    if not delays:
        return Delay(None, None, 0)
    median = float(np.median(delays))
    return Delay(median, float(np.percentile(delays, 90, method="higher")), len(delays))


def _group_rows(scores: Sequence[CaseScore]) -> tuple[GroupRow, ...]:
    grouped = _grouped(
        (group for score in scores for group in score.groups), lambda g: g.event.kind or "unspecified"
    )
    return tuple(
        GroupRow(
            name,
            Share(sum(g.called for g in part), len(part)),
            Share(sum(g.right for g in part), len(part)),
            sum(g.n_blamed for g in part),
        )
        for name, part in sorted(grouped.items())
    )


def _grouped(items: Iterable[T], key: Callable[[T], str]) -> dict[str, list[T]]:
    groups: dict[str, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups
