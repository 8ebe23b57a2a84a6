"""The scheduler's agent on every node."""

from simulator.columns import Column, Table


def columns() -> list[Column]:
    """Return the columns of backendai_*."""
    t = Table("backend_ai")
    t.gauge("backendai_async_task_count", tasks=1)
    t.gauge("backendai_cpu_usage_percent", one=4.2, task_excess=0.02, sigma=0.25, quantum=0.1)
    t.gauge(
        "backendai_memory_used_rss",
        one=2.6e8,
        task_excess=2e5,
        sigma=0.02,
        ar=0.95,
        spread=0.04,
        quantum=4096,
    )
    t.gauge("backendai_memory_used_vms", one=2.4e9, spread=0.02, quantum=4096)
    t.counter("backendai_api_request_count_total", "api", api_rate=1)
    t.counter("backendai_api_request_duration_sec_sum", "api", api_rate=0.004, api_slow=1, quantum=1e-6)
    t.counter("backendai_api_request_duration_sec_count", "api", api_rate=1)
    t.counter("backendai_event_count_total", "event", event_rate=1)
    t.rare("backendai_event_failure_count_total", "event_failure", one=1e-7, failures=0.05)
    t.counter(
        "backendai_event_processing_time_sec_sum", "event_time", event_rate=0.003, event_slow=1, quantum=1e-6
    )
    t.counter("backendai_event_processing_time_sec_count", "event_time", event_rate=1)
    t.counter("backendai_rpc_requests_total", "rpc", rpc_rate=1)
    t.rare("backendai_rpc_failure_requests_total", "rpc_failure", one=1e-7, failures=0.1)
    t.counter("backendai_rpc_request_duration_seconds_sum", "rpc", rpc_rate=0.02, rpc_slow=1, quantum=1e-6)
    t.counter("backendai_rpc_request_duration_seconds_count", "rpc", rpc_rate=1)
    t.gauge("backendai_layer_operation_triggered_count", "layer_open", layer_open=1, sigma=0.3)
    t.counter("backendai_layer_operation_count_total", "layer", layer_rate=1)
    t.counter(
        "backendai_layer_operation_duration_sec_sum", "layer", layer_rate=0.002, layer_slow=1, quantum=1e-6
    )
    t.counter("backendai_layer_operation_duration_sec_count", "layer", layer_rate=1)
    t.rare("backendai_layer_retry_count_total", "layer_open", one=1e-5, failures=0.02)
    t.counter("backendai_stat_task_trigger_count_total", "stat", stat_rate=1, sigma=0.01, spread=0.0)
    t.counter("backendai_stat_task_success_count_total", "stat", stat_success=1, sigma=0.01, spread=0.0)
    t.rare("backendai_stat_task_failure_count_total", "stat_failure", one=1e-7, failures=0.15)
    t.counter(
        "backendai_sync_container_lifecycle_trigger_count_total", "agent", one=0.1, sigma=0.01, spread=0.0
    )
    t.counter(
        "backendai_sync_container_lifecycle_success_count_total",
        "agent",
        sync_success=1,
        sigma=0.01,
        spread=0.0,
    )
    t.rare("backendai_sync_container_lifecycle_failure_count_total", "agent_failure", one=1e-7, failures=0.03)
    return t.columns
