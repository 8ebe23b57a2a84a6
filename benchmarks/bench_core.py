"""Evaluation alone over a table of shapes."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.child import Child
from benchmarks.report import Row


def core_rows(shapes: Iterable[tuple[int, int]], ticks: int) -> list[Row]:
    """Measure clusters of (nodes, processors per node), each in a process of its own."""
    rows: list[Row] = []
    for nodes, cpus in shapes:
        with Child("benchmarks.core_child") as child:
            told = child.ask(nodes=nodes, cpus=cpus, ticks=ticks)
        n_series = told["n_series"]
        shape = f"{nodes} nodes x {cpus} processors, {n_series} series, {told['n_cells']} cells"
        took = f"{told['evaluate_s'] * 1e3:.1f} ms, worst {told['worst_s'] * 1e3:.1f} ms"
        rows += [
            Row("evaluate, steady", shape, took),
            Row("- processor time", shape, f"{told['cpu_s'] * 1e3:.1f} ms"),
            Row("- processor time per million series", shape, f"{told['cpu_s'] / n_series * 1e9:.0f} ms"),
            Row("first evaluation, processor time", shape, f"{told['first_cpu_s'] * 1e3:.0f} ms"),
            Row("catalog read, processor time", shape, f"{told['catalog_cpu_s'] * 1e3:.0f} ms"),
            Row("label sets parsed and placed", shape, f"{told['index_cpu_s'] / n_series * 1e6:.1f} us each"),
        ]
    return rows
