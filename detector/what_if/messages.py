"""What the process of a try tells the service, one JSON line each."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from detector.what_if.model import Comparison


class Advanced(msgspec.Struct, frozen=True, tag="advanced"):
    """The share that is done, 0 to 1."""

    share: float


class Done(msgspec.Struct, frozen=True, tag="done"):
    """It went well."""

    comparison: Comparison


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """It did not, and why."""

    problem: str


Message = Advanced | Done | Failed

_decode = msgspec.json.Decoder(Message).decode
_encode = msgspec.json.Encoder().encode


def line(message: Message) -> bytes:
    """Return a message as a line."""
    return _encode(message) + b"\n"


def told(lines: Iterable[bytes]) -> Iterable[Message]:
    """Yield the messages of lines."""
    return (_decode(one) for one in lines)
