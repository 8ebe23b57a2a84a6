"""Own metrics of reading settings again."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge


class ReloadTelemetry:
    """Tells whether the settings in effect are those of the file.

    Parameters
    ----------
    registry
        Where the metrics live.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._success = Gauge(
            "oddnode_config_reload_success",
            "1 when the newest content of the settings file and the files it names is in effect, "
            "0 while it cannot be used.",
            registry=registry,
        )
        self._at = Gauge(
            "oddnode_config_reload_timestamp_seconds",
            "Clock time at which settings were last taken over; the start counts.",
            registry=registry,
        )
        self._pending = Gauge(
            "oddnode_config_restart_pending",
            "1 while a changed setting waits for a restart; the log names it.",
            registry=registry,
        )
        self._success.set(1)

    def succeeded(self, now: float) -> None:
        """Note that settings are in effect since `now`, epoch seconds."""
        self._success.set(1)
        self._at.set(now)

    def failed(self) -> None:
        """Note that the newest settings are not in effect."""
        self._success.set(0)

    def restart_pending(self, *, is_pending: bool) -> None:
        """Note whether a changed setting waits for a restart."""
        self._pending.set(is_pending)
