"""PromQL and metadata through prometheus-api-client, over our own bounded HTTP.

The library phrases the requests; its session is replaced by one that sends them through
`HttpClient`, so credentials, TLS, time and size limits and errors are the same everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import msgspec
from prometheus_api_client import PrometheusConnect
from requests import Session
from requests.adapters import Retry

from detector.errors import SourceDecode
from detector.source.answer import Deadline
from detector.source.http import HttpClient

LabelledValue = tuple[dict[str, str], float]


@dataclass(frozen=True, slots=True)
class RawResult:
    """An answer of the query API: the result's JSON bytes and what was said beside it."""

    result: bytes
    is_partial: bool
    warnings: tuple[str, ...]
    n_bytes: int


class _Rows(msgspec.Struct, gc=False):
    result: msgspec.Raw = msgspec.Raw(b"[]")
    resultType: str = ""  # noqa: N815 - the name in the answer


class _Body(msgspec.Struct):
    status: str = ""
    data: msgspec.Raw = msgspec.Raw(b"null")
    warnings: list[str] = []
    isPartial: bool = False  # noqa: N815 - the name in the answer
    error: str = ""


class _Vector(msgspec.Struct):
    metric: dict[str, str]
    value: tuple[float, str]


class _Metadata(msgspec.Struct):
    type: str = ""


_decode_body = msgspec.json.Decoder(_Body).decode
_decode_rows = msgspec.json.Decoder(_Rows).decode
_decode_vector = msgspec.json.Decoder(list[_Vector]).decode
_decode_metadata = msgspec.json.Decoder(dict[str, list[_Metadata]]).decode


class _RawAnswer:
    """What the library sees of an answer: a status, and results that stay undecoded bytes."""

    status_code = 200

    def __init__(self, body: _Body, where: str) -> None:
        self._body = body
        self._where = where

    def json(self) -> dict[str, dict[str, bytes]]:
        try:
            rows = _decode_rows(self._body.data)
        except msgspec.DecodeError as error:
            raise SourceDecode(f"{self._where}: the answer has no result: {error}") from None
        return {"data": {"result": bytes(rows.result)}}


class _BoundedSession(Session):
    """A session whose requests go through `HttpClient`."""

    def __init__(self, client: HttpClient) -> None:
        super().__init__()
        self._client = client
        self.deadline: Deadline | None = None
        self.last = _Body()
        self.n_bytes = 0

    def request(self, method: str | bytes, url: str | bytes, **kwargs: Any) -> Any:  # type: ignore[override]
        """Send parameters as a form and keep what the library drops: warnings, partial, size."""
        path = str(url).removeprefix(self._client.base_url)
        form = [(str(key), str(value)) for key, value in (kwargs.get("params") or {}).items()]
        deadline = self.deadline or self._client.deadline()

        def attempt() -> bytes:
            with self._client.post(path, form, deadline, method=str(method)) as answer:
                data = answer.read()
                self.n_bytes = answer.n_bytes
                return data

        data = self._client.retrying(attempt, deadline)
        self.last = parse_body(data, str(url))
        return _RawAnswer(self.last, str(url))


def parse_body(data: bytes, where: str) -> _Body:
    """Return the envelope of an answer of the Prometheus HTTP API.

    Raises
    ------
    SourceDecode
        When it is not one, or says that it failed.
    """
    try:
        body = _decode_body(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SourceDecode(f"{where}: the answer is not JSON of the query API: {error}") from None
    if body.status != "success":
        raise SourceDecode(f"{where}: the answer has status {body.status[:40]!r}: {body.error[:300]}")
    return body


class PrometheusApi:
    """Instant queries and metadata of a database with the Prometheus API.

    Parameters
    ----------
    client
        Sends the requests.
    """

    def __init__(self, client: HttpClient) -> None:
        self._client = client
        self._session = _BoundedSession(client)
        self._connect = PrometheusConnect(
            url=client.base_url, session=self._session, retry=Retry(total=0), method="POST"
        )

    def raw_query(self, promql: str, time_s: str, deadline: Deadline) -> RawResult:
        """Return the result of an instant query undecoded; for one thread at a time.

        Parameters
        ----------
        promql
            Expression.
        time_s
            Evaluation time, decimal epoch seconds with at most three decimals.
        deadline
            Bound of the request and its retries.
        """
        self._session.deadline = deadline
        try:
            result = cast(bytes, self._connect.custom_query(promql, params={"time": time_s, "nocache": "1"}))
        finally:
            self._session.deadline = None
        last = self._session.last
        is_partial = last.isPartial or bool(last.warnings)
        return RawResult(result, is_partial, tuple(last.warnings), self._session.n_bytes)

    def query(self, promql: str, at: float) -> list[LabelledValue]:
        """Return the instant vector of `promql` at `at` (epoch seconds); a scalar has no labels.

        Raises
        ------
        SourceError
            Also when the answer is no vector.
        """
        result = self.raw_query(promql, f"{at:.3f}", self._client.deadline()).result
        try:
            rows = _decode_vector(result)
            return [(row.metric, float(row.value[1])) for row in rows]
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
            raise SourceDecode(
                f"{self._client.base_url}: query {promql[:200]!r} gives no instant vector: {error}"
            ) from None

    def metadata(self) -> Mapping[str, str]:
        """Return the declared type of each metric name, the first where exporters disagree."""
        deadline = self._client.deadline()
        path = "/api/v1/metadata"

        def attempt() -> bytes:
            with self._client.post(path, (), deadline, method="GET") as answer:
                return answer.read()

        where = f"{self._client.base_url}{path}"
        body = parse_body(self._client.retrying(attempt, deadline), where)
        try:
            entries = _decode_metadata(body.data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise SourceDecode(f"{where}: the answer is no metadata: {error}") from None
        return {name: kinds[0].type for name, kinds in entries.items() if kinds}
