"""Who may use the REST interface: settings of tokens and bounds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

NAME_CHARS = 64
MAX_TOKENS = 1000

_SHA256 = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]*")


class TokenSettings(BaseModel):
    """One token; only its hash is known.

    Parameters
    ----------
    name
        Who or what uses it: stands as `by` in the audit trail.
    sha256
        SHA-256 of the token, 64 hexadecimal digits, as `oddnode token` prints it.
    scope
        ``read``, or ``operate`` to change things too.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1, max_length=NAME_CHARS)
    sha256: SecretStr
    scope: Literal["read", "operate"] = "read"

    @field_validator("name")
    @classmethod
    def _plain_name(cls, value: str) -> str:
        if not _NAME.fullmatch(value):
            raise ValueError("must be letters, digits and . _ @ - only")
        return value

    @field_validator("sha256")
    @classmethod
    def _a_hash(cls, value: SecretStr) -> SecretStr:
        if not _SHA256.fullmatch(value.get_secret_value().lower()):
            raise ValueError("must be the 64 hexadecimal digits that oddnode token prints, never a token")
        return SecretStr(value.get_secret_value().lower())


class AuthSettings(BaseModel):
    """Tokens of the REST interface, and how much one client may ask.

    Parameters
    ----------
    tokens
        Tokens of this file; none and no `tokens_file` leave reading open and writing to this machine.
    tokens_file
        YAML list of further tokens, read again when it changes.
    metrics_open
        False asks for a token on ``/metrics`` as well.
    reads_per_minute
        Questions below ``/v1/`` that one client may ask.
    writes_per_minute
        Changes that one client may make.
    failures_per_minute
        Refused tokens of one client before it is told to wait.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, validate_default=True)

    tokens: tuple[TokenSettings, ...] = Field(default=(), max_length=MAX_TOKENS)
    tokens_file: Path | None = None
    metrics_open: bool = True
    reads_per_minute: Annotated[int, Field(ge=1, le=10_000_000)] = 12_000
    writes_per_minute: Annotated[int, Field(ge=1, le=100_000)] = 60
    failures_per_minute: Annotated[int, Field(ge=1, le=100_000)] = 20

    @model_validator(mode="after")
    def _different(self) -> AuthSettings:
        for what, found in (
            ("name", [token.name for token in self.tokens]),
            ("hash", [token.sha256.get_secret_value() for token in self.tokens]),
        ):
            if len(set(found)) < len(found):
                raise ValueError(f"tokens: two tokens have the same {what}")
        return self
