"""Small hand-made telemetry: a few metrics of a few nodes, tick by tick, through the real pipeline."""

import json
from collections.abc import Callable

import numpy as np

from detector.core.parameters import Parameters
from detector.outcome import Outcome, Status
from detector.pipeline import Pipeline
from detector.source.base import Batch
from grouping.catalog import load_catalog

CATALOG = load_catalog()
START = 1_767_225_600.0
STEP = 30.0

Labels = dict[str, str]
Point = tuple[str, Labels, float]


def make_batch(pipeline: Pipeline, points: list[Point], at: float, *, is_partial: bool = False) -> Batch:
    keys = [
        json.dumps({"__name__": name, **labels}, separators=(",", ":")).encode() for name, labels, _ in points
    ]
    pipeline.interner.add_many([key for key in keys if key not in pipeline.interner.codes])
    codes = np.array([pipeline.interner.codes[key] for key in keys], dtype=np.int32)
    values = np.array([value for _, _, value in points], dtype=float)
    keep = (codes >= 0) & np.isfinite(values)
    ts = np.full(int(keep.sum()), int((at - 3.0) * 1000), dtype=np.int64)
    return Batch(codes[keep], ts, values[keep], is_partial=is_partial)


class Telemetry:
    """A cluster whose metrics are functions of (tick, node); None or NaN means no sample."""

    def __init__(
        self, n_nodes: int = 12, seed: int = 1, parameters: Parameters | None = None, **rules: object
    ) -> None:
        self.nodes = [f"gpu{k + 1:03d}" for k in range(n_nodes)]
        self.rng = np.random.default_rng(seed)
        self.pipeline = Pipeline(CATALOG, parameters or Parameters(), **rules)
        self.sources: list[Callable[[int, str], list[Point]]] = []
        self.tick = 0
        self.outcomes: list[Outcome] = []

    def add(self, source: Callable[[int, str], list[Point]]) -> "Telemetry":
        self.sources.append(source)
        return self

    def at(self, tick: int) -> float:
        return START + STEP * tick

    def run(
        self,
        n_ticks: int,
        *,
        skip: Callable[[int], bool] = lambda k: False,
        partial: bool = False,
        judge: bool = True,
    ) -> Outcome:
        outcome = None
        for _ in range(n_ticks):
            self.tick += 1
            points = []
            if not skip(self.tick):
                for node in self.nodes:
                    for source in self.sources:
                        points.extend(source(self.tick, node))
            points = [p for p in points if p[2] is not None]
            at = self.at(self.tick)
            batch = make_batch(self.pipeline, points, at, is_partial=partial)
            outcome = self.pipeline.evaluate(batch, at, judge=judge)
            self.outcomes.append(outcome)
        assert outcome is not None
        return outcome

    def ever_suspect(self) -> set[str]:
        return {t.node for o in self.outcomes for t in o.transitions if t.after == "suspect"}

    def kinds_of_quality(self) -> set[str]:
        return {q.kind for o in self.outcomes for q in o.data_quality}

    def group_events(self) -> list[object]:
        return [e for o in self.outcomes for e in o.group_events]


def suspects(outcome: Outcome) -> list[str]:
    return [v.node for v in outcome.verdicts if v.status is Status.SUSPECT]


def gpu_labels(node: str, gpu: int) -> Labels:
    return {
        "gpu": str(gpu),
        "UUID": f"GPU-{node}-{gpu}",
        "pci_bus_id": f"0000000{gpu}:00:00.0",
        "device": f"nvidia{gpu}",
        "modelName": "NVIDIA B200",
        "Hostname": node,
        "instance": f"{node}:9400",
        "job": "dcgm",
    }


def smi_labels(node: str, gpu: int) -> Labels:
    return {
        "gpu": "NVIDIA B200",
        "gpu_index": str(gpu),
        "gpu_uuid": f"GPU-{node}-{gpu}",
        "exported_instance": node,
        "instance": f"{node}:9090",
        "job": "all-smi",
    }


def node_labels(node: str) -> Labels:
    return {"instance": f"{node}:9100", "job": "node"}


def gauge(
    telemetry: Telemetry,
    name: str,
    level: float,
    noise: float,
    change: Callable[[int, str], float | None] | None = None,
):
    """A node-wide gauge of node_exporter: `change` gives a replacement, an offset is up to the caller."""

    def source(tick: int, node: str) -> list[Point]:
        value = level + noise * float(telemetry.rng.normal())
        if change is not None:
            changed = change(tick, node)
            if changed is not None:
                value = changed
        return [(name, node_labels(node), value)]

    return source


def gpu_gauge(
    telemetry: Telemetry,
    name: str,
    level: float,
    noise: float,
    change: Callable[[int, str, int], float | None] | None = None,
    n_gpus: int = 4,
    labels: Callable[[str, int], Labels] = gpu_labels,
):
    """A gauge of each GPU; NaN from `change` means no sample."""

    def source(tick: int, node: str) -> list[Point]:
        points = []
        for gpu in range(n_gpus):
            value = level + noise * float(telemetry.rng.normal())
            if change is not None:
                changed = change(tick, node, gpu)
                if changed is not None:
                    value = changed
            points.append((name, labels(node, gpu), value))
        return points

    return source


TASKS = "backendai_async_task_count"


def agent_labels(node: str) -> Labels:
    return {
        "instance": f"{node}:6003",
        "job": "backendai",
        "display_name": f"agent-{node}",
        "service_group": "agent",
    }


def tasks(telemetry: Telemetry, change: Callable[[int, str], float | None] | None = None):
    """Asynchronous tasks of each node's scheduler agent, 44 to 50 in health."""

    def source(tick: int, node: str) -> list[Point]:
        value = 47 + telemetry.rng.integers(-3, 4)
        if change is not None and (changed := change(tick, node)) is not None:
            value = changed
        return [(TASKS, agent_labels(node), float(value))]

    return source
