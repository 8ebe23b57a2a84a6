"""Settings of an address that is asked or told over HTTP: credentials, certificates, headers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, model_validator

from detector.settings_section import Section
from detector.source.options import SourceOptions

MAX_ANSWER_BYTES = 1 << 20
"""What a receiver answers is read up to here, and not kept."""


class EndpointSettings(Section):
    """How to reach a receiver.

    Parameters
    ----------
    url
        Address, never shown: a path or query may hold a secret.
    name
        Names the receiver in logs, metrics and the store; by default host and port.
    timeout_s
        Bound of one request.
    bearer_token_file, basic_username, basic_password_file, ca_file, cert_file, key_file,
    insecure_skip_verify, headers
        As in `detector.source.options.SourceOptions`.
    """

    url: SecretStr
    name: str = Field(default="", pattern=r"^[A-Za-z0-9_.:-]*$", max_length=100)
    timeout_s: Annotated[float, Field(gt=0, le=300, allow_inf_nan=False)] = 10.0
    bearer_token_file: Path | None = None
    basic_username: str | None = None
    basic_password_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    insecure_skip_verify: bool = False
    headers: dict[str, SecretStr] = Field(default_factory=dict, max_length=50)

    @model_validator(mode="after")
    def _reachable(self) -> EndpointSettings:
        try:
            parts = urlsplit(self.url.get_secret_value())
            is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_address = False
        if not is_address:
            raise ValueError("url must be an http:// or https:// address")
        if parts.username is not None:
            raise ValueError("url must not hold a password: set basic_username and basic_password_file")
        if (self.basic_password_file is None) != (self.basic_username is None):
            raise ValueError("basic_username and basic_password_file go together")
        if self.bearer_token_file is not None and self.basic_username is not None:
            raise ValueError("bearer_token_file and basic_username exclude each other")
        if (self.key_file is None) != (self.cert_file is None):
            raise ValueError("cert_file and key_file go together")
        return self

    @property
    def place(self) -> str:
        """The address without path and query, as it may be shown."""
        parts = urlsplit(self.url.get_secret_value())
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def path(self) -> str:
        """Path and query of the address, without a trailing slash."""
        parts = urlsplit(self.url.get_secret_value())
        return parts.path.rstrip("/") + (f"?{parts.query}" if parts.query else "")

    @property
    def shown_name(self) -> str:
        """`name`, or what stands in for it."""
        return self.name or urlsplit(self.place).netloc

    def options(self) -> SourceOptions:
        """Return what the HTTP client takes."""
        return SourceOptions(
            url=self.place,
            bearer_token_file=self.bearer_token_file,
            basic_username=self.basic_username,
            basic_password_file=self.basic_password_file,
            ca_file=self.ca_file,
            cert_file=self.cert_file,
            key_file=self.key_file,
            insecure_skip_verify=self.insecure_skip_verify,
            headers={name: value.get_secret_value() for name, value in self.headers.items()},
            connect_timeout_s=self.timeout_s,
            read_timeout_s=self.timeout_s,
            deadline_s=self.timeout_s,
            retries=0,
            max_response_bytes=MAX_ANSWER_BYTES,
        )
