"""Whoever differs since the first sample is named with evidence, and a restart forgets nothing of it."""

from dataclasses import replace

from detector.core.parameters import Parameters
from detector.core.standing import LEAST_SAMPLES
from detector.pipeline import Pipeline
from grouping.catalog import Catalog
from tests.builders import CATALOG, Telemetry, gpu_gauge, suspects

POWER, TEMP, BAD = "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_TEMP", "gpu004"


def unlike(*, of_job: bool = True) -> Telemetry:
    t = Telemetry(12, 1)
    if of_job:
        specs = [replace(CATALOG.by_name[name], target="Training", twin=None) for name in (POWER, TEMP)]
        t.pipeline = Pipeline(Catalog.of(specs, path=CATALOG.path), Parameters())
    t.add(gpu_gauge(t, POWER, 800, 8, lambda _, n, __: 400 if n == BAD else None))
    return t.add(gpu_gauge(t, TEMP, 61, 1, lambda _, n, __: 95 if n == BAD else None))


def test_what_nodes_tell_may_differ_for_good() -> None:
    t = unlike(of_job=False)
    t.run(60)
    assert t.ever_suspect() == set()


def test_a_node_unlike_its_peers_from_the_start_is_named_with_the_signals_that_differ() -> None:
    last = unlike().run(60)
    assert suspects(last) == [BAD]
    verdict = last.verdicts[0]
    assert {item.metric for item in verdict.evidence} == {POWER, TEMP}
    assert "below" in next(item.reason for item in verdict.evidence if item.metric == POWER)


def test_what_has_been_counted_since_the_first_sample_survives_a_restart() -> None:
    t = unlike()
    t.run(LEAST_SAMPLES)
    before = t.pipeline.memory.standing.seen.max()
    saved = t.pipeline.snapshot()
    other = unlike()
    assert other.pipeline.restore(saved, []) == []
    other.run(1)
    assert other.pipeline.memory.standing.seen.max() >= before > 1
