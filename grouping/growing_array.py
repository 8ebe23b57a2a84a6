"""A one-dimensional array to which numbers are added one by one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class GrowingArray:
    """A one-dimensional array that grows by doubling; `view` is the filled part.

    New values wait in a list until somebody looks at the array: numbers are added one by one, thousands at
    a time, and a list takes them several times faster.
    """

    def __init__(self, dtype: type[np.generic]) -> None:
        self._data: NDArray[np.generic] = np.empty(1024, dtype=dtype)
        self._n = 0
        self._new: list[float] = []

    def append(self, value: float) -> None:
        """Add one value at the end."""
        self._new.append(value)

    def __len__(self) -> int:
        return self._n + len(self._new)

    def __getitem__(self, i: int) -> int:
        return self._data[i] if i < self._n else self._new[i - self._n]  # type: ignore[return-value]

    def __setitem__(self, i: int, value: float) -> None:
        if i < self._n:
            self._data[i] = value
        else:
            self._new[i - self._n] = value

    @property
    def view(self) -> NDArray[np.int32]:
        """Filled part, shape (n,); not a copy."""
        if self._new:
            size = len(self)
            if size > len(self._data):
                larger = np.empty(max(size, 2 * len(self._data)), dtype=self._data.dtype)
                larger[: self._n] = self._data[: self._n]
                self._data = larger
            self._data[self._n : size] = self._new
            self._n = size
            self._new.clear()
        return self._data[: self._n]  # type: ignore[return-value]
