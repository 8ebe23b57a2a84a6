"""Why a node was named or not: shipped recordings, hand-made telemetry, a service, and wrong questions."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner, Result

from api.app import create_app
from api.explain import ExplainOut
from detector.cli import app
from detector.core.habit import WARM_UP_SAMPLES
from detector.core.judge import PER_DOUBLING, SHIFT_SHARE
from detector.core.parameters import Parameters
from detector.core.shift import SEEN_SHARE
from detector.core.shift import WARM_UP_SAMPLES as HABIT_WARM_UP
from detector.errors import OddnodeError
from detector.explain import explain
from detector.explain_text import lines
from detector.explanation import Answer, Basis, Explanation, near
from detector.explanation_signals import Fate, PeerSignal
from detector.outcome import Layer, Outcome, Status
from detector.plain_text import recorded_moment
from detector.service_view import BusyError, Latest, Readiness
from detector.store import Store
from grouping.pools import PoolRules
from tests.builders import STEP, TASKS, Telemetry, gauge, gpu_gauge, smi_labels, tasks
from tests.servers import listening
from tests.test_service_serve import FAULTY, Start, start, wait_for, write_recording

__all__ = ["start"]  # a fixture

CASES = Path(__file__).resolve().parent.parent / "replay_data"
NVLINK, OUTAGE = CASES / "gpu068-nvlink", CASES / "monitoring-outage"
POWER, UTIL, TEMP, LOAD = (
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_GPU_TEMP",
    "node_load1",
)
XID, SMI_UTIL = "DCGM_FI_DEV_XID_ERRORS", "all_smi_gpu_utilization"
BAD, WELL, ONSET = "gpu004", "gpu002", 40
WARM = 60


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.startswith("ODDNODE_"):
            monkeypatch.delenv(name)


def call(*args: object) -> Result:
    return CliRunner().invoke(app, ["explain", *map(str, args)])


def asked(*args: object) -> tuple[int, Answer]:
    """Ask with --json and return exit code and answer."""
    result = call(*args, "--json", "-")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, msgspec.json.decode(result.output, type=Answer)


def explained(*args: object) -> tuple[int, Explanation]:
    code, answer = asked(*args)
    assert answer.explanation is not None
    return code, answer.explanation


def told(t: Telemetry, node: str = BAD, n_signals: int = 50) -> Explanation:
    found = explain(t.pipeline, node, n_signals)
    assert found is not None
    return found


def fate_of(found: Explanation, metric: str) -> Fate:
    return next(s.fate for s in found.signals if s.metric == metric)


class TestTheNvlinkRecording:
    def test_the_faulty_node_is_named_by_its_code_and_the_numbers_add_up(self) -> None:
        code, found = explained("gpu068", NVLINK, "--at", "+27m")
        assert (code, found.status) == (1, Status.SUSPECT)
        assert found.pool.n_peers == 59
        first = found.direct[0]
        assert (first.metric, first.part, first.severity) == (XID, "gpu 3", "critical")
        assert first.score >= 1
        assert found.checks[0].passed
        assert found.checks[0].value == found.hard >= 1
        assert sum(t.lasting for t in found.targets) + found.hard == pytest.approx(found.lasting, abs=1e-3)
        assert sum(t.instant for t in found.targets) + found.hard == pytest.approx(found.instant, abs=1e-3)
        assert found.incident is not None
        assert found.incident.suspect_at == 1767001500
        assert any("NVLink" in text for text in found.diagnosis)
        memory = next(s for s in found.signals if s.metric == "DCGM_FI_DEV_FB_USED")
        assert (memory.fate, memory.part, memory.n_parts) == (Fate.COUNTS, "8 GPUs", 8)
        assert memory.value is not None
        assert memory.peer_median is not None
        assert memory.scale is not None
        assert memory.z == pytest.approx((memory.value - memory.peer_median) / memory.scale, abs=1e-3)
        assert memory.similarity is not None
        assert memory.similarity > memory.similarity_gate

    def test_its_peer_is_not_and_why(self) -> None:
        code, found = explained("gpu012", NVLINK, "--at", "+27m")
        assert (code, found.status) == (0, Status.CLEAR)
        assert not any(check.passed for check in found.checks)
        assert (found.targets, found.absences) == ((), ())
        assert found.fates.keys() == {"ordinary"}
        assert all(abs(s.deviation or 0) < s.threshold for s in found.signals)

    def test_before_the_fault_it_is_clear_and_with_its_code_it_is_named(self) -> None:
        code, found = explained("gpu068", NVLINK, "--at", "+24m")
        assert (code, found.status, found.direct) == (0, Status.CLEAR, ())
        code, answer = asked("gpu068", NVLINK, "--at", "2025-12-29T09:45:00Z")
        assert answer.explanation is not None
        assert (code, answer.explanation.status) == (1, Status.SUSPECT)
        assert any(check.passed and "at this moment" in check.name for check in answer.explanation.checks)
        assert [s.after for s in answer.transitions][-1] == "suspect"

    def test_in_the_first_minutes_nothing_can_be_said_and_what_is_missing_is(self) -> None:
        code, found = explained("gpu068", NVLINK, "--at", "+5m")
        assert (code, found.status, found.undetermined) == (3, Status.UNDETERMINED, "too few samples")
        assert found.fates["warming up"] > 100
        warming = next(s for s in found.signals if s.fate is Fate.WARMING_UP)
        assert warming.why == f"10 of {WARM_UP_SAMPLES} samples until it is judged"
        assert warming.z is not None, "the plain score is known all the same"

    @pytest.mark.parametrize(
        ("pools", "node", "reason", "text"),
        [
            ("spares: [gpu069]", "gpu069", "fewer than 3 peers", "pool spares of 1 nodes: fewer than 3"),
            ("muted: [gpu012]", "gpu012", "in no pool", "in no pool (muted"),
        ],
    )
    def test_a_node_without_peers(
        self, tmp_path: Path, pools: str, node: str, reason: str, text: str
    ) -> None:
        config = tmp_path / "oddnode.yaml"
        config.write_text(f"pools: {{{pools}}}\n")
        code, found = explained(node, NVLINK, "--at", "+27m", "--config", config)
        assert (code, found.status, found.undetermined) == (3, Status.UNDETERMINED, reason)
        assert found.pool.n_peers == 0
        assert text in found.pool.text
        assert "no peers" in found.fates

    def test_the_text_is_plain_lines_that_tell_the_same(self) -> None:
        result = call("gpu068", NVLINK, "--at", "+27m", "--signals", 3)
        assert result.exit_code == 1
        text = result.output
        assert text.startswith("gpu068 at 2025-12-29 09:47:00 UTC: SUSPECT\n  named: DCGM_FI_DEV_XID_ERRORS")
        assert "\x1b" not in text
        for part in (
            "direct signals and absences", "event 149 in 2 evaluations", "nothing is gone that counts",
            "pool main of 60 nodes", "[8 GPUs] (megahertz)", "nothing was missing", "pending -> suspect",
        ):  # fmt: skip
            assert part in text, part
        assert len([line for line in text.splitlines() if "240 s" in line]) == 3, (
            "as many signals as asked for"
        )


def test_during_a_monitoring_outage_the_node_is_not_judged_and_nobody_is_blamed() -> None:
    code, found = explained("gpu012", OUTAGE, "--at", "+28m")
    assert (code, found.status, found.undetermined) == (3, Status.UNDETERMINED, "no data")
    assert {f.kind for f in found.data_quality} >= {"monitoring_outage"}
    assert found.absences == ()
    assert {lack.exporter for lack in found.missing} >= {"dcgm", "node_exporter"}
    assert all(lack.n_missing == lack.n_expected for lack in found.missing)
    assert set(found.fates) == {"no value"}
    assert found.signals[0].why.startswith("no sample for ")


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["gpu68", NVLINK, "--at", "+1m"], "node 'gpu68' is not known; names near it: gpu068"),
        (["GPU068", NVLINK, "--at", "+1m"], "node 'GPU068' is not known; names near it: gpu068"),
        (["zzz", NVLINK, "--at", "+1m"], "node 'zzz' is not known"),
        (["gpu068", NVLINK, "--at", "+26h"], "--at +26h is 2025-12-30 11:20:00 UTC, outside of what"),
        (["gpu068", NVLINK, "--at", "+0s"], "outside of what is evaluated, 2025-12-29 09:20:30 UTC to"),
        (["gpu068", NVLINK, "--at", "1"], "--at 1 is 1970-01-01 00:00:01 UTC, outside"),
        (["gpu068", NVLINK, "--at", "noon"], "--at 'noon' is neither RFC 3339, nor epoch seconds"),
        (["gpu068", NVLINK, "--at", "+"], "--at '+' is neither"),
        (["gpu068", NVLINK, "--at", "nan"], "--at 'nan' is no time between the years 1970 and 9999"),
        (["gpu068", NVLINK, "--at", "-5"], "--at '-5' is no time"),
        (["gpu068", "/no/such"], "/no/such: no such recording"),
        (["gpu068", NVLINK, "--url", "http://127.0.0.1:9"], "exclude each other"),
        (["gpu068", "--url", "http://127.0.0.1:9"], "no answer"),
        (["gpu068", "--url", "http://127.0.0.1:9", "--at", "+5m"], "counts from a recording's start"),
    ],
)  # fmt: skip
def test_what_cannot_be_answered_is_said_in_one_sentence(args: list[object], told: str) -> None:
    result = call(*args)
    assert isinstance(result.exception, OddnodeError)
    assert told in str(result.exception)
    assert "\n" not in str(result.exception)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("+12m", 720), ("+1h30m", 5400), ("+90s", 90), ("+90", 90), ("+1d1s", 86401),
     ("1767000100", 100), ("2025-12-29T09:21:40Z", 100), ("2025-12-29T10:21:40+01:00", 100),
     ("2025-12-29 09:21:40", 100)],
)  # fmt: skip
def test_times(text: str, seconds: float) -> None:
    assert recorded_moment(text, 1_767_000_000.0) == 1_767_000_000.0 + seconds


def test_names_near_a_wrong_one() -> None:
    assert near("gpu68", ["gpu068", "other"]) == "; names near it: gpu068"
    assert near("x", ["gpu068"]) == ""
    assert near("", []) == ""


class TestWhatBecameOfASignal:
    """Each rule that can take a deviation out is told by its name."""

    def cluster(self, n_nodes: int = 12, **rules: Any) -> Telemetry:
        t = Telemetry(n_nodes, 3, **rules)
        return t.add(gpu_gauge(t, TEMP, 61, 1))

    def test_one_that_counts_and_then_fades(self) -> None:
        t = self.cluster()
        t.add(gauge(t, LOAD, 40, 2, lambda k, n: 200 if n == BAD and ONSET <= k < ONSET + 4 else None))
        t.run(ONSET + 3)
        found = told(t)
        signal = next(s for s in found.signals if s.metric == LOAD)
        assert (signal.fate, signal.dwell_s, signal.needed_s) == (Fate.COUNTS, 4 * STEP, 240)
        assert "for 120 of 240 s" in signal.why
        t.run(1)
        found = told(t)
        assert fate_of(found, LOAD) is Fate.FADING
        assert found.instant == 0 < found.lasting

    def test_three_nodes_at_one_moment(self) -> None:
        t = self.cluster(24)
        moved = {"gpu003", BAD, "gpu005"}
        t.add(gauge(t, LOAD, 40, 2, lambda k, n: 200 if n in moved and k >= ONSET else None))
        t.run(ONSET + 3)
        assert fate_of(told(t), LOAD) is Fate.AT_ONCE
        t.run(12)
        signal = next(s for s in told(t).signals if s.metric == LOAD)
        assert (signal.fate, signal.change.fate) == (Fate.AT_ONCE, Fate.AT_ONCE)
        assert "at one moment" in signal.why

    def test_a_pool_that_moves_together(self) -> None:
        t = self.cluster()
        moved = {f"gpu{k:03d}" for k in range(1, 6)}
        t.add(gauge(t, LOAD, 40, 2, lambda k, n: 200 if n in moved and k >= ONSET else None))
        t.run(ONSET + 4)
        found = told(t)
        signal = next(s for s in found.signals if s.metric == LOAD)
        assert (signal.fate, signal.n_shared, signal.n_nodes) == (Fate.SHARED, 5, 12)
        assert found.group_events
        assert "5 of 12 nodes moved together" in found.group_events[0].reason

    def test_a_twin_that_denies_it(self) -> None:
        t = self.cluster()
        t.add(gpu_gauge(t, UTIL, 97, 1, lambda k, n, g: 0.0 if (n, g) == (BAD, 1) and k >= ONSET else None))
        t.add(gpu_gauge(t, SMI_UTIL, 97, 1, labels=smi_labels))
        t.run(ONSET + 4)
        signal = next(s for s in told(t).signals if s.fate is Fate.TWIN_DENIES)
        assert (signal.metric, signal.twin, signal.part) == (UTIL, SMI_UTIL, "gpu 1")
        assert signal.twin_deviation is not None
        assert abs(signal.twin_deviation) < signal.threshold < abs(signal.deviation or 0)

    def test_the_better_side(self) -> None:
        t = Telemetry(12, 3)
        t.add(gpu_gauge(t, TEMP, 61, 1, lambda k, n, g: 20 if n == BAD and k >= ONSET else None))
        t.run(ONSET + 4)
        assert fate_of(told(t), TEMP) is Fate.BETTER_SIDE

    def test_a_habit(self) -> None:
        t = self.cluster()
        t.add(gauge(t, LOAD, 40, 2, lambda k, n: 200 + t.rng.normal() if n == BAD else None))
        t.run(ONSET)
        signal = next(s for s in told(t).signals if s.metric == LOAD)
        assert signal.fate is Fate.HABIT
        assert abs(signal.z or 0) >= signal.threshold > abs(signal.deviation or 0)

    def test_no_value_now(self) -> None:
        t = self.cluster()
        t.add(gauge(t, LOAD, 40, 2, lambda k, n: float("nan") if n == BAD and k >= ONSET else None))
        t.run(ONSET + 8)
        found = told(t)
        assert fate_of(found, LOAD) is Fate.NO_VALUE
        (lack,) = found.missing
        assert (lack.exporter, lack.n_missing, lack.n_expected) == ("node_exporter", 1, 1)
        assert "after 150 s" not in lack.text, "it has been gone for longer"

    def test_a_node_that_has_just_joined(self) -> None:
        t = self.cluster(pools=PoolRules(join_grace_s=300))
        t.run(ONSET)
        t.nodes.append("gpu099")
        t.run(3)
        found = told(t, "gpu099")
        assert found.pool.in_grace
        assert found.fates.keys() == {"in grace"}
        assert found.undetermined == "joined its pool a moment ago"

    def test_a_usual_distance_over_the_window(self) -> None:
        t = Telemetry(12, 3, parameters=Parameters(z_threshold=0.3))
        # with every fourth sample ordinary it is no change of habit all the time
        t.add(tasks(t, lambda k, n: 52 if n == BAD and k >= ONSET and k % 4 else None))
        found = []
        for _ in range(ONSET + 30):
            t.run(1)
            found.append(told(t))
        signals = [s for e in found for s in e.signals if s.fate is Fate.SIMILAR]
        assert signals
        moved = [s for e in found for s in e.signals if s.fate is Fate.MOVED and "does not count" in s.why]
        assert moved, "the gate is for the comparison with peers alone; it is told beside a change of habit"
        for signal in (*signals, *moved):
            assert signal.similarity is not None
            assert signal.similarity < signal.similarity_gate
            assert signal.why.endswith("under 2: does not count")


def test_the_blast_guard_is_told() -> None:
    t = Telemetry(12, 5)
    bad = [f"gpu{k:03d}" for k in range(1, 5)]
    # no signal is shared by a third of the pool, yet a third of it would be named at once
    t.add(tasks(t, lambda k, n: 869 if n in bad[:2] and k >= ONSET else None))
    used = "node_memory_AnonPages_bytes"
    t.add(gauge(t, used, 3.8e11, 2e9, lambda k, n: 1.8e10 if n in bad[2:] and k >= ONSET else None))
    seen: list[Explanation] = []
    for _ in range(ONSET + 14):
        t.run(1)
        seen.append(told(t, bad[0]))
    guarded = [e for e in seen if any(c.unit == "nodes" for c in e.checks)]
    assert guarded
    assert all(e.status is not Status.SUSPECT for e in guarded)
    check = guarded[-1].checks[-1]
    assert (check.passed, check.value >= check.needed) == (False, True)
    assert "none of them is named anew" in check.text


@pytest.mark.parametrize("seed", range(4))
def test_the_conditions_told_are_those_that_decide(seed: int) -> None:
    t = Telemetry(8, seed)
    on = lambda k, n: n == BAD and k >= ONSET and (k - ONSET) % (4 + seed % 2) < 3  # noqa: E731
    power, count = (300, 869) if seed % 2 else (740, 75)
    t.add(gpu_gauge(t, POWER, 800, 8, lambda k, n, g: power if on(k, n) else None))
    t.add(tasks(t, lambda k, n: count if on(k, n) else None))
    t.add(
        gpu_gauge(t, XID, 0, 0, lambda k, n, g: 79 if (n, g, seed) == (WELL, 1, 2) and k >= ONSET else None)
    )
    n_decided = by_habit = 0
    for _ in range(ONSET + 30):
        t.run(1)
        concluded = t.pipeline.concluded
        assert concluded is not None
        for number, node in enumerate(t.pipeline.interner.nodes):
            found = told(t, node)
            passed = [c.passed for c in found.checks]
            hard, backed, own, lasting, dwell, habit, again, back, *guard = passed
            names = hard or backed or own or (lasting and dwell) or (habit and again) or back
            assert bool(concluded.decided[number]) == (names and not guard)
            n_decided += int(concluded.decided[number])
            by_habit += int(habit and again and not (hard or (lasting and dwell)))
            assert sum(x.shifted for x in found.targets) + found.hard == pytest.approx(
                found.shifted, abs=1e-3
            )
            assert sum(x.lasting for x in found.targets) + found.hard == pytest.approx(
                found.lasting, abs=1e-3
            )
            assert sum(found.fates.values()) >= len(found.signals)
            assert json.dumps(msgspec.to_builtins(found), allow_nan=False)
            assert lines(Answer(node, None, Basis.EVALUATION, "", found))
    assert n_decided > 0
    assert by_habit > 0 or seed % 2, "a change of habit decided before the time of the others was over"


class TestAChangeOfHabit:
    """Lasting moves of a member against itself, too small for the comparison with peers."""

    def cluster(self, by: float = 5, n_moved: int = 1) -> Telemetry:
        t = Telemetry(12, 3)
        moved = {BAD, *(f"gpu{k:03d}" for k in range(n_moved))}
        t.add(gauge(t, LOAD, 40, 2))

        def warm(k: int, n: str, g: int) -> float | None:
            return 61 + by + t.rng.normal() if n in moved and k >= WARM else None

        return t.add(gpu_gauge(t, TEMP, 61, 1, warm))

    def of(self, found: Explanation, metric: str = TEMP) -> PeerSignal:
        return next(s for s in found.signals if s.metric == metric)

    def test_it_counts_by_itself_with_all_its_numbers(self) -> None:
        t = self.cluster()
        t.run(WARM)
        before = self.of(told(t)).change
        assert (before.fate, before.score, before.since) == (Fate.ORDINARY, 0, None)
        assert before.offset == pytest.approx(0, abs=1)
        for _ in range(20):
            t.run(1)
            found = told(t)
            signal = self.of(found)
            if signal.fate is Fate.MOVED and signal.change.longer > 1:
                break
        change = signal.change
        assert (signal.fate, change.fate) == (Fate.MOVED, Fate.COUNTS)
        assert abs(signal.deviation or 0) < signal.threshold, "the peers alone say nothing"
        assert change.shift is not None
        assert change.threshold == pytest.approx(SEEN_SHARE * signal.threshold)
        assert change.shift >= change.threshold
        assert change.score == pytest.approx(
            SHIFT_SHARE * change.shift * change.longer / signal.threshold * signal.weight, abs=1e-3
        )
        assert signal.score == change.score
        assert change.since is not None
        assert t.at(WARM) - STEP <= change.since <= t.at(WARM + 12)
        lasted = found.at - change.since
        assert change.longer == pytest.approx(
            1 + PER_DOUBLING * math.log2(lasted / signal.needed_s), abs=1e-3
        )
        assert signal.why == change.why
        assert "above its habit" in signal.why
        assert signal.own is not None
        assert 0 < signal.own <= 1
        (target,) = found.targets
        assert found.shifted == pytest.approx(target.shifted, abs=1e-3)
        assert target.shifted > 0
        text = "\n".join(lines(Answer(BAD, None, Basis.EVALUATION, "", found)))
        assert "moved: moved " in text

    def test_the_evidence_says_so_once_in_plain_words(self) -> None:
        t = Telemetry(12, 3)
        t.add(gauge(t, LOAD, 40, 2)).add(tasks(t))
        t.add(gpu_gauge(t, TEMP, 61, 1, lambda k, n, g: 95 if n == BAD and k >= WARM else None))
        layers = set()
        for _ in range(WARM + 20):
            last = t.run(1)
            active = t.pipeline.concluded.evaluation.active  # type: ignore[union-attr]
            evidence = next(v for v in last.verdicts if v.node == BAD).evidence
            assert len([e for e in evidence if e.metric == TEMP]) <= 1
            layers |= {e.layer for e in evidence}
            for item in evidence:
                assert item.reason.count("its habit") == (item.layer is Layer.HABIT)
                if item.layer is Layer.HABIT:
                    assert re.match(
                        r"95 celsius, peers 6\d\S* \(n=48\): moved [\d.]+ robust deviations above its habit ",
                        item.reason,
                    )
        assert len(active.cell) > len(set(active.cell.tolist())), "cells that count in both layers"
        assert layers == {Layer.PEER, Layer.HABIT}

    def test_many_that_move_together_are_not_blamed(self) -> None:
        t = self.cluster(by=20, n_moved=6)
        t.run(WARM + 11)
        change = self.of(told(t)).change
        assert (change.fate, change.score) == (Fate.SHARED, 0)
        assert f"{change.n_shared} of 12 nodes have moved" in change.why
        assert change.n_shared >= 4

    def test_the_better_side_does_not_count(self) -> None:
        t = self.cluster(by=-20)
        t.run(WARM + 13)
        change = self.of(told(t)).change
        assert change.fate is Fate.BETTER_SIDE
        assert change.shift is not None
        assert change.shift <= -change.threshold

    def test_a_twin_that_has_not_moved_denies_it(self) -> None:
        t = Telemetry(12, 3)
        t.add(gauge(t, LOAD, 40, 2))
        t.add(gpu_gauge(t, UTIL, 97, 1, lambda k, n, g: 10 if (n, g) == (BAD, 1) and k >= WARM else None))
        t.add(gpu_gauge(t, SMI_UTIL, 97, 1, labels=smi_labels))
        t.run(WARM + 14)
        found = told(t)
        denied = next(s for s in found.signals if s.fate is Fate.TWIN_DENIES)
        assert (denied.change.fate, denied.change.score) == (Fate.TWIN_DENIES, 0)
        assert found.targets == ()

    def test_until_a_habit_is_known_nothing_is_said(self) -> None:
        t = self.cluster()
        t.run(10)
        change = self.of(told(t)).change
        assert (change.fate, change.shift, change.offset, change.since) == (Fate.WARMING_UP, None, None, None)
        assert (change.n_habit, change.n_needed) == (10, HABIT_WARM_UP)
        assert change.why == f"10 of {HABIT_WARM_UP} samples until its habit is known"
        t.run(HABIT_WARM_UP - 8)
        change = self.of(told(t)).change
        assert change.fate is Fate.WARMING_UP
        assert change.why.startswith("too few samples since")


def test_explaining_changes_nothing() -> None:
    def outcomes(*, asks: bool) -> list[Outcome]:
        t = Telemetry(8, 1)
        t.add(tasks(t, lambda k, n: 869 if n == BAD and k >= ONSET else None))
        for _ in range(ONSET + 12):
            t.run(1)
            if asks:
                for node in t.nodes:
                    told(t, node)
        return t.outcomes

    assert outcomes(asks=True) == outcomes(asks=False)


def test_a_node_that_is_not_known_and_a_pipeline_that_has_not_begun() -> None:
    t = Telemetry(4, 1)
    assert explain(t.pipeline, BAD) is None
    t.add(tasks(t)).run(3)
    assert explain(t.pipeline, "nobody") is None


def test_hostile_texts_stay_on_their_line() -> None:
    t = Telemetry(6, 1)
    evil = "gpu\n\x1b[31mred\u202e"
    t.add(gauge(t, LOAD, 40, 2)).run(30)
    found = told(t)
    signal = replace(found.signals[0], part=evil, labels={evil: evil}, metric=evil, measure=evil)
    found = replace(found, node=evil, summary=evil, signals=(signal,), notes=(evil,))
    shown = lines(Answer(evil, None, Basis.EVALUATION, evil, found))
    assert any("red" in line for line in shown)
    assert not any(c in line for line in shown for c in "\n\r\x1b\u202e")


def test_a_real_service_says_what_its_recording_says(tmp_path: Path, start: Start) -> None:
    case = write_recording(tmp_path / "small")
    code, expected = explained(FAULTY, case, "--signals", 3)
    assert (code, expected.status) == (1, Status.SUSPECT)
    service = start({"recording": {"path": str(case), "speed": 2000}})

    def newest() -> Any:
        status, body = service.get(f"/v1/explain?node={FAULTY}&signals=3")
        return body if status == 200 and body["at"] == expected.at else None

    body = wait_for(newest, what=service.text)
    assert msgspec.convert(body["explanation"], Explanation) == expected
    assert [step["after"] for step in body["transitions"]] == ["pending", "suspect"]


class View:
    """A service at rest on a real pipeline and a real store."""

    def __init__(self, store: Store, telemetry: Telemetry) -> None:
        self.store, self.telemetry = store, telemetry
        self.is_busy = False
        self.has_begun = True

    def latest(self) -> Latest | None:
        return Latest(self.telemetry.outcomes[-1]) if self.has_begun else None

    def data_age_s(self) -> float | None:
        return 30.0

    def readiness(self) -> Readiness:
        return Readiness(("nothing was evaluated yet: filling the window",))

    def explain(self, node: str, n_signals: int) -> Explanation | None:
        if self.is_busy:
            raise BusyError("an evaluation is under way: ask again in a moment")
        return explain(self.telemetry.pipeline, node, n_signals)

    def recording(self) -> None:
        return None

    def metrics_text(self) -> bytes:
        return b""


@pytest.fixture
def view(tmp_path: Path) -> Iterator[View]:
    """A node that was a suspect, was cleared, and another one that is a suspect now."""
    t = Telemetry(12, 1)
    t.add(gauge(t, LOAD, 40, 2))

    def change(k: int, n: str) -> float | None:
        return 869 if (n == BAD and 40 <= k < 60) or (n == WELL and k >= 100) else None

    t.add(tasks(t, change))
    store = Store(tmp_path / "oddnode.db")
    for _ in range(115):
        store.save(t.run(1), None)
    yield View(store, t)
    store.close()


class TestAService:
    def get(self, view: View, query: str, status: int = 200) -> Any:
        with TestClient(create_app(view), raise_server_exceptions=False) as client:
            answer = client.get(f"/v1/explain?{query}")
        assert answer.status_code == status, answer.text
        if status == 200:
            ExplainOut.model_validate_json(answer.text)
        return answer.json()

    def test_now_with_all_numbers(self, view: View) -> None:
        body = self.get(view, f"node={WELL}&signals=1")
        assert (body["basis"], body["explanation"]["status"]) == ("evaluation", "suspect")
        assert (body["at"], body["data_age_s"], body["asked_at"]) == (view.telemetry.at(115), 30.0, None)
        (signal,) = body["explanation"]["signals"]
        assert (signal["metric"], signal["fate"], signal["value"]) == (TASKS, "counts", 869.0)
        assert [s["after"] for s in body["transitions"]] == ["pending", "suspect"]
        body = self.get(view, f"node={BAD}&at={view.telemetry.at(115) + 20}")
        assert (body["basis"], body["explanation"]["status"]) == ("evaluation", "clear")

    def test_the_past_from_its_incidents(self, view: View) -> None:
        t = view.telemetry
        body = self.get(view, f"node={BAD}&at={t.at(55)}")
        assert (body["basis"], body["explanation"]) == ("history", None)
        assert "`oddnode record`" in body["note"]
        (incident,) = body["incidents"]
        assert incident["suspect_at"] <= t.at(55) < incident["cleared_at"]
        assert TASKS in incident["evidence"][0]
        assert [s["after"] for s in body["transitions"]] == ["pending", "suspect"], "not what came later"

    def test_a_past_without_an_incident_is_not_called_healthy(self, view: View) -> None:
        body = self.get(view, f"node={WELL}&at={view.telemetry.at(50)}")
        assert (body["incidents"], body["transitions"]) == ([], [])
        assert "clear, or it could not be judged" in body["note"]

    @pytest.mark.parametrize(
        ("query", "status", "code", "message"),
        [
            ("node=gpu4", 404, "not_found", "node 'gpu4' is not known; names near it: gpu004"),
            ("node=gpu004&at=99999999999", 422, "invalid_parameter", "at: 99999999999 lies in the future"),
            ("node=gpu004&at=nan", 422, "invalid_parameter", "at: "),
            ("node=gpu004&signals=0", 422, "invalid_parameter", "signals: "),
            ("", 422, "invalid_parameter", "node: field required"),
        ],
    )
    def test_errors(self, view: View, query: str, status: int, code: str, message: str) -> None:
        error = self.get(view, query, status)["error"]
        assert error["code"] == code
        assert error["message"].startswith(message)

    def test_while_it_is_busy_and_before_it_has_begun(self, view: View) -> None:
        view.is_busy = True
        assert "under way" in self.get(view, f"node={BAD}", 503)["error"]["message"]
        view.has_begun = False
        assert "filling the window" in self.get(view, f"node={BAD}", 503)["error"]["message"]

    def test_the_command_asks_and_tells_by_its_exit_code(self, view: View) -> None:
        t = view.telemetry
        with listening(create_app(view)) as url:
            now = call(WELL, "--url", url)
            past = call(BAD, "--url", url, "--at", f"{t.at(55):.0f}")
            quiet = call(WELL, "--url", url, "--at", f"{t.at(50):.0f}")
            healthy = call("gpu001", "--url", url)
            wrong = call("gpu4", "--url", url)
            view.has_begun = False
            early = call(BAD, "--url", url)
        assert (now.exit_code, past.exit_code, quiet.exit_code, healthy.exit_code) == (1, 1, 3, 0)
        assert f"{WELL} at" in now.output
        assert ": SUSPECT" in now.output
        assert "INCIDENT gpu004@" in past.output
        assert "pending -> suspect" in past.output
        assert ": NO INCIDENT" in quiet.output
        assert isinstance(wrong.exception, OddnodeError)
        assert "answered 404: node 'gpu4' is not known; names near it: gpu004" in str(wrong.exception)
        assert early.exit_code == 3
        assert "filling the window" in early.stderr

    @pytest.mark.parametrize("body", [b"{}", b"[", b"\xff", b'{"node": 1, "asked_at": null, "basis": "odd"}'])
    def test_what_is_no_service_is_said(self, body: bytes) -> None:
        async def other(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": body})

        with listening(other) as url:  # type: ignore[arg-type]
            result = call(BAD, "--url", url)
        assert isinstance(result.exception, OddnodeError)
        assert "is not that of an Oddnode service" in str(result.exception)
