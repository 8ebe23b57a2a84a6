"""Slow, obvious twins of the numeric functions; imports nothing of ours."""

import itertools
import math
import statistics


def naive_median(values):
    known = [v for v in values if not math.isnan(v)]
    return statistics.median(known) if known else math.nan


def naive_mad_sigma(values):
    centre = naive_median(values)
    return 1.4826 * naive_median([abs(v - centre) for v in values if not math.isnan(v)])


def naive_robust_z(values, floor):
    """First evaluation, no memory: the typical spread is the present one and tails are 1."""
    centre = naive_median(values)
    scale = max(naive_mad_sigma(values), floor)
    return [(v - centre) / scale if not math.isnan(v) else math.nan for v in values]


def naive_mean_distances(window):
    """window: list of rows over time, each a list over members."""
    n = len(window[0])
    result = []
    for i in range(n):
        per_time = []
        for row in window:
            if math.isnan(row[i]):
                continue
            others = [abs(row[i] - row[j]) for j in range(n) if j != i and not math.isnan(row[j])]
            if others:
                per_time.append(sum(others) / len(others))
        result.append(sum(per_time) / len(per_time) if per_time else math.nan)
    return result


def naive_rates(samples, max_gap_s):
    """samples: [(t seconds of whole ms, value)] of one counter; rate after each sample, None for unknown."""
    rates = [None]
    for (t0, v0), (t1, v1) in itertools.pairwise(samples):
        if round(t1 - t0, 3) > max_gap_s or v1 < v0:
            rates.append(None)
        else:
            rates.append((v1 - v0) / (t1 - t0))
    return rates


def naive_dwell(scores, threshold, dt, full_s, leak=0.5):
    """Leaky dwell after each score; None means unknown and changes nothing."""
    dwell, sign, history = 0.0, 0, []
    for score in scores:
        if score is not None:
            now = 0 if abs(score) < threshold else (1 if score > 0 else -1)
            if now and sign and now != sign:
                dwell = 0.0
            if now:
                sign = now
                dwell = min(dwell + dt, full_s)
            else:
                dwell = max(0.0, dwell - leak * dt)
                if dwell == 0.0:
                    sign = 0
        history.append(dwell)
    return history
