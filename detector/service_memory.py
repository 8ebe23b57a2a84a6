"""What lives as long as the service is kept out of the garbage collector's way.

A full collection walks hundreds of thousands of label sets and finds nothing; while it does so, no request
is answered.
"""

from __future__ import annotations

import gc

FEW = 10_000
"""Label sets that are walked in no time."""

GROWN = 1.25


class LongLived:
    """Sets aside what is there, again whenever there is much more of it."""

    def __init__(self) -> None:
        self._n_set_aside = FEW

    def fetched(self, n_label_sets: int) -> None:
        """Set aside what is there if label sets are many more than at the last time."""
        if n_label_sets > GROWN * self._n_set_aside:
            self._n_set_aside = n_label_sets
            gc.unfreeze()
            gc.collect()
            gc.freeze()

    def replaced(self) -> None:
        """Let go of what was set aside: another pipeline is about to take its place."""
        self._n_set_aside = FEW
        gc.unfreeze()
