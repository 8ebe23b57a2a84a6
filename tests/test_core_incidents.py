"""The incident state machine: step lists named by their path, and properties over random walks."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detector.core import incidents as life
from detector.core.incidents import Observation, step
from detector.outcome import Evidence, Layer

DT, CLEAR = 30.0, 300.0
NOTHING = Observation(known=True, score=0.0)
SIGN = Observation(known=True, score=1.4, reason="sign")
NAMED = Observation(known=True, score=2.0, decided=True, part="gpu 3", reason="decided")
UNKNOWN = Observation(known=False)
GONE = Observation(known=False, gone=True)


def walk(observations):
    incident, states, made = None, [], []
    for k, seen in enumerate(observations):
        incident, transitions = step("gpu001", incident, seen, at=1000 + DT * k, dt=DT, clear_after_s=CLEAR)
        made.extend(transitions)
        states.append(incident.state if incident else None)
        if incident and incident.state == life.CLEARED:
            incident = None
    return incident, states, made


def path(made):
    return [(t.before, t.after) for t in made]


def test_pending_suspect_cleared():
    _, states, made = walk([NOTHING, SIGN, SIGN, NAMED] + [NOTHING] * 10)
    assert path(made) == [("clear", "pending"), ("pending", "suspect"), ("suspect", "cleared")]
    assert states[-1] == "cleared"
    assert made[-1].at - made[1].at == CLEAR
    assert all(t.reason for t in made)


def test_decided_at_once_is_pending_and_suspect_in_one_step():
    _, states, made = walk([NAMED])
    assert states == ["suspect"]
    assert path(made) == [("clear", "pending"), ("pending", "suspect")]


def test_pending_forgotten_when_the_sign_does_not_last():
    _, _, made = walk([SIGN] + [NOTHING] * 4)
    assert path(made) == [("clear", "pending"), ("pending", "cleared")]


def test_a_gap_neither_clears_nor_raises():
    incident, states, made = walk([NAMED, *[UNKNOWN] * 200])
    assert states[-1] == "suspect"
    assert len(made) == 2
    assert incident.healthy_s == 0
    _, states, made = walk([UNKNOWN] * 50)
    assert made == []
    assert set(states) == {None}


def test_healthy_time_is_of_data_and_starts_anew_with_evidence():
    incident, states, _ = walk([NAMED, *[NOTHING] * 9, UNKNOWN, SIGN, *[NOTHING] * 9])
    assert states[-1] == "suspect"
    assert incident.healthy_s == 270
    _, states, _ = walk([NAMED, *[NOTHING, UNKNOWN] * 10])
    assert states[-2:] == ["cleared", None]


def test_weak_evidence_holds_a_suspect():
    weak = Observation(known=True, score=0.8)
    _, states, _ = walk([NAMED, *[weak] * 30])
    assert states[-1] == "suspect"
    _, states, _ = walk([NAMED, *[weak] * 30, SIGN, *[weak] * 30])
    assert states[-1] == "suspect", "evidence over the threshold starts it anew"


def test_weak_evidence_does_not_hold_a_suspect_for_ever():
    weak = Observation(known=True, score=0.8)
    _, states, made = walk([NAMED, *[weak] * 200])
    assert made[-1].after == "cleared"
    assert states.count("suspect") == pytest.approx(CLEAR / life.WEAK_SHARE / DT, abs=1)


def test_a_node_taken_away_is_cleared_with_its_reason():
    _, _, made = walk([NAMED, UNKNOWN, GONE])
    assert made[-1].after == "cleared"
    assert "no longer expected" in made[-1].reason


def test_peak_evidence_is_kept():
    item = Evidence("m", {}, "gpu 3", Layer.PEER, "why", 3.0, 1.0, 2.0, (1.0, 3.0), 1000.0, 9, "GPU")
    high = Observation(known=True, score=5.0, decided=True, part="gpu 3", reason="high", evidence=(item,))
    incident, _, _ = walk([SIGN, high, NAMED])
    assert incident.peak_score == 5.0
    assert incident.evidence == (item,)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from([NOTHING, SIGN, NAMED, UNKNOWN, Observation(True, 0.8)]), max_size=60))
def test_random_walks_keep_the_rules(observations):
    _, states, made = walk(observations)
    legal = {("clear", "pending"), ("pending", "suspect"), ("pending", "cleared"), ("suspect", "cleared")}
    assert set(path(made)) <= legal
    times = [t.at for t in made]
    assert times == sorted(times)
    ids = [t.incident_id for t in made if t.before == "clear"]
    assert len(ids) == len(set(ids))
    for seen, before, after in zip(observations[1:], states, states[1:], strict=False):
        if not seen.known and before in ("pending", "suspect"):
            assert after == before


@pytest.mark.parametrize("score", [0.0, 0.3, 0.99])
def test_below_the_threshold_nothing_begins(score):
    _, states, made = walk([Observation(known=True, score=score)] * 20)
    assert made == []
    assert set(states) == {None}
