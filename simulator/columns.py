"""The tables' own language: one column is one metric over a space of parts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    """How one metric follows the hidden drivers of a node.

    Its level is ``sum(weight * driver)``: the value of a gauge, the rate per second of a counter.

    Parameters
    ----------
    name
        Metric name.
    exporter
        Exporter that reports it.
    space
        Space of parts, a key of `topology.PARTS`.
    is_counter
        True when the level is a rate that is summed up.
    terms
        Pairs (driver, weight).
    sigma
        Standard deviation of the logarithm of the level's noise.
    ar
        Share of the noise that is carried to the next tick, 0 to below 1.
    spread
        Standard deviation of the logarithm of a member's lasting offset.
    jitter
        Standard deviation of noise that is added to a gauge.
    tail
        Probability per sample of a burst of several times the level.
    is_rare
        True when a counter's increments are single events (Poisson).
    quantum
        Resolution of the reported value, 0 for none.
    wrap
        Value at which a counter starts again at 0, 0 for never.
    low, high
        Bounds of a gauge.
    """

    name: str
    exporter: str
    space: str
    is_counter: bool
    terms: tuple[tuple[str, float], ...]
    sigma: float = 0.0
    ar: float = 0.0
    spread: float = 0.0
    jitter: float = 0.0
    tail: float = 0.0
    is_rare: bool = False
    quantum: float = 1.0
    wrap: float = 0.0
    low: float = 0.0
    high: float = float("inf")


_OPTIONS = frozenset({"sigma", "ar", "spread", "jitter", "tail", "is_rare", "quantum", "wrap", "low", "high"})


class Table:
    """Collects the columns of one exporter.

    Parameters
    ----------
    exporter
        Exporter of all of them.
    """

    def __init__(self, exporter: str) -> None:
        self.exporter = exporter
        self.columns: list[Column] = []

    def gauge(self, name: str, space: str = "node", /, **terms_and_options: float) -> None:
        """Add a gauge; keywords that are no field of `Column` are drivers with their weights."""
        self._add(name, space, False, terms_and_options)

    def counter(self, name: str, space: str = "node", /, **terms_and_options: float) -> None:
        """Add a counter; noise of a quarter unless `sigma` says otherwise."""
        self._add(name, space, True, {"sigma": 0.15, "spread": 0.04, **terms_and_options})

    def rare(self, name: str, space: str = "node", /, **terms_and_options: float) -> None:
        """Add a counter of single events."""
        self._add(name, space, True, {"is_rare": True, **terms_and_options})

    def _add(self, name: str, space: str, is_counter: bool, given: dict[str, float]) -> None:
        options = {key: value for key, value in given.items() if key in _OPTIONS}
        terms = tuple((key, value) for key, value in given.items() if key not in _OPTIONS)
        self.columns.append(
            Column(name, self.exporter, space, is_counter, terms, **options)  # type: ignore[arg-type]
        )
