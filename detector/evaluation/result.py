"""The whole result of an evaluation, and the same as plain values for JSON.

The JSON document (``format`` is ``oddnode-evaluation/1``)::

    format, detector, rules {grace_s, grace_steps, merge_s, nodes_per_cluster, days_per_month},
    settings {name: text}, complete (false when something was left out),
    left_out [{path, reason}],
    origins [summary], sets {origin: [summary]}, cases [case]

    summary: name, n_cases, n_healthy_cases, found, missed, false_alarms, neutral_alarms,
        precision, recall {k, n, value, low, high}, f1 {value, low, high, n},
        false_rate {count, node_days, per_node_day, per_node_day_upper, per_month, per_month_upper},
        alarmed_share, false_causes {text: count}, other_group_events,
        repeated_alarms, repeated_node_days,
        visible_f1 {value, low, high},
        all, kinds, severities [{name, recall, delay {median_s, p90_s, n}, part, strongest_part,
            visible, visible_delay}],
        groups [{name, called, right, n_blamed}]
    case: id, path, set, origin, start, end, step_s, n_nodes, healthy,
        faults [{node, kind, part, severity, visible, visible_at, onset, end, found, delay_s,
            visible_delay_s, named_part, part_right, why}],
        false_alarms [{node, raised_at, cleared_at, during, part, why}],
        neutral_alarms [{node, raised_at, cleared_at}],
        groups [{kind, onset, end, called, n_blamed}], other_group_events, undetermined_share, notes

Times are epoch seconds; a value that can't be told is null. No time of day and no duration of the
run is in it: the same input gives the same bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from detector.evaluation.model import LeftOut, Rules, Trace
from detector.evaluation.scoring import CaseScore, FaultScore
from detector.evaluation.summary import FaultRow, GroupRow, Share, Summary, by_origin, by_set, made_of, set_of

FORMAT = "oddnode-evaluation/1"


@dataclass(frozen=True, slots=True)
class Result:
    """Everything that tables, JSON and report are made of.

    Parameters
    ----------
    detector
        Name of the detector.
    rules
        How flags were matched.
    scores
        Evaluated cases in order.
    left_out
        What was not evaluated.
    settings
        What was in effect (catalog, parameters), as texts.
    traces
        Signals to draw, by case id.
    """

    detector: str
    rules: Rules
    scores: tuple[CaseScore, ...]
    left_out: tuple[LeftOut, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    traces: Mapping[str, tuple[Trace, ...]] = field(default_factory=dict)

    @property
    def origins(self) -> list[Summary]:
        """One summary per origin: recorded, reconstructed, synthetic, unstated."""
        return by_origin(self.scores, self.rules)

    @property
    def sets(self) -> dict[str, list[Summary]]:
        """Summaries of each set, by origin."""
        return by_set(self.scores, self.rules)


def as_json(result: Result) -> str:
    """Return the JSON document, two spaces per level."""
    return json.dumps(as_plain(result), indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def as_plain(result: Result) -> dict[str, Any]:
    """Return the result as plain values, see the module."""
    return {
        "format": FORMAT,
        "detector": result.detector,
        "rules": asdict(result.rules),
        "settings": dict(result.settings),
        "complete": not result.left_out,
        "left_out": [asdict(item) for item in result.left_out],
        "origins": [_summary(summary) for summary in result.origins],
        "sets": {made: [_summary(s) for s in summaries] for made, summaries in result.sets.items()},
        "cases": [_case(score) for score in result.scores],
    }


def _summary(s: Summary) -> dict[str, Any]:
    low, high = s.f1_interval or (None, None)
    seen_low, seen_high = s.visible_f1_interval or (None, None)
    rate = s.false_rate
    return {
        "name": s.name,
        "n_cases": s.n_cases,
        "n_healthy_cases": s.n_healthy_cases,
        "found": s.found,
        "missed": s.missed,
        "false_alarms": rate.count,
        "neutral_alarms": s.n_neutral,
        "precision": _share(s.precision),
        "recall": _share(s.recall),
        "f1": {"value": s.f1, "low": low, "high": high, "n": s.found + s.missed + rate.count},
        "visible_f1": {"value": s.visible_f1, "low": seen_low, "high": seen_high},
        "false_rate": {
            "count": rate.count,
            "node_days": rate.node_days,
            "per_node_day": rate.per_node_day,
            "per_node_day_upper": rate.per_node_day_upper,
            "per_month": rate.per_month,
            "per_month_upper": rate.per_month_upper,
        },
        "alarmed_share": s.alarmed_share,
        "false_causes": dict(s.false_causes),
        "other_group_events": s.n_other_group_events,
        "repeated_alarms": s.n_repeated_alarms,
        "repeated_node_days": s.repeated_node_days,
        "all": _fault_row(s.all_faults),
        "kinds": [_fault_row(row) for row in s.kinds],
        "severities": [_fault_row(row) for row in s.severities],
        "groups": [_group_row(row) for row in s.groups],
    }


def _share(share: Share) -> dict[str, Any]:
    low, high = share.interval or (None, None)
    return {"k": share.k, "n": share.n, "value": share.value, "low": low, "high": high}


def _fault_row(row: FaultRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "recall": _share(row.recall),
        "delay": asdict(row.delay),
        "part": _share(row.part),
        "strongest_part": _share(row.strongest_part),
        "visible": _share(row.visible),
        "visible_delay": asdict(row.visible_delay),
    }


def _group_row(row: GroupRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "called": _share(row.called),
        "right": _share(row.right),
        "n_blamed": row.n_blamed,
    }


def _case(score: CaseScore) -> dict[str, Any]:
    recording = score.recording
    share = score.findings.undetermined_share
    return {
        "id": recording.id,
        "path": str(recording.path.parent),
        "set": set_of(recording),
        "origin": made_of(recording),
        "start": recording.start,
        "end": recording.end,
        "step_s": recording.step_s,
        "n_nodes": len({*recording.pool, *recording.spares}),
        "healthy": recording.healthy,
        "faults": [_fault(fault) for fault in score.faults],
        "false_alarms": [
            {
                "node": alarm.episode.node,
                "raised_at": alarm.episode.raised_at,
                "cleared_at": alarm.episode.cleared_at,
                "during": alarm.during,
                "part": alarm.episode.flags[0].part,
                "why": alarm.episode.flags[0].why,
            }
            for alarm in score.false_alarms
        ],
        "neutral_alarms": [
            {"node": e.node, "raised_at": e.raised_at, "cleared_at": e.cleared_at} for e in score.neutral
        ],
        "groups": [
            {
                "kind": group.event.kind,
                "onset": group.event.onset,
                "end": group.event.end,
                "called": group.called,
                "n_blamed": group.n_blamed,
            }
            for group in score.groups
        ],
        "other_group_events": score.n_other_calls,
        "undetermined_share": share if math.isfinite(share) else None,
        "notes": list(score.findings.notes),
    }


def _fault(score: FaultScore) -> dict[str, Any]:
    fault = score.fault
    return {
        "node": fault.node,
        "kind": fault.kind,
        "part": fault.part,
        "severity": fault.severity,
        "visible": fault.visible,
        "visible_at": fault.visible_at,
        "onset": fault.onset,
        "end": fault.end,
        "found": score.delay_s is not None,
        "delay_s": score.delay_s,
        "visible_delay_s": score.visible_delay_s,
        "named_part": score.named,
        "part_right": score.part_right,
        "why": score.why,
    }
