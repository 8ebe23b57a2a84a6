"""What begins in several nodes at one moment is nobody's fault."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector.core.simultaneous import TOGETHER_NODES, TOGETHER_SHARE, began_together
from tests.builders import gpu_gauge, suspects, tasks
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
