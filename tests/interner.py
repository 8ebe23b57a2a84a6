"""The simplest interner: numbers label objects in order, refuses the metrics it is told to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from detector.source.base import Batch


class DictInterner:
    def __init__(self, refused_names: Iterable[str] = ()) -> None:
        self._refused = set(refused_names)
        self._codes: dict[bytes, int] = {}
        self.keys: list[bytes] = []
        self.calls: list[list[bytes]] = []

    @property
    def codes(self) -> dict[bytes, int]:
        return self._codes

    def add_many(self, keys: Sequence[bytes]) -> None:
        self.calls.append(list(keys))
        for key in keys:
            if json.loads(key)["__name__"] in self._refused:
                self._codes[key] = -1
            else:
                self._codes[key] = len(self.keys)
                self.keys.append(key)

    def labels(self, series: int) -> dict[str, str]:
        return json.loads(self.keys[series])


Samples = dict[tuple[tuple[tuple[str, str], ...], int], float]


def as_samples(batch: Batch, interner: DictInterner) -> Samples:
    """All samples by (sorted labels, time); fails when one time of one series is there twice."""
    found: Samples = {}
    for code, ts_ms, value in zip(
        batch.series.tolist(), batch.ts_ms.tolist(), batch.values.tolist(), strict=True
    ):
        key = (tuple(sorted(interner.labels(code).items())), ts_ms)
        assert key not in found, key
        found[key] = value
    return found
