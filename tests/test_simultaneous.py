"""What begins in several nodes at one moment is nobody's fault."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector.core.simultaneous import (
    TOGETHER_NODES,
    TOGETHER_SHARE,
    TOGETHER_TARGETS,
    began_together,
    in_pairs,
)
from tests.builders import gauge, gpu_gauge, suspects, tasks
from tests.test_pipeline import ONSET, POWER, cluster


def naive(row, node, side, since, row_nodes, within_s):
    found = []
    for k in range(len(row)):
        near = {
            node[j]
            for j in range(len(row))
            if row[j] == row[k]
            and (side[j] > 0) == (side[k] > 0)
            and abs(earliest(row, node, side, since, j) - since[k]) <= within_s
        }
        least = max(TOGETHER_NODES, TOGETHER_SHARE * row_nodes[row[k]]) if row[k] >= 0 else np.inf
        found.append(bool(row[k] >= 0 and np.isfinite(since[k]) and len(near) >= least))
    return found


def earliest(row, node, side, since, j):
    same = (row == row[j]) & (node == node[j]) & ((side > 0) == (side[j] > 0)) & np.isfinite(since)
    return since[same].min() if same.any() else np.nan


@given(st.integers(0, 500), st.integers(0, 25), st.sampled_from([4, 60, 400]))
def test_it_agrees_with_the_obvious_way(seed, n, in_row):
    rng = np.random.default_rng(seed)
    row, node = rng.integers(-1, 3, n), rng.integers(0, 8, n)
    side = rng.choice([-1.0, 1.0], n)
    since = np.where(rng.random(n) < 0.1, np.nan, rng.integers(0, 8, n) * 30.0)
    row_nodes = np.full(3, in_row)
    found = began_together(row, node, side, since, row_nodes, 60.0)
    assert found.tolist() == naive(row, node, side, since, row_nodes, 60.0)


@pytest.mark.parametrize("n_bad", [1, 2, 3, 5])
def test_two_nodes_can_fail_together_three_are_an_event(n_bad):
    t = cluster(24)
    bad = t.nodes[3 : 3 + n_bad]
    t.add(gpu_gauge(t, POWER, 800, 8, lambda k, n, g: 400 if n in bad and k >= ONSET else None))
    t.add(tasks(t, lambda k, n: 869 if n in bad and k >= ONSET else None))
    last = t.run(ONSET + 14)
    assert suspects(last) == (list(bad) if n_bad < TOGETHER_NODES else [])
    assert bool(t.group_events()) == (n_bad >= TOGETHER_NODES)


def test_nodes_that_begin_apart_are_named_each():
    t = cluster(24)
    begins = dict(zip(t.nodes[3:6], (ONSET, ONSET + 8, ONSET + 16), strict=True))
    t.add(gpu_gauge(t, POWER, 800, 8, lambda k, n, g: 400 if k >= begins.get(n, 999) else None))
    t.add(tasks(t, lambda k, n: 869 if k >= begins.get(n, 999) else None))
    assert suspects(t.run(ONSET + 30)) == sorted(begins)


def pair(n_targets, *, apart=0):
    """Two nodes of 24 that change in several targets at once, or one of them `apart` samples later."""
    t = cluster(24)
    begins = {t.nodes[3]: ONSET, t.nodes[4]: ONSET + apart}

    def at(tick, node, value):
        return value if tick >= begins.get(node, 999) else None

    t.add(gpu_gauge(t, POWER, 800, 8, lambda k, n, g: at(k, n, 400)))
    t.add(tasks(t, lambda k, n: at(k, n, 869)))
    if n_targets > 2:
        t.add(gauge(t, "node_memory_MemAvailable_bytes", 1e12, 1e9, lambda k, n: at(k, n, 5e11)))
    return t


def test_two_nodes_alike_in_three_targets_at_once_are_a_job_of_their_own():
    t = pair(3)
    t.run(ONSET + 30)
    assert t.ever_suspect() == set()


@pytest.mark.parametrize(
    ("n_targets", "apart"), [(2, 0), (3, 12)], ids=["two targets", "one after the other"]
)
def test_two_faults_are_named_when_they_share_less(n_targets, apart):
    t = pair(n_targets, apart=apart)
    t.run(ONSET + 40)
    assert t.ever_suspect() == set(t.nodes[3:5])


def naive_pairs(row, node, side, since, target, within_s):
    """Of each row and side, neighbours in time; node pairs with three targets or more."""
    begins = {}
    for r, n, s, b, g in zip(row, node, side, since, target, strict=True):
        if r >= 0 and np.isfinite(b):
            key = (r, s > 0)
            old = begins.setdefault(key, {}).get(n, (np.inf, g))
            begins[key][n] = min(old, (b, g))
    places = {}
    for key, nodes in begins.items():
        line = sorted((b, n) for n, (b, _) in nodes.items())
        for (b1, n1), (b2, n2) in pairwise(line):
            if b2 - b1 <= within_s:
                places.setdefault(frozenset((n1, n2)), set()).add((key, begins[key][n2][1]))
    alike = {
        (key, n)
        for nodes, found in places.items()
        if len({g for _, g in found}) >= TOGETHER_TARGETS
        for key, _ in found
        for n in nodes
    }
    return [
        bool(r >= 0 and np.isfinite(b) and ((r, s > 0), n) in alike)
        for r, n, s, b in zip(row, node, side, since, strict=True)
    ]


@given(st.integers(0, 500), st.integers(0, 40))
def test_pairs_agree_with_the_obvious_way(seed, n):
    rng = np.random.default_rng(seed)
    row, node = rng.integers(-1, 6, n), rng.integers(0, 4, n)
    side = rng.choice([-1.0, 1.0], n, p=[0.2, 0.8])
    # no two nodes of a row begin in the same instant: who is next to whom would be chance
    since = np.where(rng.random(n) < 0.1, np.nan, rng.permutation(n) * 10.0)
    target = row % 5
    found = in_pairs(row, node, side, since, target, 60.0)
    assert found.tolist() == naive_pairs(row, node, side, since, target, 60.0)
