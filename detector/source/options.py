"""How to reach a database: address, credentials, bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Everything a source needs to know about a database; built by the settings.

    Parameters
    ----------
    url
        Base address, any path prefix included (``http://host:8481/select/0/prometheus``).
        Credentials inside the address are used as basic authentication and never shown.
    kind
        ``victoriametrics``, ``prometheus``, or ``auto`` to find out.
    bearer_token, bearer_token_file
        At most one. The file is read again when it changes and when the token is refused.
    basic_username, basic_password, basic_password_file
        Basic authentication; the file is read again like a token file.
    ca_file, cert_file, key_file
        PEM files; read again when they change.
    insecure_skip_verify
        True accepts any certificate.
    headers
        Sent with every request.
    extra_filters
        Label matchers added to every selector, e.g. ``cluster="a"`` or ``{cluster="a"}``.
    connect_timeout_s, read_timeout_s
        Bound of one connection attempt; bound of the silence between two packets.
    deadline_s
        Bound of one whole `Source.fetch`, retries included.
    retries
        How often a request that failed for a passing reason is repeated within one fetch.
    max_response_bytes
        Bound of one answer, after decompression.
    max_series
        Bound of the series of one fetch.
    max_series_per_request
        A request that returns more is split by metric names from then on.
    parallel_requests
        Requests at a time.
    slice_s
        Longer ranges are asked for in slices of this many seconds.
    """

    url: str
    kind: str = "auto"
    bearer_token: str | None = field(default=None, repr=False)
    bearer_token_file: Path | None = None
    basic_username: str | None = None
    basic_password: str | None = field(default=None, repr=False)
    basic_password_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    insecure_skip_verify: bool = False
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    extra_filters: tuple[str, ...] = ()
    connect_timeout_s: float = 5.0
    read_timeout_s: float = 20.0
    deadline_s: float = 25.0
    retries: int = 1
    max_response_bytes: int = 2048 * MIB
    max_series: int = 6_000_000
    max_series_per_request: int = 400_000
    parallel_requests: int = 2
    slice_s: float = 600.0
