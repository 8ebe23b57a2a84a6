"""No cyclic garbage collection while lines are decoded.

Decoding makes a few lists per line, none of them in a cycle and all gone at the block's end, but they
are enough to set off the collector, which then walks everything the process holds: half of the time.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_n_paused = 0
_was_enabled = False


@contextmanager
def gc_pause() -> Iterator[None]:
    """Keep automatic collections off; several threads may pause at a time, the last one ends it.

    A collector that was off before stays off.
    """
    global _n_paused, _was_enabled
    with _lock:
        if not _n_paused:
            _was_enabled = gc.isenabled()
            gc.disable()
        _n_paused += 1
    try:
        yield
    finally:
        with _lock:
            _n_paused -= 1
            if not _n_paused and _was_enabled:
                gc.enable()
