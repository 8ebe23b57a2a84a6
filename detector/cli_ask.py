"""Questions of commands to a running service."""

from __future__ import annotations

from typing import Any

import msgspec
import urllib3

from detector.errors import OddnodeError

SERVICE = "http://127.0.0.1:8080"
MAX_BYTES = 32 << 20
MAX_MESSAGE = 500


def ask(url: str, parameters: dict[str, str] | None = None) -> tuple[int, bytes]:
    """Ask once, without following redirects.

    Parameters
    ----------
    url
        Address of the route.
    parameters
        Query parameters, encoded here.

    Returns
    -------
    tuple
        Status and the first 32 MiB of the body.

    Raises
    ------
    OddnodeError
        When there is no answer.
    """
    timeout = urllib3.Timeout(connect=5.0, read=10.0)
    try:
        with urllib3.PoolManager(retries=False, timeout=timeout) as pool:
            response = pool.request("GET", url, fields=parameters, preload_content=False)
            body = response.read(MAX_BYTES)
    except (urllib3.exceptions.HTTPError, ValueError) as error:
        raise OddnodeError(f"{url}: no answer: {error}") from None
    return response.status, body


def message_of(body: bytes) -> str:
    """Return the sentence of an error that a service told, empty when it told none."""
    try:
        told: Any = msgspec.json.decode(body)["error"]["message"]
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError, KeyError):
        return ""
    return "".join(c if c.isprintable() else " " for c in str(told))[:MAX_MESSAGE]
