"""Host names and addresses as exporters and scrapers write them."""

from __future__ import annotations

import hashlib
import ipaddress
import re
from dataclasses import dataclass

MAX_HOST = 253
"""Longest host name that DNS allows; anything longer is cut."""

_PORT = re.compile(r"\d{1,5}")
_LOOPBACK_NAMES = frozenset(
    {"localhost", "localhost.localdomain", "localhost4", "localhost6", "ip6-localhost"}
)
_CONTAINER_ID = re.compile(r"(?=[0-9a-f]*[0-9])(?:[0-9a-f]{12}|[0-9a-f]{64})")
_RANDOM = "[bcdfghjklmnpqrstvwxz2456789]"
_POD_NAME = re.compile(
    r"(?=.*(?:exporter|dcgm|all-smi|allsmi|gpu-operator|monitoring))"
    rf".+?(?:-{_RANDOM}{{8,10}})?-{_RANDOM}{{5}}"
)


@dataclass(frozen=True, slots=True)
class Host:
    """One host as written somewhere.

    Parameters
    ----------
    name
        Host in lower case, without port, brackets, or final dot; addresses in their shortest form.
    exact
        The same with the port, when there is one.
    spelling
        As `name`, in the case in which it was written.
    is_address
        True for an IPv4 or IPv6 address.
    is_loopback
        True when it means "this machine", whichever that is.
    """

    name: str
    exact: str
    spelling: str
    is_address: bool
    is_loopback: bool

    @property
    def family(self) -> int:
        """4 or 6 for addresses, 0 for names."""
        return 0 if not self.is_address else 6 if ":" in self.name else 4


def split_port(text: str) -> tuple[str, str]:
    """Split a port off: only after a closing bracket or a single colon.

    Examples
    --------
    >>> split_port("[fd00::5]:9100")
    ('fd00::5', '9100')
    >>> split_port("2001:db8::17")
    ('2001:db8::17', '')
    >>> split_port("gpu065:9400")
    ('gpu065', '9400')
    """
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if bracket and (not rest or (rest.startswith(":") and _PORT.fullmatch(rest[1:]))):
            return host, rest[1:]
        return text, ""
    if text.count(":") == 1:
        host, _, port = text.partition(":")
        if _PORT.fullmatch(port):
            return host, port
    return text, ""


def shorten(text: str, limit: int) -> str:
    """Make a text printable and cut it to `limit` characters; what is cut is marked by a hash.

    Examples
    --------
    >>> shorten("gpu065", 20)
    'gpu065'
    >>> len(shorten("x" * 500, 60))
    60
    """
    clean = text if text.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in text)
    if clean == text and len(text) <= limit:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{clean[: limit - 9]}~{digest}"


def parse_host(text: str) -> Host | None:
    """Read a host name or address, with or without a port or an URL around it.

    Returns
    -------
    Host or None
        None for an empty text.
    """
    text = text.strip()
    if "://" in text:
        text = text.partition("://")[2]
    text = text.partition("/")[0] if "/" in text else text
    host, port = split_port(text)
    host = shorten(host.rstrip("."), MAX_HOST)
    if not host:
        return None
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        name = host.lower()
        exact = f"{name}:{port}" if port else name
        return Host(name, exact, host, False, name in _LOOPBACK_NAMES)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    name = address.compressed
    bracketed = f"[{name}]" if ":" in name else name
    exact = f"{bracketed}:{port}" if port else name
    return Host(name, exact, name, True, address.is_loopback or address.is_unspecified)


def is_container_name(name: str) -> bool:
    """Tell whether a host name is that of a container or of an exporter's pod.

    Such a name comes from an exporter that does not know its machine, and changes at every restart.

    Examples
    --------
    >>> is_container_name("3f2a91c0b7de"), is_container_name("dcgm-exporter-x7k2p")
    (True, True)
    >>> is_container_name("gpu065"), is_container_name("worker-md-0-x7k2p")
    (False, False)
    """
    return _CONTAINER_ID.fullmatch(name) is not None or _POD_NAME.fullmatch(name) is not None
