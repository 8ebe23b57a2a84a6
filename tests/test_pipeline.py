"""Behaviour of the whole detection on small telemetry: each test is one thing that real clusters send."""

import numpy as np
import pytest

from detector.core.neighbours import Neighbours
from detector.core.parameters import Parameters
from detector.core.read_back import values_over
from detector.core.series_view import Scope, SeriesQuery
from detector.core.shift import WARM_UP_SAMPLES
from detector.outcome import Incident, Layer, Status
from tests.builders import (
    CATALOG,
    STEP,
    TASKS,
    Point,
    Telemetry,
    gauge,
    gpu_gauge,
    gpu_labels,
    make_batch,
    node_labels,
    smi_labels,
    suspects,
    tasks,
)

POWER, TEMP, UTIL = "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_UTIL"
XID, NVLINK = "DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"
LOAD = "node_load1"
RECEIVED = "node_infiniband_port_data_received_bytes_total"
BAD = "gpu004"
ONSET = 50


def cluster(n_nodes=12, seed=1, **kwargs):
    return Telemetry(n_nodes, seed, **kwargs)


def evidence_of(outcome, node):
    return next(v for v in outcome.verdicts if v.node == node).evidence


def test_healthy_time_names_nobody_and_everyone_is_judged():
    t = cluster()
    t.add(gpu_gauge(t, POWER, 800, 8)).add(gpu_gauge(t, TEMP, 61, 1)).add(tasks(t)).add(gauge(t, LOAD, 40, 2))
    last = t.run(240)
    assert t.ever_suspect() == set()
    assert {v.status for v in last.verdicts} == {Status.CLEAR}
    assert last.undetermined == {}


def test_a_lasting_deviation_in_two_targets_names_the_node_in_minutes_with_evidence():
    t = cluster()
    t.add(gpu_gauge(t, POWER, 800, 8, lambda k, n, g: 400 if n == BAD and k >= ONSET else None))
    t.add(tasks(t, lambda k, n: 869 if n == BAD and k >= ONSET else None))
    t.run(ONSET)
    assert suspects(t.outcomes[-1]) == []
    last = t.run(12)
    assert suspects(last) == [BAD]
    verdict = last.verdicts[0]
    top = verdict.evidence[0]
    assert {e.metric for e in verdict.evidence[:3]} & {TASKS, POWER}
    assert top.peer_median is not None
    assert top.band is not None
    assert top.n_peers >= 11
    named_at = next(x.at for o in t.outcomes for x in o.transitions if x.after == "suspect")
    # plain in both: half of the continuity, the first sample included
    assert 90 <= named_at - t.at(ONSET) <= 240
    assert t.ever_suspect() == {BAD}


def test_async_tasks_alone_name_the_node_like_the_reference_fault():
    t = cluster(60).add(lambda k, n: []).add(gauge(cluster(), LOAD, 40, 2))
    t.add(tasks(t, lambda k, n: 869 if n == BAD and k >= ONSET else None))
    last = t.run(ONSET + 12)
    assert suspects(last) == [BAD]
    assert evidence_of(last, BAD)[0].metric == TASKS


def test_one_gpu_is_named_as_the_part():
    t = cluster()

    def change(k, n, g):
        return 450 if (n, g) == (BAD, 2) and k >= ONSET else None

    t.add(gpu_gauge(t, POWER, 800, 8, change))
    t.add(
        gpu_gauge(
            t, NVLINK, 180_000, 2000, lambda k, n, g: 60_000 if (n, g) == (BAD, 2) and k >= ONSET else None
        )
    )
    last = t.run(ONSET + 12)
    assert suspects(last) == [BAD]
    assert last.verdicts[0].part == "gpu 2"


def test_all_gpus_of_a_node_together_are_found_though_each_has_many_like_it():
    t = cluster()
    t.add(gpu_gauge(t, NVLINK, 180_000, 2000, lambda k, n, g: 100.0 if n == BAD and k >= ONSET else None))
    t.add(gpu_gauge(t, POWER, 800, 8, lambda k, n, g: 500.0 if n == BAD and k >= ONSET else None))
    assert suspects(t.run(ONSET + 12)) == [BAD]


def test_two_nodes_that_fail_in_the_same_minute_are_both_named():
    t = cluster(20)
    bad = {"gpu003", "gpu011"}
    t.add(gpu_gauge(t, POWER, 800, 8, lambda k, n, g: 400 if n in bad and k >= ONSET else None))
    t.add(tasks(t, lambda k, n: 500 if n in bad and k >= ONSET else None))
    assert set(suspects(t.run(ONSET + 12))) == bad


def test_a_flapping_fault_is_one_incident():
    t = cluster()

    def on(k):
        return k >= ONSET and (k - ONSET) % 5 < 3

    t.add(gpu_gauge(t, POWER, 800, 8, lambda k, n, g: 300 if n == BAD and on(k) else None))
    t.add(tasks(t, lambda k, n: 869 if n == BAD and on(k) else None))
    t.run(ONSET + 40)
    named = [x for o in t.outcomes for x in o.transitions if x.after == "suspect"]
    assert [x.node for x in named] == [BAD]


def test_two_minutes_of_cron_on_one_node_are_no_incident():
    t = cluster()
    t.add(gauge(t, LOAD, 40, 2, lambda k, n: 200 if n == BAD and ONSET <= k < ONSET + 4 else None))
    t.add(
        gauge(
            t, "node_procs_running", 20, 2, lambda k, n: 90 if n == BAD and ONSET <= k < ONSET + 4 else None
        )
    )
    t.run(ONSET + 30)
    assert t.ever_suspect() == set()


def test_a_suspect_clears_by_healthy_data_and_not_by_a_gap():
    t = cluster()
    t.add(gpu_gauge(t, POWER, 800, 8, lambda k, n, g: 400 if n == BAD and ONSET <= k < ONSET + 20 else None))
    t.add(tasks(t, lambda k, n: 869 if n == BAD and ONSET <= k < ONSET + 20 else None))
    assert suspects(t.run(ONSET + 19)) == [BAD]
    for _ in range(30):
        t.tick += 1
    assert BAD in [i.node for i in t.run(1).incidents]
    t.run(40)
    assert suspects(t.outcomes[-1]) == []
    cleared = [x for o in t.outcomes for x in o.transitions if x.after == "cleared" and x.before == "suspect"]
    assert [x.node for x in cleared] == [BAD]


def test_a_habitual_offset_is_no_deviation():
    t = cluster()
    t.add(gpu_gauge(t, TEMP, 60, 0.7, lambda k, n, g: 74 + t.rng.normal() if (n, g) == (BAD, 3) else None))
    t.add(gauge(t, LOAD, 40, 2, lambda k, n: 90 + 2 * t.rng.normal() if n == "gpu001" else None))
    t.run(200)
    assert t.ever_suspect() == set()


def test_a_fault_older_than_the_data_is_told_though_it_counts_as_a_habit():
    t = cluster()
    t.add(gpu_gauge(t, POWER, 800, 8, lambda k, n, g: 300 + t.rng.normal() if (n, g) == (BAD, 3) else None))
    last = t.run(60)
    assert t.ever_suspect() == set()
    told = [q for q in last.data_quality if q.kind == "habit"]
    assert [q.node for q in told] == [BAD]
    assert "gpu 3" in told[0].reason


def test_quantised_values_one_step_off_are_healthy():
    t = cluster()
    t.add(gpu_gauge(t, TEMP, 60, 0.0, lambda k, n, g: 61.0 if (n, g) == (BAD, 0) and k > ONSET else None))
    t.run(ONSET + 120)
    assert t.ever_suspect() == set()


def test_a_stuck_sensor_neither_hides_nor_explodes():
    t = cluster(30)
    t.add(tasks(t, lambda k, n: {"gpu007": 1e9, BAD: 300.0}.get(n) if k >= ONSET else None))
    last = t.run(ONSET + 12)
    assert set(suspects(last)) == {"gpu007", BAD}
    assert all(np.isfinite(e.score) and e.score <= 4 for v in last.verdicts for e in v.evidence)


def test_all_members_moving_together_blame_nobody():
    t = cluster(20)
    t.add(gpu_gauge(t, POWER, 800, 8, lambda k, n, g: 560 + 8 * t.rng.normal() if k >= ONSET else None))
    t.add(gpu_gauge(t, UTIL, 98, 1, lambda k, n, g: 70 + t.rng.normal() if k >= ONSET else None))
    t.run(ONSET + 60)
    assert t.ever_suspect() == set()


def test_a_slow_server_for_most_nodes_blames_neither_the_slow_nor_the_quiet():
    t = cluster(20)
    quiet = {"gpu001", "gpu002", "gpu003"}
    t.add(
        gauge(
            t, LOAD, 10, 1, lambda k, n: 300 + 20 * t.rng.normal() if k >= ONSET and n not in quiet else None
        )
    )
    t.run(ONSET + 40)
    assert t.ever_suspect() == set()


def test_a_third_of_the_nodes_deviating_is_a_group_event():
    t = cluster(12)
    moved = {f"gpu{k:03d}" for k in range(1, 6)}
    t.add(gpu_gauge(t, POWER, 800, 8, lambda k, n, g: 400 if n in moved and k >= ONSET else None))
    t.add(tasks(t, lambda k, n: 300 if n in moved and k >= ONSET else None))
    t.run(ONSET + 30)
    assert t.ever_suspect() == set()
    events = t.group_events()
    assert events
    assert set(events[-1].nodes) == moved


class TestDirect:
    def with_xid(self, changes, *, always=True, n_nodes=12):
        t = cluster(n_nodes)
        t.add(gpu_gauge(t, POWER, 800, 8))

        def source(tick, node):
            points = []
            for g in range(4):
                value = changes(tick, node, g)
                if value is None and always:
                    value = 0.0
                if value is not None:
                    points.append((XID, {**gpu_labels(node, g), "err_code": str(int(value))}, float(value)))
            return points

        return t.add(source)

    def test_a_hardware_xid_names_the_gpu_at_once(self):
        t = self.with_xid(lambda k, n, g: 79 if (n, g) == (BAD, 1) and k >= ONSET else None)
        last = t.run(ONSET + 1)
        assert suspects(last) == [BAD]
        assert last.verdicts[0].part == "gpu 1"
        assert last.verdicts[0].evidence[0].layer is Layer.DIRECT

    def test_the_first_sample_of_a_series_with_a_code_is_the_event(self):
        t = self.with_xid(lambda k, n, g: 79 if (n, g) == (BAD, 1) and k >= ONSET else None, always=False)
        assert suspects(t.run(ONSET + 1)) == [BAD]

    def test_a_sticky_code_from_before_the_start_is_no_event(self):
        t = self.with_xid(lambda k, n, g: 79 if (n, g) == (BAD, 1) else None)
        t.run(80)
        assert t.ever_suspect() == set()

    def test_a_program_fault_on_many_gpus_is_no_hardware(self):
        t = self.with_xid(
            lambda k, n, g: 43 if n in {"gpu001", "gpu002", "gpu003", "gpu004"} and k >= ONSET else None
        )
        t.run(ONSET + 20)
        assert t.ever_suspect() == set()

    def test_the_event_expires_after_a_quiet_time(self):
        t = self.with_xid(lambda k, n, g: 79 if (n, g) == (BAD, 1) and k >= ONSET else None)
        t.run(ONSET + 1 + 60 + 25)
        assert suspects(t.outcomes[-1]) == []

    def test_old_errors_are_no_new_errors_and_a_rise_is_one(self):
        name = "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"
        t = cluster().add(gpu_gauge(cluster(), POWER, 800, 8))
        t.add(gpu_gauge(t, name, 0, 0, lambda k, n, g: 8.0 if (n, g) == ("gpu002", 0) else 0.0))
        t.run(80)
        assert t.ever_suspect() == set()
        t = cluster()
        t.add(
            gpu_gauge(t, name, 0, 0, lambda k, n, g: float(max(0, k - ONSET)) if (n, g) == (BAD, 0) else 0.0)
        )
        assert suspects(t.run(ONSET + 8)) == [BAD]


class TestAbsence:
    def both_exporters(self, missing, n_nodes=12, seed=1):
        t = cluster(n_nodes, seed)

        def change(exporter):
            return lambda k, n, g: np.nan if missing(exporter, k, n, g) else None

        t.add(gpu_gauge(t, POWER, 800, 8, change("dcgm"))).add(gpu_gauge(t, TEMP, 61, 1, change("dcgm")))
        name = "all_smi_gpu_power_consumption_watts"
        t.add(gpu_gauge(t, name, 800, 8, change("all_smi"), labels=smi_labels))
        t.add(gauge(t, LOAD, 40, 2, lambda k, n: np.nan if missing("node", k, n, -1) else None))
        return t

    def test_a_gpu_gone_from_both_exporters_is_named(self):
        t = self.both_exporters(lambda e, k, n, g: (n, g) == (BAD, 2) and k >= ONSET)
        last = t.run(ONSET + 14)
        assert suspects(last) == [BAD]
        assert last.verdicts[0].part == "gpu 2"
        assert last.verdicts[0].evidence[0].layer is Layer.ABSENCE

    def test_a_gpu_that_the_twin_still_shows_is_data_quality(self):
        t = self.both_exporters(lambda e, k, n, g: e == "dcgm" and (n, g) == (BAD, 2) and k >= ONSET)
        t.run(ONSET + 20)
        assert t.ever_suspect() == set()
        assert "partial_series" in t.kinds_of_quality()

    def test_a_dead_exporter_is_no_dead_node(self):
        t = self.both_exporters(lambda e, k, n, g: e == "dcgm" and n == BAD and k >= ONSET)
        t.run(ONSET + 20)
        assert t.ever_suspect() == set()
        assert "exporter_down" in t.kinds_of_quality()

    def test_an_unreachable_machine_is_named(self):
        t = self.both_exporters(lambda e, k, n, g: n == BAD and k >= ONSET)
        last = t.run(ONSET + 14)
        assert suspects(last) == [BAD]
        assert last.verdicts[0].part == ""
        assert suspects(t.run(200)) == [BAD]

    def test_everything_vanishing_is_the_monitoring(self):
        t = self.both_exporters(lambda e, k, n, g: ONSET <= k < ONSET + 12)
        t.run(ONSET + 11)
        assert "monitoring_outage" in t.kinds_of_quality()
        assert {v.status for v in t.outcomes[-1].verdicts} == {Status.UNDETERMINED}
        last = t.run(40)
        assert t.ever_suspect() == set()
        assert {v.status for v in last.verdicts} == {Status.CLEAR}

    def test_what_was_never_there_is_not_absent(self):
        t = self.both_exporters(lambda e, k, n, g: (n, g) == (BAD, 2))
        t.run(80)
        assert t.ever_suspect() == set()

    def test_partial_data_raises_nothing_by_what_is_missing(self):
        t = self.both_exporters(lambda e, k, n, g: n == BAD and k >= ONSET)
        t.run(ONSET - 1)
        t.run(40, partial=True)
        assert t.ever_suspect() == set()


def test_small_groups_are_undetermined_and_say_so():
    t = cluster(2)
    t.add(gauge(t, LOAD, 40, 2, lambda k, n: 500 if n == "gpu002" else None))
    last = t.run(60)
    assert t.ever_suspect() == set()
    assert {v.status for v in last.verdicts} == {Status.UNDETERMINED}
    assert "fewer than 3 peers" in last.undetermined


def test_spares_are_not_suspects_for_being_idle():
    t = cluster(15)
    spare = {"gpu013", "gpu014", "gpu015"}
    t.add(gpu_gauge(t, UTIL, 97, 1, lambda k, n, g: 0.0 if n in spare else None))
    t.add(gpu_gauge(t, POWER, 800, 8, lambda k, n, g: 90 + t.rng.normal() if n in spare else None))
    last = t.run(150)
    assert t.ever_suspect() == set()
    pools = {v.node: v.pool for v in last.verdicts}
    assert len({pools[n] for n in spare}) == 1
    assert pools["gpu001"] != pools["gpu013"]


def test_a_spare_that_joins_the_job_is_no_suspect():
    t = cluster(16)
    spare = {"gpu013", "gpu014", "gpu015", "gpu016"}

    def idle(k, n):
        return n in spare and not (n == "gpu013" and k >= ONSET)

    t.add(gpu_gauge(t, UTIL, 97, 1, lambda k, n, g: 0.0 if idle(k, n) else None))
    t.add(gpu_gauge(t, POWER, 800, 8, lambda k, n, g: 90 + t.rng.normal() if idle(k, n) else None))
    t.run(ONSET + 60)
    assert t.ever_suspect() == set()


def test_evaluation_times_must_go_forward():
    t = cluster()
    t.add(gauge(t, LOAD, 40, 2))
    t.run(3)
    with pytest.raises(ValueError, match="not after"):
        t.pipeline.evaluate(make_batch(t.pipeline, [], t.at(2)), t.at(2))


def test_a_snapshot_carries_habits_incidents_and_expectations_over_a_restart():
    def build():
        t = cluster()
        t.add(
            gpu_gauge(
                t, TEMP, 60, 0.7, lambda k, n, g: 74 + t.rng.normal() if (n, g) == ("gpu002", 3) else None
            )
        )
        t.add(tasks(t, lambda k, n: 869 if n == BAD and k >= ONSET else None))
        return t

    first = build()
    assert suspects(first.run(ONSET + 12)) == [BAD]
    blob, incidents = first.pipeline.snapshot(), list(first.pipeline.open.values())
    second = build()
    second.tick = first.tick
    assert second.pipeline.restore(blob, incidents) == []
    last = second.run(20)
    assert suspects(last) == [BAD]
    assert second.ever_suspect() == set()
    assert [i.id for i in last.incidents] == [i.id for i in incidents]
    assert cluster().pipeline.restore(b"garbage", []) != []


def test_a_snapshot_after_a_fetch_without_an_evaluation_restores_all_that_was_learnt():
    t = cluster()
    t.add(gpu_gauge(t, TEMP, 60, 0.7))
    t.run(30)
    more = [gpu_gauge(t, POWER, 800, 8)(31, node) for node in t.nodes]
    make_batch(t.pipeline, [p for points in more for p in points], t.at(31))  # new series, and then the end
    assert t.pipeline.interner.n_cells > len(t.pipeline.memory.habit.n_seen)
    second = cluster()
    second.add(gpu_gauge(second, POWER, 800, 8)).add(gpu_gauge(second, TEMP, 60, 0.7))
    second.tick = t.tick
    assert second.pipeline.restore(t.pipeline.snapshot(), []) == []
    second.run(1)
    assert second.pipeline.memory.habit.n_seen.max() >= 30


def test_a_habit_in_its_warm_up_is_not_handed_over_to_another_cell():
    t = cluster()
    t.add(gpu_gauge(t, TEMP, 60, 0.7))
    t.run(9)
    memory = t.pipeline.memory
    memory.presence.n_fresh[0], memory.habit.n_seen[0] = 0, 0.0
    assert 0 < memory.shift.n_seen[1] < WARM_UP_SAMPLES
    memory._carry({0: 1})
    assert memory.shift.n_seen[0] == 0
    t.run(WARM_UP_SAMPLES + 1)
    assert np.isfinite(memory.shift.offset[0])


def test_series_view_shows_the_member_against_its_band():
    t = cluster()
    t.add(gpu_gauge(t, POWER, 800, 8))
    t.run(20)
    views = t.pipeline.series_view(SeriesQuery("gpu002", POWER, "gpu 1"))
    assert len(views) == 1
    view = views[0]
    assert view.n_peers == 12 * 4 - 1
    assert (view.low < view.median).all()
    assert view.labels["gpu"] == "1"
    assert view.times[-1] == t.at(20)
    assert t.pipeline.series_view(SeriesQuery("nobody", POWER)) == []


def test_series_view_tells_quartiles_thresholds_and_the_habitual_place():
    t = cluster()
    t.add(gpu_gauge(t, TEMP, 60, 0.7, lambda k, n, g: (85 if k > 40 else 64) if (n, g) == (BAD, 1) else None))
    t.run(42)
    (view,) = t.pipeline.series_view(SeriesQuery(BAD, TEMP, "gpu 1", n_lines=5))
    now = {
        (n, g): float(t.pipeline.series_view(SeriesQuery(n, TEMP, f"gpu {g}"))[0].value[-1])
        for n in t.nodes
        for g in range(4)
    }
    low, high = np.percentile(list(now.values()), [25, 75])
    assert view.lower_quartile[-1] == pytest.approx(low)
    assert view.upper_quartile[-1] == pytest.approx(high)
    assert view.habit > 1
    assert view.median[-1] < view.usual[-1] < view.above[-1] < view.value[-1], "above its peers and its habit"
    assert view.value[20] < view.above[20]
    assert np.isnan(view.below).all(), "a cool GPU is no fault"
    assert [line.node for line in view.lines].count(BAD) == 0
    values = [float(line.value[-1]) for line in view.lines]
    assert all(now[line.node, int(line.part.split()[1])] == line.value[-1] for line in view.lines)
    assert len(values) == 5
    assert t.pipeline.series_view(SeriesQuery(BAD, TEMP, labels=(("gpu", "1"),)))[0].part == "gpu 1"
    assert t.pipeline.series_view(SeriesQuery(BAD, TEMP, labels=(("gpu", "9"),))) == []


def test_series_view_with_the_same_slot_of_other_nodes():
    t = cluster()
    t.add(gpu_gauge(t, TEMP, 60, 0, lambda k, n, g: 60 + 5 * g + int(n[3:]) / 10)).add(
        gpu_gauge(t, UTIL, 97, 1)
    ).add(gauge(t, LOAD, 40, 2))
    t.run(25)
    (view,) = t.pipeline.series_view(SeriesQuery("gpu005", TEMP, "gpu 3", scope=Scope.SLOT, n_lines=4))
    assert (view.n_peers, view.scope, view.has_slots) == (11, Scope.SLOT, True)
    assert view.median[-1] == pytest.approx(75.65, abs=1e-4)
    assert {line.part for line in view.lines} == {"gpu 3"}
    assert [line.node for line in view.lines] == ["gpu001", "gpu004", "gpu009", "gpu012"]
    (whole,) = t.pipeline.series_view(SeriesQuery("gpu005", TEMP, "gpu 3"))
    assert whole.n_peers == 47
    assert whole.median[-1] < 70
    (unjudged,) = t.pipeline.series_view(SeriesQuery("gpu005", UTIL, "gpu 3", scope=Scope.SLOT))
    assert (unjudged.n_peers, unjudged.scope) == (11, Scope.SLOT)
    assert np.isfinite(unjudged.low[-1])
    (of_node,) = t.pipeline.series_view(SeriesQuery("gpu005", LOAD, scope=Scope.SLOT))
    assert (of_node.scope, of_node.has_slots) == (Scope.ALL, False)


def test_what_is_read_back_is_what_was_evaluated():
    t = cluster()
    gaps = lambda k, n, g: np.nan if (k, n) == (9, BAD) else None  # noqa: E731
    t.add(gpu_gauge(t, TEMP, 60, 0.7, gaps)).add(gpu_gauge(t, POWER, 800, 8))
    t.add(lambda k, n: [(RECEIVED, {**node_labels(n), "device": "mlx5_0", "port": "1"}, 1e9 * k * k)])
    pieces, evaluate = [], t.pipeline.evaluate

    def keep(batch, at, *, judge=True):
        pieces.append((at, batch))
        return evaluate(batch, at, judge=judge)

    t.pipeline.evaluate = keep
    t.run(20)
    index = t.pipeline.interner
    times, values = values_over(index, pieces, t.pipeline.parameters)
    for metric in (TEMP, POWER, RECEIVED):
        for view in t.pipeline.series_view(SeriesQuery(BAD, metric)):
            assert times.tolist() == view.times.tolist()
            wanted = np.flatnonzero(index.cell_node == index.nodes.index(BAD))
            same = [c for c in wanted if np.array_equal(values[:, c].astype(np.float32), view.value, True)]
            assert same, (metric, view.part)
    assert np.isnan(view.value[0])
    assert view.value[1] == pytest.approx(3e9 / STEP), "a rate"
    assert np.isnan(values).any()


def test_neighbours_share_a_switch_a_rack_or_an_export():
    t = cluster()
    mounts = "node_mountstats_nfs_operations_requests_total"

    def of_port(k, node):
        labels = {**node_labels(node), "device": "mlx5_0", "port": "1", "switch": f"leaf{int(node[3:]) % 3}"}
        return [(RECEIVED, labels, 1e9 * k)]

    def of_mount(k, node):
        labels = {**node_labels(node), "export": "10.1.0.9:/data", "operation": "READ"}
        labels |= {"mountaddr": "10.1.0.9", "protocol": "tcp", "rack": ""}
        return [(mounts, labels, 10.0 * k)] if node != "gpu012" else []

    t.add(gauge(t, LOAD, 40, 2)).add(of_port).add(of_mount)
    t.run(2)
    exports, switch = t.pipeline.neighbours(BAD)
    assert (exports.label, exports.value, len(exports.nodes)) == ("export", "10.1.0.9:/data", 11)
    assert switch == Neighbours("switch", "leaf1", ("gpu001", BAD, "gpu007", "gpu010"))
    assert [item.label for item in t.pipeline.neighbours("gpu012")] == ["switch"]
    assert t.pipeline.neighbours("nobody") == ()


def test_groups_list_pools_and_units():
    t = cluster()
    t.add(gpu_gauge(t, POWER, 800, 8)).add(gauge(t, LOAD, 40, 2))
    t.run(3)
    units = {g.unit: g for g in t.pipeline.groups()}
    assert units["gpu"].n_members in (12, 48)
    assert units["node"].n_nodes == 12


def test_names_to_fetch_cover_the_catalog_and_identity():
    names = cluster().pipeline.names()
    assert "node_uname_info" in names
    assert {spec.name for spec in CATALOG.specs} <= set(names)
    assert cluster().pipeline.parameters.step_s == STEP
    assert node_labels("a")["job"] == "node"


def test_an_incident_of_a_node_that_never_comes_back_ends_after_a_day():
    t = cluster()
    t.add(tasks(t))
    lost = Incident(
        "old001@1", "old001", "suspect", t.at(0) - 60, suspect_at=t.at(0), last_evidence_at=t.at(0)
    )
    t.pipeline.restore(None, [lost])
    assert [i.node for i in t.run(5).incidents] == ["old001"]
    t.tick += 2881
    cleared = [x for x in t.run(1).transitions if x.node == "old001"]
    assert [x.after for x in cleared] == ["cleared"]
    assert t.run(1).incidents == ()


def test_what_comes_back_late_after_an_outage_is_not_gone() -> None:
    """A backlog arrives target by target: the ports of one node come a minute after all others."""
    name = "node_infiniband_port_data_received_bytes_total"

    def cluster(missing_until: int) -> Telemetry:
        t = Telemetry(12, parameters=Parameters(absence_after_s=90.0))

        def ports(tick: int, node: str) -> list[Point]:
            if node == "gpu007" and 60 <= tick < missing_until:
                return []
            devices = ({**node_labels(node), "device": f"mlx5_{k}", "port": "1"} for k in range(2))
            return [(name, labels, 1e9 * tick) for labels in devices]

        t.add(gauge(t, "node_load1", 100.0, 1.0)).add(ports)
        t.run(120, skip=lambda tick: 50 <= tick < 60)
        return t

    assert cluster(missing_until=62).ever_suspect() == set()
    assert cluster(missing_until=120).ever_suspect() == {"gpu007"}
