"""How much one client may ask: buckets that fill again, bounded in number."""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable

MAX_CLIENTS = 10_000


class Rate:
    """Allows each client so many events a minute, as many at once.

    Parameters
    ----------
    per_minute
        Events.
    clock
        Seconds that only go forward.
    """

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._size = float(per_minute)
        self._per_s = per_minute / 60.0
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> float:
        """Count one event of a client.

        Returns
        -------
        float
            0 when it is allowed, else seconds to wait.
        """
        now = self._clock()
        left, seen = self._left.pop(client, (self._size, now))
        left = min(self._size, left + (now - seen) * self._per_s)
        allowed = left >= 1.0
        self._left[client] = (left - 1.0 if allowed else left, now)
        while len(self._left) > MAX_CLIENTS:
            self._left.popitem(last=False)
        return 0.0 if allowed else (1.0 - left) / self._per_s


def client_key(host: str) -> str:
    """Name a client by its address; of IPv6 by its network, as one machine has as many as it likes."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host[:64]
    if isinstance(address, ipaddress.IPv6Address):
        mapped = address.ipv4_mapped
        return str(mapped or ipaddress.ip_network((int(address) >> 64 << 64, 64)))
    return str(address)
