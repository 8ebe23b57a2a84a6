"""Numbers as a person reads them, the same in tables and report; every one carries its n."""

from __future__ import annotations

from datetime import UTC, datetime

from detector.evaluation.intervals import Interval
from detector.evaluation.summary import Delay, FalseRate, Share, Summary

NONE = "-"


def share_words(share: Share) -> str:
    """Return ``0.80 [0.49, 0.94] (8 of 10)``."""
    if share.value is None:
        return f"{NONE} (n=0)"
    return f"{share.value:.2f} {_interval(share.interval)} ({share.k} of {share.n})"


def f1_words(summary: Summary) -> str:
    """Return F1, its interval and the number of faults and false alarms behind it."""
    n = summary.found + summary.missed + summary.false_rate.count
    if summary.f1 is None:
        return f"{NONE} (n=0)"
    return f"{summary.f1:.2f} {_interval(summary.f1_interval)} (n={n})"


def visible_f1_words(summary: Summary) -> str:
    """Return F1 over visible faults, its interval and the number of faults and false alarms behind it."""
    n = summary.visible_recall.n + summary.false_rate.count
    if summary.visible_f1 is None:
        return f"{NONE} (n=0)"
    return f"{summary.visible_f1:.2f} {_interval(summary.visible_f1_interval)} (n={n})"


def delay_words(delay: Delay) -> str:
    """Return median and 90th percentile with the number of found faults."""
    if delay.median_s is None or delay.p90_s is None:
        return f"{NONE} (n=0)"
    return f"{seconds_words(delay.median_s)}, p90 {seconds_words(delay.p90_s)} (n={delay.n})"


def rate_words(rate: FalseRate, *, per_month: bool) -> str:
    """Return a rate with its upper bound, count and exposure."""
    value, upper = (
        (rate.per_month, rate.per_month_upper) if per_month else (rate.per_node_day, rate.per_node_day_upper)
    )
    if value is None or upper is None:
        return f"{NONE} (no healthy time)"
    return f"{value:.3g}, at most {upper:.3g} ({rate.count} in {rate.node_days:.4g} node-days)"


def percent_words(value: float | None) -> str:
    """Return a share of time in percent."""
    return NONE if value is None else f"{100 * value:.2g} %"


def seconds_words(seconds: float) -> str:
    """Return a duration: ``45 s``, ``4.5 min``, ``2.1 h``."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"


def utc_words(at: float) -> str:
    """Return a time in UTC to the second, or the number when it is no date."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{at:.0f}"


def summary_rows(s: Summary) -> list[tuple[str, str]]:
    """Return the figures of a summary as name and value."""
    rows = [
        ("recall", share_words(s.recall)),
        ("precision", share_words(s.precision)),
        ("F1", f1_words(s)),
        ("delay from onset, found faults", delay_words(s.all_faults.delay)),
        ("part named right, found faults", share_words(s.all_faults.part)),
        ("part of the strongest evidence right", share_words(s.all_faults.strongest_part)),
        ("false alarms per node-day", rate_words(s.false_rate, per_month=False)),
        ("false alarms per cluster-month", rate_words(s.false_rate, per_month=True)),
        ("healthy time under an alarm", percent_words(s.alarmed_share)),
        ("false alarms came in", "; ".join(f"{k}: {n}" for k, n in s.false_causes.items()) or "none"),
        ("alarms in masked time (not counted)", str(s.n_neutral)),
        ("group events told, not labelled", str(s.n_other_group_events)),
    ]
    if s.visible_recall.n:
        rows[3:3] = [
            ("recall of visible faults", share_words(s.visible_recall)),
            ("F1 of visible faults", visible_f1_words(s)),
        ]
        delay = delay_words(s.all_faults.visible_delay)
        rows.insert(6, ("delay from the visible onset, found faults", delay))
    if s.repeated_node_days > 0:
        text = f"{s.repeated_node_days:.4g} node-days, {s.n_repeated_alarms} false alarms"
        rows.append(("held by several cases, counted once", text))
    return rows


def _interval(interval: Interval | None) -> str:
    return f"[{interval[0]:.2f}, {interval[1]:.2f}]" if interval else ""
