"""What real clusters send, one small telemetry each, and what must be said of it."""

import json

import numpy as np
import pytest

from detector.core.series_view import SeriesQuery
from detector.outcome import Layer, Status
from detector.source.samples import SampleCollector
from grouping.placement import PlacementRules
from grouping.pools import PoolRules
from tests.builders import (
    CATALOG,
    STEP,
    TASKS,
    Telemetry,
    agent_labels,
    gauge,
    gpu_gauge,
    gpu_labels,
    node_labels,
    smi_labels,
    suspects,
    tasks,
)

MEMORY_TEMP = "DCGM_FI_DEV_MEMORY_TEMP"
POWER, TEMP, UTIL = "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_UTIL"
XID, NVLINK = "DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"
CLOCK, COPY, USED = "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_MEM_COPY_UTIL", "DCGM_FI_DEV_FB_USED"
SMI_POWER, SMI_UTIL = "all_smi_gpu_power_consumption_watts", "all_smi_gpu_utilization"
SMI_TEMP = "all_smi_gpu_temperature_celsius"
LOAD, FAILED_RPC = "node_load1", "backendai_rpc_failure_requests_total"
REMAPPED, REPLAY = "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER"
IB, IB_WAIT = (
    "node_infiniband_port_data_received_bytes_total",
    "node_infiniband_port_transmit_wait_total",
)
BAD = "gpu004"
ONSET = 40


def counter(t, name, rate, noise, labels=node_labels, change=None):
    """A counter of each node; `change` gives the rise of this tick, or ("reset", value), or None."""
    totals = {}

    def source(tick, node):
        key = node
        rise = max(0.0, rate + noise * float(t.rng.normal())) * STEP
        changed = change(tick, node) if change is not None else None
        if isinstance(changed, tuple):
            totals[key] = changed[1]
        else:
            totals[key] = totals.get(key, 1e9) + (rise if changed is None else changed)
        return [(name, labels(node), totals[key])]

    return source


def ib_labels(device):
    return lambda node: {**node_labels(node), "device": device, "port": "1"}


def scrape_labels(node, port, job):
    return {"instance": f"{node}:{port}", "job": job}


def training(n_nodes=10, seed=1, *, without=(), **rules):
    """An ordinary training pool: GPUs seen by both exporters, host load, agent."""
    t = Telemetry(n_nodes, seed, **rules)
    parts = {
        POWER: lambda: gpu_gauge(t, POWER, 800, 8),
        TEMP: lambda: gpu_gauge(t, TEMP, 61, 1),
        UTIL: lambda: gpu_gauge(t, UTIL, 97, 1),
        SMI_POWER: lambda: gpu_gauge(t, SMI_POWER, 800, 8, labels=smi_labels),
        LOAD: lambda: gauge(t, LOAD, 40, 2),
        TASKS: lambda: tasks(t),
    }
    for name, make in parts.items():
        if name not in without:
            t.add(make())
    return t


def only(node, gpu, value, onset=ONSET, end=10**9):
    return lambda k, n, g: value if (n, g) == (node, gpu) and onset <= k < end else None


def evidence_of(outcome, node):
    return next(v for v in outcome.verdicts if v.node == node).evidence


def value_of(t, node, metric, part=""):
    views = t.pipeline.series_view(SeriesQuery(node, metric, part))
    assert views, metric
    return float(views[0].value[-1])


def feed_lines(t, rows, at, *, window_s=90.0):
    """Hand lines as the database exports them to the pipeline: (name, labels, values, seconds)."""
    text = "".join(
        json.dumps(
            {
                "metric": {"__name__": name, **labels},
                "values": values,
                "timestamps": [round(s * 1000) for s in stamps],
            }
        )
        + "\n"
        for name, labels, values, stamps in rows
    )
    collector = SampleCollector(t.pipeline.interner, "here")
    part = collector.part()
    part.add(text.encode())
    collector.commit(part)
    batch = collector.finish(int((at - window_s) * 1000), int(at * 1000))
    outcome = t.pipeline.evaluate(batch, at)
    t.outcomes.append(outcome)
    return outcome


# --- values ---------------------------------------------------------------------------------


def test_a_counter_by_type_that_falls_on_most_steps_is_used_as_the_gauge_it_is():
    t = training(without=[POWER])
    t.add(gpu_gauge(t, NVLINK, 180_000, 9000, only(BAD, 1, 60_000.0)))
    t.add(gpu_gauge(t, POWER, 800, 8, only(BAD, 1, 500.0)))
    last = t.run(ONSET + 12)
    assert suspects(last) == [BAD]
    assert value_of(t, BAD, NVLINK, "gpu 1") == 60_000
    found = next(e for e in evidence_of(last, BAD) if e.metric == NVLINK)
    assert found.value == 60_000


def xids(t, code, *, when_none=0.0, err_labels=True, n_gpus=4):
    """XID series; `code(tick, node, gpu)` gives one code, several, NaN for no sample, or None."""

    def source(tick, node):
        points = []
        for g in range(n_gpus):
            codes = code(tick, node, g)
            codes = when_none if codes is None else codes
            for c in codes if isinstance(codes, tuple) else (codes,):
                if c is not None and c == c:
                    labels = gpu_labels(node, g) | ({"err_code": str(int(c))} if err_labels and c else {})
                    points.append((XID, labels, float(c)))
        return points

    return source


class TestXid:
    def test_a_code_that_stays_after_an_exporter_was_down_is_no_event(self):
        t = training(without=[POWER, TEMP, UTIL])

        def down(k, n):
            return n == BAD and 30 <= k < 40

        t.add(gpu_gauge(t, POWER, 800, 8, lambda k, n, g: np.nan if down(k, n) else None))
        t.add(xids(t, lambda k, n, g: np.nan if down(k, n) else (79.0 if (n, g) == (BAD, 1) else None)))
        t.run(80)
        assert t.ever_suspect() == set()

    def test_a_code_that_stays_over_a_restart_of_the_service_is_no_event(self):
        def build():
            t = training()
            return t.add(xids(t, lambda k, n, g: 79.0 if (n, g) == (BAD, 1) else None))

        first = build()
        first.run(40)
        second = build()
        second.tick = first.tick
        assert second.pipeline.restore(first.pipeline.snapshot(), []) == []
        second.run(40)
        assert second.ever_suspect() == set()

    def test_the_code_that_vanishes_with_the_node_and_returns_is_one_incident(self):
        t = training()
        t.add(xids(t, lambda k, n, g: 79.0 if (n, g) == (BAD, 1) and k >= ONSET else None))
        t.run(ONSET + 20)
        named = [x.node for o in t.outcomes for x in o.transitions if x.after == "suspect"]
        assert named == [BAD]

    def test_the_same_code_twice_is_one_piece_of_evidence(self):
        t = training()
        t.add(xids(t, lambda k, n, g: 79.0 if (n, g) == (BAD, 1) and k >= ONSET else None))
        last = t.run(ONSET + 6)
        assert [e.metric for e in evidence_of(last, BAD)].count(XID) == 1

    @pytest.mark.parametrize("codes", [(45.0, 149.0), (149.0, 45.0)])
    def test_two_codes_of_one_gpu_in_one_scrape_the_graver_one_counts(self, codes):
        t = training()
        t.add(xids(t, lambda k, n, g: codes if (n, g) == (BAD, 2) and k >= ONSET else None, when_none=None))
        last = t.run(ONSET + 2)
        assert suspects(last) == [BAD]
        assert last.verdicts[0].part == "gpu 2"
        t.run(100)
        assert [x.after for o in t.outcomes for x in o.transitions if x.node == BAD] == [
            "pending",
            "suspect",
            "cleared",
        ]

    def test_a_second_code_in_a_series_of_its_own_is_a_second_event(self):
        t = training()

        def codes(k, n, g):
            if (n, g) != (BAD, 2) or k < 20:
                return None
            return 45.0 if k < ONSET else (45.0, 79.0)

        t.add(xids(t, codes, when_none=None))
        t.run(ONSET - 1)
        assert t.ever_suspect() == set()
        assert suspects(t.run(3)) == [BAD]

    def test_all_gpus_of_a_node_vanish_and_one_code_stays(self):
        t = training(without=[POWER, TEMP, UTIL, SMI_POWER])

        def lost(k, n, g):
            return np.nan if n == BAD and k >= ONSET else None

        for name in (POWER, TEMP, UTIL):
            t.add(gpu_gauge(t, name, 97, 1, lost))
        t.add(gpu_gauge(t, SMI_POWER, 800, 8, lost, labels=smi_labels))

        def codes(k, n, g):
            if n != BAD or k < ONSET:
                return None
            return 119.0 if g == 0 else np.nan

        t.add(xids(t, codes, err_labels=False))
        last = t.run(ONSET + 14)
        assert suspects(last) == [BAD]
        layers = {e.layer for e in evidence_of(last, BAD)}
        assert {Layer.DIRECT, Layer.ABSENCE} <= layers
        assert "exporter_down" not in t.kinds_of_quality()

    def test_an_exporter_that_stops_to_send_zeros_is_no_event(self):
        t = training()
        t.add(xids(t, lambda k, n, g: np.nan if k >= ONSET else None))
        last = t.run(ONSET + 20)
        assert t.ever_suspect() == set()
        assert {v.status for v in last.verdicts} == {Status.CLEAR}


def failure_labels(node, method):
    return {**agent_labels(node), "method": method, "exception": "TimeoutError"}


def test_a_failure_counter_that_appears_with_one_is_a_rise_of_one():
    t = training(without=[TASKS])
    t.add(tasks(t, lambda k, n: 300 if n == BAD and k >= ONSET else None))
    t.add(lambda k, n: [(FAILED_RPC, failure_labels(n, "ping"), 1.0)] if n == BAD and k >= ONSET else [])
    last = t.run(ONSET + 12)
    found = [e for e in evidence_of(last, BAD) if e.metric == FAILED_RPC]
    assert len(found) == 1
    assert "rose by 1 " in found[0].reason


def test_a_failure_counter_that_appears_on_all_nodes_counts_for_nobody():
    t = training()
    t.add(lambda k, n: [(FAILED_RPC, failure_labels(n, "ping"), 1.0)] if k >= ONSET else [])
    t.run(ONSET + 12)
    assert all(not v.evidence for o in t.outcomes for v in o.verdicts)


def test_blank_values_are_dropped_and_never_a_deviation():
    t = training()
    t.run(30)
    blanks = [9223372036854775794, 2147483632, 1.40737488355328e14, "NaN", "Infinity", "-Infinity"]
    for k in range(12):
        at = t.at(31 + k)
        rows = []
        for n, node in enumerate(t.nodes):
            for g in range(4):
                value = blanks[k % len(blanks)] if n == 3 else 800 + (n + g + k) % 7
                rows.append((POWER, gpu_labels(node, g), [value], [at - 3]))
            rows.append((LOAD, node_labels(node), [40 + (n + k) % 3], [at - 3]))
        feed_lines(t, rows, at)
    assert t.ever_suspect() == set()
    assert not any(e for o in t.outcomes for v in o.verdicts for e in v.evidence if e.layer is Layer.PEER)


def test_a_gpu_whose_readings_all_go_blank_is_a_lost_gpu():
    t = training(without=[SMI_POWER])
    t.run(30)
    for k in range(16):
        at = t.at(31 + k)
        rows = []
        for n, node in enumerate(t.nodes):
            for g in range(4):
                for name, level in ((POWER, 800), (TEMP, 61), (UTIL, 97)):
                    value = 9223372036854775794 if (node, g) == (BAD, 2) else level + (n + g + k) % 3
                    rows.append((name, gpu_labels(node, g), [value], [at - 3]))
            rows.append((LOAD, node_labels(node), [40 + (n + k) % 3], [at - 3]))
            rows.append((TASKS, agent_labels(node), [47 + (n + k) % 3], [at - 3]))
        last = feed_lines(t, rows, at)
    assert suspects(last) == [BAD]
    assert last.verdicts[0].part == "gpu 2"
    assert {e.layer for e in last.verdicts[0].evidence} == {Layer.ABSENCE}


def test_a_metric_that_is_zero_on_all_members_says_nothing():
    t = training()
    t.add(gpu_gauge(t, COPY, 0, 0)).add(gpu_gauge(t, NVLINK, 0, 0))
    last = t.run(80)
    assert t.ever_suspect() == set()
    assert {v.status for v in last.verdicts} == {Status.CLEAR}


def test_readings_of_zero_that_failed_are_missing_and_the_twin_goes_on():
    t = training(without=[POWER, TEMP])
    for name, level in ((POWER, 800), (TEMP, 61), (CLOCK, 1965)):
        t.add(gpu_gauge(t, name, level, 1, lambda k, n, g: 0.0 if n == BAD and k >= ONSET else None))
    t.add(gpu_gauge(t, SMI_TEMP, 61, 1, labels=smi_labels))
    t.run(ONSET + 20)
    assert t.ever_suspect() == set()
    assert any(q.node == BAD for o in t.outcomes for q in o.data_quality)


def test_readings_of_zero_from_both_exporters_for_minutes_are_a_lost_gpu():
    t = training(without=[POWER, TEMP, UTIL, SMI_POWER])
    for name, level, labels in (
        (POWER, 800, gpu_labels),
        (TEMP, 61, gpu_labels),
        (SMI_POWER, 800, smi_labels),
    ):
        t.add(gpu_gauge(t, name, level, 1, only(BAD, 2, 0.0), labels=labels))
    last = t.run(ONSET + 14)
    assert suspects(last) == [BAD]
    assert last.verdicts[0].part == "gpu 2"


def test_a_constant_group_with_one_member_far_off_has_a_finite_score():
    t = training(without=[TASKS, LOAD])
    t.add(tasks(t, lambda k, n: 500 if n == BAD and k >= ONSET else 47))
    t.add(gauge(t, LOAD, 40, 0, lambda k, n: 400.0 if n == BAD and k >= ONSET else 40.0))
    last = t.run(ONSET + 12)
    assert suspects(last) == [BAD]
    assert all(np.isfinite(e.score) for e in evidence_of(last, BAD))


def test_a_sensor_stuck_at_a_huge_value_does_not_hide_another_node():
    t = training(30, without=[TASKS])
    t.add(tasks(t, lambda k, n: {"gpu009": 1e12, BAD: 47.0 + 8 * 12}.get(n) if k >= ONSET else None))
    last = t.run(ONSET + 12)
    for node in ("gpu009", BAD):
        found = evidence_of(last, node)
        assert [e.metric for e in found] == [TASKS]
        assert np.isfinite(found[0].score)


@pytest.mark.parametrize("seed", [1, 2])
def test_numbers_of_any_size_give_finite_scores(seed):
    t = training(6, seed)
    extremes = [1.7e308, -1.7e308, 1e300, 5e-324, 0.0, -1.0, 1e15, 2.0**53, -125000.0, 3.3]

    def source(k, n):
        points = [(name, gpu_labels(n, 0), float(t.rng.choice(extremes))) for name in (NVLINK, COPY, USED)]
        drawn = float(t.rng.normal()) * 10.0 ** int(t.rng.integers(-300, 300))
        return [
            *points,
            ("node_load5", node_labels(n), drawn),
            ("node_load15", node_labels(n), 1e308 if n == BAD else 1.0),
            ("node_forks_total", node_labels(n), k * 1e306),
            ("node_context_switches_total", node_labels(n), float(t.rng.choice(extremes))),
        ]

    t.add(source)
    t.run(60)
    for outcome in t.outcomes:
        for verdict in outcome.verdicts:
            assert np.isfinite(verdict.score)
            for e in verdict.evidence:
                numbers = [e.score, e.value, e.peer_median, *(e.band or ())]
                assert np.isfinite([x for x in numbers if x is not None]).all()


class TestCounters:
    NAMES = ("node_disk_io_time_seconds_total", "node_network_receive_bytes_total", "node_forks_total")

    def with_counters(self, change):
        t = training()

        def labelled(name):
            device = {"node_disk": {"device": "nvme0n1"}, "node_netw": {"device": "net0"}}.get(name[:9], {})
            return lambda node: {**node_labels(node), **device}

        for name, rate in zip(self.NAMES, (0.3, 2e8, 5.0), strict=True):
            t.add(counter(t, name, rate, rate / 50, labelled(name), change))
        return t

    def test_a_reset_of_all_counters_is_no_deviation(self):
        t = self.with_counters(lambda k, n: ("reset", 3.0) if n == BAD and k == ONSET else None)
        t.run(ONSET + 15)
        assert t.ever_suspect() == set()
        assert not any(v.evidence for o in t.outcomes for v in o.verdicts)
        assert all(
            np.nanmin(view.value) >= 0 and np.nanmax(view.value) < 1e9
            for name in self.NAMES
            for view in t.pipeline.series_view(SeriesQuery(BAD, name))
        )

    def test_a_reboot_of_six_minutes_leaves_no_peer_evidence_behind(self):
        t = self.with_counters(None)
        reborn = {}

        def after_reboot(source):
            def wrapped(k, n):
                if n == BAD and ONSET <= k < ONSET + 12:
                    return []
                points = source(k, n)
                if n != BAD or k < ONSET + 12:
                    return points
                base = {}
                for name, _, value in points:
                    if name.endswith("_total"):
                        reborn.setdefault(name, value - 5.0)
                    base[name] = reborn.get(name, 0.0)
                return [(name, labels, value - base[name]) for name, labels, value in points]

            return wrapped

        t.sources = [after_reboot(s) for s in t.sources]
        t.run(ONSET + 45)
        layers = {
            e.layer for o in t.outcomes[ONSET:] for v in o.verdicts if v.node == BAD for e in v.evidence
        }
        assert Layer.PEER not in layers
        assert suspects(t.outcomes[-1]) == []

    def test_a_wrap_at_32_bits_is_no_spike(self):
        name = "node_disk_io_time_seconds_total"
        top = 2**32 * 0.001
        t = training()
        totals = {n: top - 300.0 - 20 * i for i, n in enumerate(t.nodes)}

        def source(k, n):
            totals[n] = (totals[n] + 0.3 * STEP) % top
            return [(name, {**node_labels(n), "device": "nvme0n1"}, totals[n])]

        t.add(source)
        t.run(70)
        assert t.ever_suspect() == set()
        values = np.concatenate([t.pipeline.series_view(SeriesQuery(n, name))[0].value for n in t.nodes])
        assert np.nanmax(np.abs(values - 0.3)) < 0.01


def test_an_error_counter_that_cannot_count_on_is_told():
    name = "node_infiniband_port_errors_received_total"
    t = training()
    t.add(lambda k, n: [(name, ib_labels("mlx5_3")(n), 65535.0 if n == BAD else 12.0)])
    t.run(30)
    assert t.ever_suspect() == set()
    told = [q for q in t.outcomes[-1].data_quality if q.kind == "saturated"]
    assert [q.node for q in told] == [BAD]
    assert name in told[0].reason
    assert "mlx5_3" in told[0].reason


@pytest.mark.parametrize("top", [10_000.0, 254.0])
def test_an_error_counter_that_counts_beyond_the_usual_range_is_not_full(top):
    t = training()
    name = "node_infiniband_link_downed_total"
    t.add(lambda k, n: [(name, ib_labels("mlx5_3")(n), top + max(0, k - 28) if n == BAD else 12.0)])
    t.run(30)
    assert "saturated" not in t.kinds_of_quality()


def test_packets_marked_bad_elsewhere_do_not_name_the_node():
    name = "node_infiniband_port_receive_remote_physical_errors_total"
    t = training()
    t.add(counter(t, name, 0, 0, ib_labels("mlx5_3"), lambda k, n: 40.0 if n == BAD and k >= ONSET else 0.0))
    t.run(ONSET + 40)
    assert t.ever_suspect() == set()


def test_replays_that_rise_on_every_gpu_are_normal_and_old_remaps_too():
    t = training()
    total = {}

    def source(k, n):
        points = []
        for g in range(4):
            total[n, g] = total.get((n, g), 500.0) + float(t.rng.integers(1, 20))
            points.append((REPLAY, gpu_labels(n, g), total[n, g]))
            points.append((REMAPPED, gpu_labels(n, g), 8.0 if (n, g) == (BAD, 1) else 0.0))
        return points

    t.add(source)
    t.run(120)
    assert t.ever_suspect() == set()


def test_the_scrapes_of_one_node_becoming_slow_alone_are_no_suspect():
    t = training()

    def source(k, n):
        slow = n == BAD and k >= ONSET
        value = 9.8 + 0.2 * t.rng.normal() if slow else 0.3 + 0.02 * t.rng.normal()
        return [("scrape_duration_seconds", scrape_labels(n, 9400, "dcgm"), value)]

    t.add(source)
    t.run(ONSET + 40)
    assert t.ever_suspect() == set()


# --- labels and identity --------------------------------------------------------------------


class TestLabels:
    def relabelled(self, change, n_ticks=40):
        """Run an ordinary pool in which `change(tick, node, labels)` rewrites the labels of GPU series."""
        t = training()
        plain = t.sources

        def rewritten(source):
            return lambda k, n: [(name, change(k, n, dict(labels)), v) for name, labels, v in source(k, n)]

        t.sources = [rewritten(s) for s in plain]
        t.run(25)
        before = set(t.pipeline.interner.nodes), t.pipeline.interner.n_cells
        last = t.run(n_ticks)
        assert t.ever_suspect() == set()
        assert (set(t.pipeline.interner.nodes), t.pipeline.interner.n_cells) == before
        assert {v.status for v in last.verdicts} == {Status.CLEAR}
        return t

    def test_hostname_in_lower_case_on_half_of_the_nodes(self):
        def change(k, n, labels):
            if k > 25 and n < "gpu006" and "Hostname" in labels:
                labels["hostname"] = labels.pop("Hostname")
            return labels

        self.relabelled(change)

    def test_an_instance_that_becomes_an_exported_one(self):
        def change(k, n, labels):
            if labels.get("job") == "all-smi" and k <= 25:
                labels["instance"] = labels.pop("exported_instance")
            return labels

        self.relabelled(change)

    def test_version_pod_service_and_driver_are_no_new_member(self):
        def change(k, n, labels):
            labels["pod"] = f"exporter-{k // 10}"
            labels["DCGM_FI_DRIVER_VERSION"] = "570.1" if k < 30 else "580.2"
            labels["service_id"] = f"{n}-{k // 15}"
            labels["version"] = "1" if k < 33 else "2"
            return labels

        self.relabelled(change)

    def test_a_gpu_swapped_for_another_goes_on_in_its_slot(self):
        def change(k, n, labels):
            if k > 25 and n == BAD:
                for name in ("UUID", "gpu_uuid"):
                    if labels.get(name, "").endswith("-2"):
                        labels[name] = "GPU-new"
            return labels

        t = self.relabelled(change)
        assert "part_changed" in t.kinds_of_quality()

    def test_the_old_errors_of_a_new_gpu_are_no_new_errors(self):
        t = training()

        def source(k, n):
            points = []
            for g in range(4):
                swapped = (n, g) == (BAD, 2) and k >= ONSET
                labels = gpu_labels(n, g) | ({"UUID": "GPU-new"} if swapped else {})
                points.append(("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", labels, 6.0 if swapped else 0.0))
            return points

        t.add(source)
        t.run(ONSET + 20)
        assert t.ever_suspect() == set()

    def test_two_exporters_of_one_gpu_are_one_member(self):
        t = training(without=[POWER])
        cells = []

        def source(k, n):
            points = []
            for g in range(4):
                value = 800 + 8 * float(t.rng.normal())
                points.append((POWER, {**gpu_labels(n, g), "pod": "exporter-a"}, value))
                if 20 <= k < 45:
                    points.append((POWER, {**gpu_labels(n, g), "pod": "exporter-b"}, value))
            return points

        t.add(source)
        t.run(19)
        cells.append(t.pipeline.interner.n_cells)
        t.run(40)
        cells.append(t.pipeline.interner.n_cells)
        assert cells[0] == cells[1]
        assert t.ever_suspect() == set()
        assert int((t.pipeline.interner.component_copies > 1).sum()) == 40

    def test_slices_of_a_gpu_are_left_out_with_a_reason(self):
        t = training(without=[UTIL])

        def source(k, n):
            if n != BAD:
                return [(UTIL, gpu_labels(n, g), 97 + float(t.rng.normal())) for g in range(4)]
            return [(UTIL, {**gpu_labels(n, g), "GPU_I_ID": str(i)}, 3.0) for g in range(4) for i in (1, 2)]

        t.add(source)
        t.run(60)
        assert t.ever_suspect() == set()
        assert t.pipeline.interner.refused["MIG slice"] == 8

    def test_ethernet_among_infiniband_is_compared_with_nobody_but_itself(self):
        t = training()
        rate, state = "node_infiniband_rate_bytes_per_second", "node_infiniband_state_id"
        for device in ("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_8"):
            is_ethernet = device == "mlx5_8"
            level = 1e7 if is_ethernet else 2e10
            t.add(counter(t, IB, level, level / 100, ib_labels(device)))
            speed, port = (1.25e10, 1.0) if is_ethernet else (5e10, 4.0)
            t.add(lambda k, n, d=device, s=speed: [(rate, ib_labels(d)(n), s)])
            t.add(lambda k, n, d=device, p=port: [(state, ib_labels(d)(n), p)])
        t.run(80)
        assert t.ever_suspect() == set()
        assert not any(v.evidence for o in t.outcomes for v in o.verdicts)

    def test_connections_of_one_mount_are_summed(self):
        name = "node_mountstats_nfs_transport_sends_total"
        t = training()
        total = {}

        def source(k, n):
            split = 4 if n < "gpu006" and k >= 30 else 1
            points = []
            for c in range(split):
                key = (n, split, c)
                total[key] = total.get(key, 0.0) + 3000.0 / split
                labels = {**node_labels(n), "export": "nfs1:/data", "protocol": "tcp"}
                if split > 1:
                    labels["transport"] = str(c)
                points.append((name, labels, total[key]))
            return points

        t.add(source)
        t.run(80)
        assert t.ever_suspect() == set()
        assert value_of(t, "gpu002", name, "nfs1:/data") == pytest.approx(100.0)
        assert not any(v.evidence for o in t.outcomes for v in o.verdicts)

    @pytest.mark.parametrize(
        "text", ['nfs:/"a"', "nfs:/a\nb", "nfs:/" + "x" * 900, "nfs:/\u00e4\u4e2d\U0001f600", "\\"]
    )
    def test_any_text_in_a_label_passes_through(self, text):
        name = "node_mountstats_nfs_read_bytes_total"
        t = training(5)
        t.run(2)
        for k in range(3, 6):
            at = t.at(k)
            rows = [(name, {**node_labels(n), "export": text}, [1e6 * k], [at - 2]) for n in t.nodes]
            feed_lines(t, rows, at)
        part = t.pipeline.interner.parts[-1]
        assert len(part) <= 200
        assert part.isprintable()

    def test_huge_label_values_are_refused_and_counted(self):
        t = training(5)
        t.run(2)
        labels = {**node_labels("gpu001"), "export": "x" * 10_000}
        feed_lines(t, [("node_mountstats_nfs_read_bytes_total", labels, [1.0], [t.at(3) - 2])], t.at(3))
        assert t.pipeline.interner.refused["label value too long"] == 1

    def test_an_index_that_closes_up_names_the_slot_that_was_lost(self):
        t = training(without=[POWER, TEMP, UTIL, SMI_POWER])

        def present(k, n):
            return [g for g in range(4) if not ((n, g) == (BAD, 1) and k >= ONSET)]

        def dcgm(name, level):
            def source(k, n):
                points = []
                for place, g in enumerate(present(k, n)):
                    labels = gpu_labels(n, g) | {"gpu": str(place), "device": f"nvidia{place}"}
                    points.append((name, labels, level * (1 + 0.1 * g) + float(t.rng.normal())))
                return points

            return source

        def smi(k, n):
            return [
                (
                    SMI_POWER,
                    smi_labels(n, g) | {"gpu_index": str(place)},
                    800 * (1 + 0.1 * g) + float(t.rng.normal()),
                )
                for place, g in enumerate(present(k, n))
            ]

        t.add(dcgm(POWER, 800)).add(dcgm(TEMP, 60)).add(smi)
        last = t.run(ONSET + 14)
        assert suspects(last) == [BAD]
        assert last.verdicts[0].part == "gpu 1"
        assert {e.layer for e in evidence_of(last, BAD)} == {Layer.ABSENCE}

    def test_an_address_given_to_another_machine_blames_neither(self):
        t = training(without=[POWER])

        def source(k, n):
            if n not in ("gpu004", "gpu005"):
                address = n
            elif k < ONSET:
                address = "10.0.3.7" if n == "gpu004" else "10.0.3.8"
            else:
                address = "10.0.3.9" if n == "gpu004" else "10.0.3.7"
            return [
                (POWER, {**gpu_labels(n, g), "instance": f"{address}:9400"}, 800 + 8 * float(t.rng.normal()))
                for g in range(4)
            ]

        t.add(source)
        last = t.run(ONSET + 30)
        assert t.ever_suspect() == set()
        assert {v.node for v in last.verdicts} == set(t.nodes)


class TestNames:
    """Series that name their node by address only, until the host's own name is known."""

    def nameless(self, named_from, *, renamed=None, change=None):
        t = training(without=[TASKS])
        t.add(tasks(t, change))
        address = {n: f"10.0.0.{i + 1}" for i, n in enumerate(t.nodes)}

        def bare(source):
            def points(k, n):
                found = []
                for name, labels, value in source(k, n):
                    kept = {a: b for a, b in labels.items() if a not in ("Hostname", "exported_instance")}
                    kept.pop("display_name", None)
                    kept["instance"] = f"{address[n]}:{labels['instance'].rsplit(':', 1)[1]}"
                    found.append((name, kept, value))
                return found

            return points

        t.sources = [bare(s) for s in t.sources]

        def uname(k, n):
            if k < named_from:
                return []
            name = renamed[1] if renamed and n == renamed[0] and k >= renamed[2] else n
            labels = {"instance": f"{address[n]}:9100", "job": "node", "nodename": name}
            return [("node_uname_info", labels, 1.0)]

        return t.add(uname)

    def test_names_learnt_late_leave_no_second_node_behind(self):
        t = self.nameless(30)
        last = t.run(29)
        assert {v.node for v in last.verdicts} == {f"10.0.0.{i + 1}" for i in range(10)}
        last = t.run(20)
        assert {v.node for v in last.verdicts} == set(t.nodes)
        assert {v.status for v in last.verdicts} == {Status.CLEAR}
        assert t.kinds_of_quality() == set()

    def test_an_incident_goes_on_under_the_better_name(self):
        t = self.nameless(
            ONSET + 20, change=lambda k, n: 869 if n == BAD and ONSET <= k < ONSET + 40 else None
        )
        assert suspects(t.run(ONSET + 19)) == ["10.0.0.4"]
        last = t.run(10)
        assert [(i.node, i.state) for i in last.incidents] == [(BAD, "suspect")]
        last = t.run(60)
        assert last.incidents == ()
        named = [x for o in t.outcomes for x in o.transitions if x.after == "suspect"]
        assert [x.node for x in named] == ["10.0.0.4"]
        assert len({x.incident_id for o in t.outcomes for x in o.transitions}) == 1

    def test_a_node_that_is_renamed_is_one_node(self):
        t = self.nameless(1, renamed=(BAD, "gpu077", ONSET))
        last = t.run(ONSET + 40)
        assert t.ever_suspect() == set()
        assert {v.node for v in last.verdicts} == set(t.nodes) - {BAD} | {"gpu077"}
        assert t.kinds_of_quality() == {"identity_conflict"}


# --- time and database ----------------------------------------------------------------------


class TestTime:
    def rows(self, t, k, *, nodes=None, age=lambda node: 3.0, hold=1):
        at = t.at(k)
        rows = []
        for n, node in enumerate(t.nodes):
            if nodes is not None and node not in nodes:
                continue
            stamp = at - age(node)
            for g in range(4):
                level = 800 + ((k // hold) * 7 + n * 5 + g * 3) % 11
                rows.append((POWER, gpu_labels(node, g), [level], [stamp]))
                rows.append((SMI_POWER, smi_labels(node, g), [level + 1], [stamp]))
            rows.append((LOAD, node_labels(node), [40 + (k + n) % 4], [stamp]))
        return rows

    def test_phases_and_values_that_an_exporter_keeps_for_two_scrapes(self):
        t = Telemetry(10)
        for k in range(1, 70):
            feed_lines(t, self.rows(t, k, age=lambda n: 1.0 + 3 * t.nodes.index(n), hold=2), t.at(k))
        assert t.ever_suspect() == set()
        assert {v.status for v in t.outcomes[-1].verdicts} == {Status.CLEAR}
        assert t.kinds_of_quality() == set()

    def test_lines_in_any_order_with_two_values_at_one_time_give_one_answer(self):
        def run(shuffle):
            t = Telemetry(8)
            rng = np.random.default_rng(5)
            for k in range(1, 40):
                rows = self.rows(t, k) + self.rows(t, k)
                rows += [(n, labels, [v[0] + 0.25], s) for n, labels, v, s in self.rows(t, k)[:20]]
                if shuffle:
                    rows = [rows[i] for i in rng.permutation(len(rows))]
                feed_lines(t, rows, t.at(k))
            return t

        one, other = run(False), run(True)
        assert one.ever_suspect() == other.ever_suspect() == set()
        for node in one.nodes:
            for part in ("gpu 0", "gpu 3"):
                a = one.pipeline.series_view(SeriesQuery(node, POWER, part))[0].value
                b = other.pipeline.series_view(SeriesQuery(node, POWER, part))[0].value
                assert np.array_equal(a, b)

    def test_partial_answers_clear_nobody_by_what_is_missing(self):
        t = training(without=[TASKS, POWER])
        t.add(tasks(t, lambda k, n: 869 if n == BAD and k >= ONSET else None))
        t.add(gpu_gauge(t, POWER, 800, 8))
        assert suspects(t.run(ONSET + 12)) == [BAD]
        t.sources = [s for s in t.sources if s(1, "gpu001") and s(1, "gpu001")[0][0] != TASKS]
        last = t.run(60, partial=True)
        assert last.is_partial
        assert suspects(last) == [BAD]

    def test_a_database_gap_that_is_filled_late_raises_no_flags(self):
        t = Telemetry(10)
        for k in range(1, 40):
            feed_lines(t, self.rows(t, k), t.at(k))
        for k in range(40, 52):
            feed_lines(t, [], t.at(k))
        assert {v.status for v in t.outcomes[-1].verdicts} == {Status.UNDETERMINED}
        late = [row for k in range(40, 53) for row in self.rows(t, k)]
        feed_lines(t, late, t.at(52), window_s=900)
        for k in range(53, 80):
            feed_lines(t, self.rows(t, k), t.at(k))
        assert t.ever_suspect() == set()
        assert {v.status for v in t.outcomes[-1].verdicts} == {Status.CLEAR}

    def test_a_newest_step_that_is_not_complete_is_judged_by_the_age_of_each_sample(self):
        t = Telemetry(12)
        rng = np.random.default_rng(3)
        for k in range(1, 80):
            there = {n for n in t.nodes if k == 1 or rng.random() < 0.65}
            rows = self.rows(t, k, nodes=there)
            # What was not scraped in time for this evaluation comes with the next one.
            missed = getattr(self, "_missed", [])
            feed_lines(t, missed + rows, t.at(k))
            self._missed = self.rows(t, k, nodes=set(t.nodes) - there)
        assert t.ever_suspect() == set()

    def test_a_node_whose_data_comes_late_is_a_suspect_only_while_they_are_missing(self):
        t = Telemetry(10)
        for k in range(1, 40):
            feed_lines(t, self.rows(t, k), t.at(k))
        others = set(t.nodes) - {BAD}
        for k in range(40, 76):
            feed_lines(t, self.rows(t, k, nodes=others), t.at(k))
        last = t.outcomes[-1]
        assert suspects(last) == [BAD]
        assert evidence_of(last, BAD)[0].layer is Layer.ABSENCE
        late = [row for k in range(40, 76) for row in self.rows(t, k, nodes={BAD})]
        feed_lines(t, late + self.rows(t, 76), t.at(76), window_s=1500)
        for k in range(77, 120):
            feed_lines(t, self.rows(t, k), t.at(k))
        assert suspects(t.outcomes[-1]) == []
        steps = [x.after for o in t.outcomes for x in o.transitions if x.node == BAD]
        assert steps == ["pending", "suspect", "cleared"]

    def test_samples_from_the_future_do_not_count_as_the_newest(self):
        t = Telemetry(10)
        for k in range(1, 40):
            feed_lines(t, self.rows(t, k), t.at(k))
        for k in range(40, 60):
            rows = self.rows(t, k, age=lambda n: -3900.0 if n == BAD else 3.0)
            batch_rows = rows + self.rows(t, k, nodes={BAD})
            feed_lines(t, batch_rows, t.at(k))
        assert t.ever_suspect() == set()
        assert {v.status for v in t.outcomes[-1].verdicts} == {Status.CLEAR}


# --- exporters and absence ------------------------------------------------------------------


class TestExporters:
    def with_up(self, t, down, *, job="dcgm", port=9400, samples=400.0):
        """Series of the scraper: `down(tick, node)` gives "down", "empty" or None."""

        def source(k, n):
            state = down(k, n)
            labels = scrape_labels(n, port, job)
            return [
                ("up", labels, 0.0 if state == "down" else 1.0),
                ("scrape_samples_scraped", labels, 0.0 if state else samples),
                ("scrape_duration_seconds", labels, 10.0 if state == "down" else 0.3),
            ]

        return t.add(source)

    def lossy(self, lost, **kwargs):
        """A pool whose DCGM series are missing where `lost(tick, node)`."""
        t = training(without=[POWER, TEMP, UTIL], **kwargs)
        for name, level in ((POWER, 800), (TEMP, 61), (UTIL, 97)):
            t.add(gpu_gauge(t, name, level, 1, lambda k, n, g: np.nan if lost(k, n) else None))
        return t

    def test_an_exporter_that_answers_errors_is_an_exporter_fault(self):
        def lost(k, n):
            return n == BAD and k >= ONSET

        t = self.with_up(self.lossy(lost), lambda k, n: "down" if lost(k, n) else None)
        t.run(ONSET + 30)
        assert t.ever_suspect() == set()
        told = [q for q in t.outcomes[-1].data_quality if q.kind == "exporter_down"]
        assert [q.node for q in told] == [BAD]
        assert "dcgm" in told[0].reason

    def test_an_exporter_that_never_had_a_gpu_is_told_and_its_node_is_not_healthy(self):
        def lost(k, n):
            return n == BAD

        t = self.with_up(self.lossy(lost), lambda k, n: "empty" if lost(k, n) else None)
        last = t.run(60)
        assert t.ever_suspect() == set()
        told = [q for q in last.data_quality if q.node == BAD]
        assert told
        assert "dcgm" in told[0].reason

    def test_random_failures_of_scrapes_are_no_evidence(self):
        rng = np.random.default_rng(9)
        failed = {(k, f"gpu{n:03d}") for k in range(120) for n in range(1, 11) if rng.random() < 0.33}

        def lost(k, n):
            return (k, n) in failed

        t = self.with_up(self.lossy(lost), lambda k, n: "down" if lost(k, n) else None)
        t.run(119)
        assert t.ever_suspect() == set()

    def test_a_profiler_that_takes_counters_away_is_told_and_blames_nobody(self):
        t = training()
        for name, level in ((COPY, 40), (NVLINK, 180_000)):
            t.add(
                gpu_gauge(
                    t, name, level, level / 100, lambda k, n, g: np.nan if n == BAD and 40 <= k < 80 else None
                )
            )
        during = t.run(60)
        assert any(q.node == BAD and q.kind == "metrics_missing" for q in during.data_quality)
        last = t.run(60)
        assert t.ever_suspect() == set()
        assert last.data_quality == ()

    @pytest.mark.parametrize(("value", "shown"), [(1e18, "1e+18"), (0.0, "0")])
    @pytest.mark.parametrize("every", [1, 2])
    def test_a_value_that_cannot_be_is_not_called_gone(self, value, shown, every):
        t = training()

        def level(k, n, g):
            broken = n == BAD and 40 <= k < 80
            return (value if k % every == 0 else np.nan) if broken else None

        t.add(gpu_gauge(t, MEMORY_TEMP, 61, 0.6, level))
        during = t.run(60)
        assert [(q.kind, q.node, q.reason) for q in during.data_quality] == [
            ("metrics_missing", BAD, f"{MEMORY_TEMP} reports values that cannot be, e.g. {shown}")
        ]
        last = t.run(60)
        assert t.ever_suspect() == set()
        assert last.data_quality == ()

    def test_values_that_cannot_be_are_told_beside_what_is_gone_and_once_for_all_nodes(self):
        t = training()
        t.add(gpu_gauge(t, MEMORY_TEMP, 61, 0.6, lambda k, n, g: 1e18 if k >= 40 else None))
        t.add(gpu_gauge(t, COPY, 40, 0.4, lambda k, n, g: 1e18 if n == BAD and k >= 40 else None))
        t.add(gpu_gauge(t, NVLINK, 180_000, 1800, lambda k, n, g: np.nan if n == BAD and k >= 40 else None))
        told = sorted((q.node, q.reason) for q in t.run(60).data_quality)
        n = len(t.nodes)
        assert told == [
            ("", f"{MEMORY_TEMP} reports values that cannot be on {n} of {n} nodes, e.g. 1e+18"),
            (
                BAD,
                f"{COPY} reports values that cannot be, e.g. 1e+18; "
                f"{NVLINK} is gone while the exporter goes on",
            ),
        ]

    def test_a_rolling_upgrade_that_loses_a_metric_blames_nobody(self):
        t = training(without=[POWER, TEMP])

        def upgraded(k, n):
            return k >= 40 and int(n[3:]) <= min(6, (k - 40) // 3)

        def source(name, level):
            def points(k, n):
                found = []
                for g in range(4):
                    labels = gpu_labels(n, g)
                    if upgraded(k, n):
                        if name == USED:
                            continue
                        labels["hostname"] = labels.pop("Hostname")
                    found.append((name, labels, level * (1 + 0.01 * float(t.rng.normal()))))
                return found

            return points

        t.add(source(POWER, 800)).add(source(USED, 168_000)).add(source(TEMP, 61))
        last = t.run(90)
        assert t.ever_suspect() == set()
        assert {v.node for v in last.verdicts} == set(t.nodes)
        assert "metrics_missing" in t.kinds_of_quality()

    def test_a_new_target_that_was_never_up_is_not_absent(self):
        t = training()
        plain = t.sources

        def late(source):
            return lambda k, n: [] if n == BAD and k < ONSET + 4 else source(k, n)

        t.sources = [late(s) for s in plain]
        self.with_up(t, lambda k, n: "down" if n == BAD and k < ONSET + 4 else None)
        t.sources[-1] = (lambda s: lambda k, n: [] if n == BAD and k < ONSET else s(k, n))(t.sources[-1])
        last = t.run(ONSET + 60)
        assert t.ever_suspect() == set()
        assert {v.status for v in last.verdicts} == {Status.CLEAR}

    def test_collectors_that_report_no_success_one_node_after_another(self):
        name = "node_scrape_collector_success"
        t = training()
        t.add(
            lambda k, n: [
                (name, {**node_labels(n), "collector": "mdadm"}, 0.0 if k >= 30 + 4 * int(n[3:]) else 1.0),
                (name, {**node_labels(n), "collector": "cpu"}, 1.0),
            ]
        )
        t.run(100)
        assert t.ever_suspect() == set()

    def test_a_node_that_never_had_its_peers_devices_is_told(self):
        t = training()
        for device in ("mlx5_0", "mlx5_1", "mlx5_2"):
            source = counter(t, IB, 2e10, 2e8, ib_labels(device))
            t.add(lambda k, n, s=source: [] if n == BAD else s(k, n))
        last = t.run(60)
        assert t.ever_suspect() == set()
        told = [q for q in last.data_quality if q.node == BAD]
        assert len(told) == 1
        assert "3 " in told[0].reason

    def test_a_suspect_whose_series_all_vanish_stays_one_and_the_reason_says_so(self):
        t = training(without=[POWER, TASKS])
        t.add(gpu_gauge(t, POWER, 800, 8, lambda k, n, g: 400 if n == BAD and k >= ONSET else None))
        t.add(tasks(t, lambda k, n: 500 if n == BAD and k >= ONSET else None))
        assert suspects(t.run(ONSET + 12)) == [BAD]
        plain = t.sources
        t.sources = [lambda k, n, s=s: [] if n == BAD else s(k, n) for s in plain]
        last = t.run(60)
        assert suspects(last) == [BAD]
        assert evidence_of(last, BAD)[0].layer is Layer.ABSENCE
        named = [x for o in t.outcomes for x in o.transitions if x.after == "suspect"]
        assert len(named) == 1


# --- peers ----------------------------------------------------------------------------------


class TestPeers:
    @pytest.mark.parametrize("onset", [0, ONSET])
    def test_two_halves_blame_nobody(self, onset):
        t = training(10, without=[POWER, CLOCK])
        half = {f"gpu{k:03d}" for k in range(1, 6)}

        def other(low):
            return lambda k, n, g: low + t.rng.normal() if n in half and k >= onset else None

        t.add(gpu_gauge(t, POWER, 800, 8, other(600))).add(gpu_gauge(t, CLOCK, 1965, 5, other(1700)))
        t.run(onset + 100)
        assert t.ever_suspect() == set()

    def test_a_majority_of_one_does_not_blame_the_others(self):
        t = training(11, without=[POWER, CLOCK])
        half = {f"gpu{k:03d}" for k in range(1, 6)}
        t.add(
            gpu_gauge(
                t, POWER, 800, 8, lambda k, n, g: 600 + t.rng.normal() if n in half and k >= ONSET else None
            )
        )
        t.run(ONSET + 60)
        assert t.ever_suspect() == set()

    def test_a_restart_of_the_job_blames_nobody_and_hardware_still_counts(self):
        t = training(without=[POWER, UTIL, SMI_POWER, TEMP])

        def idle(k, n):
            return ONSET <= k < ONSET + 10 + int(n[3:]) % 6

        t.add(gpu_gauge(t, UTIL, 97, 1, lambda k, n, g: 0.0 if idle(k, n) else None))
        for name, labels in ((POWER, gpu_labels), (SMI_POWER, smi_labels)):
            t.add(
                gpu_gauge(
                    t,
                    name,
                    800,
                    8,
                    lambda k, n, g: 180 + t.rng.normal() if idle(k, n) else None,
                    labels=labels,
                )
            )
        t.add(gpu_gauge(t, TEMP, 61, 1, lambda k, n, g: 38 + t.rng.normal() if idle(k, n) else None))
        t.add(xids(t, lambda k, n, g: 79.0 if (n, g) == ("gpu007", 3) and k >= ONSET + 60 else None))
        t.run(ONSET + 59)
        assert t.ever_suspect() == set()
        assert suspects(t.run(2)) == ["gpu007"]

    def test_hardware_errors_count_while_the_job_is_down(self):
        t = training(without=[POWER, UTIL])
        t.add(gpu_gauge(t, UTIL, 97, 1, lambda k, n, g: 0.0 if k >= ONSET else None))
        t.add(gpu_gauge(t, POWER, 800, 8, lambda k, n, g: 180 + t.rng.normal() if k >= ONSET else None))
        t.add(xids(t, lambda k, n, g: 79.0 if (n, g) == ("gpu007", 3) and k >= ONSET + 3 else None))
        assert suspects(t.run(ONSET + 4)) == ["gpu007"]

    def test_a_checkpoint_written_by_a_sixth_of_the_nodes_blames_nobody(self):
        writers = {f"gpu{k:03d}" for k in range(1, 6)}
        t = training(30)
        name = "node_mountstats_nfs_write_bytes_total"

        def rate(k, n):
            return 3e10 if n in writers and k % 40 < 4 else 1e6 * (1 + 0.1 * t.rng.normal())

        t.add(counter(t, name, 0, 0, lambda n: {**node_labels(n), "export": "nfs1:/c"}, rate))
        t.run(170)
        assert t.ever_suspect() == set()

    def test_one_node_alone_is_undetermined(self):
        t = training(1)
        last = t.run(60)
        assert [v.status for v in last.verdicts] == [Status.UNDETERMINED]
        assert "peers" in last.verdicts[0].reason

    def test_a_port_that_is_down_on_all_nodes_is_unused_and_one_that_goes_down_is_not(self):
        name = "node_infiniband_state_id"
        t = training()
        t.add(lambda k, n: [(name, ib_labels("mlx5_8")(n), 1.0)])
        t.add(lambda k, n: [(name, ib_labels("mlx5_2")(n), 1.0 if n == BAD and k >= ONSET else 4.0)])
        t.run(ONSET - 1)
        assert t.ever_suspect() == set()
        last = t.run(14)
        assert suspects(last) == [BAD]
        assert last.verdicts[0].part == "mlx5_2/1"

    @pytest.mark.parametrize(("n", "named"), [(1, set()), (2, set()), (8, {BAD})])
    def test_a_clock_without_synchronisation_counts_where_peers_have_it(self, n, named):
        t = training(n)
        odd = t.nodes[-1] if n < 8 else BAD
        t.add(lambda k, m: [("node_timex_sync_status", node_labels(m), 0.0 if m == odd else 1.0)])
        t.run(40)
        assert t.ever_suspect() == named

    def test_the_one_gpu_that_left_the_collective_is_named_though_all_others_spin(self):
        t = Telemetry(12)
        t.add(
            gpu_gauge(
                t, UTIL, 97, 1, lambda k, n, g: None if k < ONSET else 0.0 if (n, g) == (BAD, 2) else 100.0
            )
        )
        t.add(gpu_gauge(t, POWER, 800, 8, lambda k, n, g: None if k < ONSET else 70 + t.rng.normal()))
        last = t.run(ONSET + 20)
        assert t.ever_suspect() == {BAD}
        assert last.verdicts[0].part == "gpu 2"

    def test_a_node_whose_links_carry_nothing_is_named(self):
        t = training()
        t.add(gpu_gauge(t, NVLINK, 180_000, 3000, lambda k, n, g: 100.0 if n == BAD and k >= ONSET else None))
        assert suspects(t.run(ONSET + 14)) == [BAD]

    def test_zero_links_like_all_peers_of_the_same_model_are_normal(self):
        t = training(12)
        pcie = {f"gpu{k:03d}" for k in range(1, 5)}
        t.add(gpu_gauge(t, NVLINK, 180_000, 3000, lambda k, n, g: 0.0 if n in pcie else None))
        t.run(100)
        assert t.ever_suspect() == set()

    def test_one_momentary_sensor_at_zero_does_not_decide(self):
        t = training()
        t.add(gpu_gauge(t, COPY, 40, 1, lambda k, n, g: 0.0 if n == BAD and k >= ONSET else None))
        t.run(ONSET + 60)
        assert t.ever_suspect() == set()

    def test_twins_that_disagree_on_one_gpu_are_data_quality(self):
        t = training(without=[UTIL])
        t.add(gpu_gauge(t, UTIL, 97, 1, only(BAD, 1, 0.0)))
        t.add(gpu_gauge(t, SMI_UTIL, 97, 1, labels=smi_labels))
        t.run(ONSET + 60)
        assert t.ever_suspect() == set()
        assert any(q.node == BAD and "gpu 1" in q.reason for o in t.outcomes for q in o.data_quality)

    def test_a_faster_node_under_the_same_load_is_no_failure(self):
        t = training(without=[POWER])
        t.add(
            gpu_gauge(
                t, POWER, 800, 8, lambda k, n, g: 1000 + t.rng.normal() if n == BAD and k >= ONSET else None
            )
        )
        t.add(
            gpu_gauge(
                t, CLOCK, 1800, 5, lambda k, n, g: 1965 + t.rng.normal() if n == BAD and k >= ONSET else None
            )
        )
        t.run(ONSET + 60)
        assert t.ever_suspect() == set()

    def test_tasks_that_pile_up_are_named_long_before_the_end(self):
        t = training(without=[TASKS])

        def piling(k, n):
            return 47 + 4.0 * (k - ONSET) + t.rng.integers(-3, 4) if n == BAD and k >= ONSET else None

        t.add(tasks(t, piling))
        last = t.run(ONSET + 60)
        assert suspects(last) == [BAD]
        named = next(x.at for o in t.outcomes for x in o.transitions if x.after == "suspect")
        assert 47 + 4.0 * (named - t.at(ONSET)) / STEP < 250

    def test_tasks_that_pile_up_everywhere_blame_nobody(self):
        t = training(without=[TASKS])
        t.add(tasks(t, lambda k, n: 47 + 4.0 * max(0, k - ONSET) * (1 + 0.1 * t.rng.normal())))
        t.run(ONSET + 100)
        assert t.ever_suspect() == set()

    def test_muted_nodes_are_no_suspects_and_no_peers(self):
        t = training(without=[TASKS], pools=PoolRules(muted=(BAD,)))
        t.add(tasks(t, lambda k, n: 900 if n == BAD and k >= ONSET else None))
        last = t.run(ONSET + 20)
        assert t.ever_suspect() == set()
        verdict = next(v for v in last.verdicts if v.node == BAD)
        assert verdict.status is Status.UNDETERMINED

    def test_most_nodes_at_once_blame_nobody(self):
        t = training(12, without=[TASKS, POWER, LOAD])
        sick = {f"gpu{k:03d}" for k in range(1, 11)}
        t.add(tasks(t, lambda k, n: 300 + 20 * int(n[3:]) if n in sick and k >= ONSET else None))
        t.add(
            gauge(t, LOAD, 40, 2, lambda k, n: 200 + 15.0 * int(n[3:]) if n in sick and k >= ONSET else None)
        )
        t.run(ONSET + 30)
        assert t.ever_suspect() == set()

    def test_one_idle_gpu_beside_busy_ones_is_named(self):
        t = Telemetry(10)
        t.add(
            gpu_gauge(
                t, UTIL, 98, 1, lambda k, n, g: None if k < ONSET else 0.0 if (n, g) == (BAD, 2) else 100.0
            )
        )
        t.add(
            gpu_gauge(
                t,
                SMI_UTIL,
                98,
                1,
                lambda k, n, g: None if k < ONSET else 0.0 if (n, g) == (BAD, 2) else 100.0,
                labels=smi_labels,
            )
        )
        t.add(gpu_gauge(t, POWER, 800, 8, lambda k, n, g: 150 + t.rng.normal() if k >= ONSET else None))
        last = t.run(ONSET + 20)
        assert suspects(last) == [BAD]
        assert last.verdicts[0].part == "gpu 2"

    def test_warmer_by_day_with_all_peers_is_no_fault(self):
        t = training(without=[TEMP])
        t.add(gpu_gauge(t, TEMP, 61, 1, lambda k, n, g: 67 - 3 * np.cos(k / 25) + t.rng.normal()))
        t.run(ONSET + 120)
        assert t.ever_suspect() == set()
        assert t.group_events() == []

    def test_twins_that_disagree_on_all_gpus_name_nobody(self):
        t = training(without=[UTIL])
        t.add(gpu_gauge(t, UTIL, 97, 1))
        t.add(gpu_gauge(t, SMI_UTIL, 97, 1, lambda k, n, g: 0.0, labels=smi_labels))
        t.run(ONSET + 40)
        assert t.ever_suspect() == set()

    def test_who_waits_least_is_named_and_not_those_who_wait_for_it(self):
        t = training(12)

        def leaves(k, n):
            return 4e6 * STEP if n == BAD and k >= ONSET else None

        t.add(counter(t, IB_WAIT, 4e8, 4e6, ib_labels("mlx5_0"), leaves))
        last = t.run(ONSET + 40)
        assert t.ever_suspect() == {BAD}
        (evidence,) = evidence_of(last, BAD)
        assert (evidence.metric, evidence.side) == (IB_WAIT, "below")

    def test_gpus_that_lost_the_label_which_told_them_apart_are_not_mixed(self):
        t = training(without=[POWER])

        def source(k, n):
            lost = ("gpu", "UUID", "device", "pci_bus_id") if n == BAD and k >= ONSET else ()
            return [
                (
                    POWER,
                    {name: value for name, value in gpu_labels(n, g).items() if name not in lost},
                    800 + 8 * float(t.rng.normal()),
                )
                for g in range(4)
            ]

        t.add(source)
        last = t.run(ONSET + 40)
        assert t.ever_suspect() == set()
        assert t.pipeline.interner.refused["label gpu missing"] > 0
        assert [(q.kind, q.node) for q in last.data_quality] == [("metrics_missing", BAD)]

    def test_a_frozen_reading_is_data_quality_and_names_nobody(self):
        t = self.frozen()
        told = [q for q in t.outcomes[-1].data_quality if q.kind == "frozen"]
        assert [q.node for q in told] == [BAD]
        assert told[0].reason == (
            f"{POWER} of gpu 1 has read 174.3 watts to the last digit for 30 min, "
            "while its peers' readings change"
        )

    def test_readings_that_stand_still_everywhere_are_how_this_metric_is(self):
        t = training(without=[POWER])
        t.add(gpu_gauge(t, POWER, 800, 0)).run(ONSET + 60)
        assert "frozen" not in t.kinds_of_quality()

    @pytest.mark.parametrize(("every", "is_told"), [(6, True), (40, False)])
    def test_scrapes_that_fail_now_and_then_are_told_by_job_and_blame_nobody(self, every, is_told):
        t = training()
        t.add(
            lambda k, n: [("up", node_labels(n), float(k < ONSET or (k + 3 * t.nodes.index(n)) % every > 0))]
        )
        last = t.run(ONSET + 60)
        told = [q for q in last.data_quality if q.kind == "scrapes_fail"]
        assert len(told) == int(is_told)
        assert all("% of the scrapes of job" in q.reason for q in told)
        assert t.ever_suspect() == set()

    def test_a_target_that_is_gone_is_no_scrape_that_fails_now_and_then(self):
        t = training()
        t.add(lambda k, n: [("up", node_labels(n), float(n != BAD or k < ONSET))])
        t.run(ONSET + 60)
        assert "scrapes_fail" not in t.kinds_of_quality()

    def frozen(self):
        t = Telemetry(10)
        idle = ONSET

        def power(k, n, g):
            if k < idle:
                return None
            return 174.3 if (n, g) == (BAD, 1) else 90 + t.rng.normal()

        t.add(gpu_gauge(t, POWER, 800, 8, power)).add(
            gpu_gauge(t, UTIL, 97, 1, lambda k, n, g: 0.0 if k >= idle else None)
        )
        t.add(gpu_gauge(t, TEMP, 61, 1, lambda k, n, g: 35 + t.rng.normal() if k >= idle else None))
        t.run(idle + 60)
        assert t.ever_suspect() == set()
        return t

    def test_a_fault_of_ninety_seconds_in_every_hundred_and_fifty_is_one_incident(self):
        t = training(without=[TASKS, POWER])

        def on(k):
            return ONSET <= k < ONSET + 40 and (k - ONSET) % 5 < 3

        t.add(tasks(t, lambda k, n: 700 if n == BAD and on(k) else None))
        t.add(gpu_gauge(t, POWER, 800, 8, lambda k, n, g: 350 if n == BAD and on(k) else None))
        t.run(ONSET + 90)
        steps = [x.after for o in t.outcomes for x in o.transitions if x.node == BAD]
        assert steps.count("suspect") == 1
        assert steps[-1] == "cleared"


def test_rules_of_the_tests_name_real_metrics():
    names = {POWER, TEMP, UTIL, XID, NVLINK, CLOCK, COPY, USED, SMI_POWER, SMI_UTIL, SMI_TEMP, TASKS, LOAD}
    assert names | {FAILED_RPC, REMAPPED, REPLAY, IB, *TestCounters.NAMES} <= set(CATALOG.by_name)
    assert PlacementRules().ib_exclude == ()
