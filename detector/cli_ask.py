"""Questions of commands to a running service."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated, Any

import msgspec
import typer
import urllib3

from detector.errors import OddnodeError
from detector.plain_text import printable
from detector.settings import TOKEN_VARIABLE

SERVICE = "http://127.0.0.1:8080"
MAX_BYTES = 32 << 20
MAX_MESSAGE = 500
MAX_TOKEN_BYTES = 4096
MADE_WITHIN_S = 300.0
"""How long an answer that has to be made is waited for."""

UrlOption = Annotated[str, typer.Option(help="Address of the service.")]
TokenFileOption = Annotated[
    Path | None, typer.Option("--token-file", help="File with the API token (else ODDNODE_API_TOKEN).")
]


def not_both(case: Path | None, url: str | None) -> None:
    """Refuse a recording and the address of a service together.

    Raises
    ------
    OddnodeError
        When both are given.
    """
    if case is not None and url is not None:
        raise OddnodeError("a recording and --url exclude each other: give one of them")


def ask(
    url: str, parameters: dict[str, str] | None = None, *, token_file: Path | None = None
) -> tuple[int, bytes]:
    """Ask once, without following redirects.

    Parameters
    ----------
    url
        Address of the route.
    parameters
        Query parameters, encoded here.
    token_file
        File with the token; None takes ``ODDNODE_API_TOKEN``, and without that there is none.

    Returns
    -------
    tuple
        Status and the first 32 MiB of the body.

    Raises
    ------
    OddnodeError
        When there is no answer, or it is refused for want of a token.
    """
    return _request("GET", url, token_file, fields=parameters)


def send(
    method: str,
    url: str,
    sent: dict[str, Any] | None = None,
    *,
    parameters: dict[str, str] | None = None,
    token_file: Path | None = None,
) -> tuple[int, bytes]:
    """Ask for a change, once.

    Parameters
    ----------
    method
        ``POST`` or ``DELETE``.
    url
        Address of the route, its parts encoded.
    sent
        JSON body of a ``POST``.
    parameters
        Query parameters of a ``DELETE``.
    token_file
        As of `ask`.

    Returns
    -------
    tuple
        As of `ask`.

    Raises
    ------
    OddnodeError
        As of `ask`.
    """
    if method == "POST":
        return _request(method, url, token_file, json=sent or {})
    return _request(method, url, token_file, fields=parameters)


def download(
    url: str, sent: dict[str, Any], out: IO[bytes], *, max_bytes: int, token_file: Path | None = None
) -> tuple[int, bytes]:
    """Ask for a file by a ``POST``, which may take minutes to be made.

    Parameters
    ----------
    url, sent, token_file
        As of `send`.
    out
        Gets the body of an answer with status 200.
    max_bytes
        A larger one is refused.

    Returns
    -------
    tuple
        Status, and the body of any other answer.

    Raises
    ------
    OddnodeError
        As of `ask`, and when the answer is larger or ends early.
    """
    with _answered("POST", url, token_file, MADE_WITHIN_S, json=sent) as response:
        if response.status != 200:
            return response.status, _body(response, url)
        n_bytes = 0
        for piece in response.stream(1 << 18):
            n_bytes += len(piece)
            if n_bytes > max_bytes:
                raise OddnodeError(f"{url}: the answer is larger than {max_bytes} bytes")
            out.write(piece)
        return 200, b""


def _request(method: str, url: str, token_file: Path | None, **more: Any) -> tuple[int, bytes]:
    with _answered(method, url, token_file, 15.0, **more) as response:
        return response.status, _body(response, url)


@contextmanager
def _answered(
    method: str, url: str, token_file: Path | None, read_s: float, **more: Any
) -> Iterator[urllib3.BaseHTTPResponse]:
    timeout = urllib3.Timeout(connect=5.0, read=read_s)
    headers = {}
    if token := _token(token_file):
        headers["Authorization"] = f"Bearer {token}"
    if "json" in more:
        headers["Content-Type"] = "application/json"
    try:
        with urllib3.PoolManager(retries=False, timeout=timeout) as pool:
            yield pool.request(method, url, headers=headers, redirect=False, preload_content=False, **more)
    except (urllib3.exceptions.HTTPError, ValueError) as error:
        raise OddnodeError(f"{url}: no answer: {error}") from None


def _body(response: urllib3.BaseHTTPResponse, url: str) -> bytes:
    body = response.read(MAX_BYTES)
    if response.status in (401, 403, 429):
        told = message_of(body) or "refused"
        hint = f"; set {TOKEN_VARIABLE} or --token-file" if response.status == 401 else ""
        raise OddnodeError(f"{url}: answered {response.status}: {told}{hint}")
    return body


def _token(path: Path | None) -> str:
    """Return the token, empty for none; it is never part of a message."""
    where = TOKEN_VARIABLE
    token = os.environ.get(TOKEN_VARIABLE, "")
    if path is not None:
        where = f"--token-file {path}"
        try:
            with path.open("rb") as stream:
                token = stream.read(MAX_TOKEN_BYTES).decode("ascii")
        except OSError as error:
            raise OddnodeError(f"{where}: cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise OddnodeError(f"{where}: holds no token") from None
    token = token.strip()
    if token and not (token.isascii() and token.isprintable() and " " not in token):
        raise OddnodeError(f"{where}: holds no token")
    if path is not None and not token:
        raise OddnodeError(f"{where}: is empty")
    return token


def message_of(body: bytes) -> str:
    """Return the sentence of an error that a service told, empty when it told none."""
    try:
        told: Any = msgspec.json.decode(body)["error"]["message"]
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError, KeyError):
        return ""
    return printable(str(told))[:MAX_MESSAGE]
