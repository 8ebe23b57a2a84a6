"""Exporters' own processes, collectors, and what the scraper says of each target."""

from simulator.columns import Column, Table

UNAME = "node_uname_info"
"""No metric of the catalog, but what ties names to addresses; always there."""

_MIB = 1048576.0
_HEAP = {
    "alloc": 4.2,
    "sys": 28,
    "gc_sys": 4.1,
    "heap_alloc": 4.2,
    "heap_idle": 11,
    "heap_inuse": 7,
    "heap_released": 5,
    "heap_sys": 19,
    "stack_inuse": 1.1,
    "mspan_inuse": 0.14,
    "other_sys": 1.3,
    "next_gc": 8.6,
}


def columns() -> list[Column]:
    """Return the columns of go_*, process_*, python_gc_*, promhttp_*, up, scrape_* and the collectors."""
    node, agent, scrape = Table("node_exporter"), Table("backend_ai"), Table("scrape")
    _go(node)
    for t, cpu, resident in ((node, 0.06, 31.0), (agent, 0.12, 260.0)):
        t.counter("process_cpu_seconds_total", one=cpu, sick=cpu, quantum=0.01, sigma=0.1, spread=0.1)
        t.gauge(
            "process_open_fds", one=12 if t is node else 70, task_excess=0.4 if t is agent else 0, sigma=0.05
        )
        t.gauge(
            "process_resident_memory_bytes",
            one=resident * _MIB,
            task_excess=2e5 if t is agent else 0,
            sigma=0.02,
            ar=0.95,
            spread=0.04,
            quantum=4096,
        )
        t.gauge("process_virtual_memory_bytes", one=resident * 9 * _MIB, spread=0.02, quantum=4096)
        start = "exporter_start" if t is node else "agent_start"
        t.gauge("process_start_time_seconds", **{start: 1}, quantum=0.01)
    for name, level in (("objects_collected", 40), ("collections", 0.5)):
        agent.counter(f"python_gc_{name}_total", "generation", generation_share=level, sigma=0.2)
    agent.rare("python_gc_objects_uncollectable_total", "generation", one=1e-7)
    node.counter("promhttp_metric_handler_requests_total", "code", scrapes_by_code=1, sigma=0.0, spread=0.0)
    node.gauge("promhttp_metric_handler_requests_in_flight", one=1)
    node.gauge(
        "node_scrape_collector_duration_seconds",
        "collector",
        collector_s=1,
        sigma=0.25,
        spread=0.1,
        tail=0.002,
        quantum=1e-9,
    )
    node.gauge(UNAME, "uname", one=1)
    node.gauge("node_scrape_collector_success", "collector", collector_ok=1)
    scrape.gauge("up", "target", t_up=1)
    scrape.gauge("scrape_duration_seconds", "target", t_duration=1, quantum=0.001)
    for name in ("scrape_samples_scraped", "scrape_samples_post_metric_relabeling"):
        scrape.gauge(name, "target", t_samples=1)
    scrape.gauge("scrape_series_added", "target", t_added=1)
    scrape.gauge("scrape_response_size_bytes", "target", t_bytes=1)
    return [*node.columns, *agent.columns, *scrape.columns]


def _go(t: Table) -> None:
    t.gauge("go_goroutines", one=9, sigma=0.05)
    t.gauge("go_threads", one=14, spread=0.1)
    t.gauge("go_gc_duration_seconds", "quantile", gc_quantile=1, sigma=0.1, spread=0.1, quantum=1e-9)
    t.counter("go_gc_duration_seconds_sum", one=2.4e-6, sigma=0.1, quantum=1e-9)
    t.counter("go_gc_duration_seconds_count", one=0.035, sigma=0.1)
    for name, mib in _HEAP.items():
        step = {"alloc": 1.0, "heap_alloc": 1.0}.get(name, 8192.0)
        t.gauge(f"go_memstats_{name}_bytes", one=mib * _MIB, sigma=0.08, ar=0.6, spread=0.03, quantum=step)
    t.counter("go_memstats_alloc_bytes_total", one=1.6e5)
    t.counter("go_memstats_mallocs_total", one=2200)
    t.counter("go_memstats_frees_total", one=2200)
    t.gauge("go_memstats_heap_objects", one=38000, sigma=0.15)
    t.gauge("go_memstats_last_gc_time_seconds", last_gc=1, quantum=1e-6)
