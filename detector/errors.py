"""Errors that reach a person.

::

    OddnodeError
    ├── SettingsError        a settings file or environment variable
    ├── SourceError          a database or a recording
    │   ├── SourceTimeout    no answer in time
    │   ├── SourceStatus     an answer that refuses (401, 422, 503 ...)
    │   └── SourceDecode     an answer, or a recording, that is not what it should be
    ├── StoreError           the store of incidents
    └── DeliveryError        a receiver of suspects and group events

`grouping.CatalogError` is a ValueError of its own room.
"""

from __future__ import annotations


class OddnodeError(Exception):
    """Base of all errors that are told to the user as one sentence."""


class SettingsError(OddnodeError):
    """A setting is missing, unknown or wrong; names the file, the key and the rule."""


class SourceError(OddnodeError):
    """Samples could not be read; names the address without secrets and the query."""


class SourceTimeout(SourceError):
    """No answer within the time allowed."""


class SourceStatus(SourceError):
    """The database answered with a refusal.

    Parameters
    ----------
    message
        Sentence for a person.
    status
        HTTP status code.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class SourceDecode(SourceError):
    """The answer or the recording is truncated, corrupt or of another form."""


class StoreError(OddnodeError):
    """The store cannot be read or written; names the file."""


class DeliveryError(OddnodeError):
    """A receiver was not told; names it without secrets.

    Parameters
    ----------
    message
        Sentence for a person.
    status
        HTTP status of a refusal, None when there was no answer.
    retry_after_s
        Seconds that the receiver asks to wait, None when it does not say.
    """

    def __init__(self, message: str, status: int | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s
