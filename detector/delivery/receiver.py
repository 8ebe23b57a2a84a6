"""One request to a receiver; its path and query, which may hold a secret, are never shown."""

from __future__ import annotations

import re
from collections.abc import Mapping

from detector.errors import DeliveryError, SourceError, SourceStatus
from detector.settings_endpoint import EndpointSettings
from detector.source.answer import HttpRefusal
from detector.source.http import HttpClient

_BEYOND_HOST = re.compile(r"(https?://[^\s/?#]+)[/?#][^\s,:]*")


class Receiver:
    """Sends requests to one address.

    Parameters
    ----------
    endpoint
        Address, credentials, bounds.
    """

    def __init__(self, endpoint: EndpointSettings) -> None:
        self._endpoint = endpoint
        self._client = HttpClient(endpoint.options())

    def send(self, method: str, suffix: str, body: bytes, headers: Mapping[str, str]) -> None:
        """Send a body to the address followed by `suffix`.

        Raises
        ------
        DeliveryError
            When it was not taken.
        """
        path, question, query = self._endpoint.path.partition("?")
        try:
            self._client.send(
                method, f"{path}{suffix}{question}{query}", body, headers, self._client.deadline()
            )
        except SourceError as error:
            text = str(error).replace(path, "") if path else str(error)
            text = _BEYOND_HOST.sub(r"\1", text)  # where a redirect leads may hold it too
            status = error.status if isinstance(error, SourceStatus) else None
            wait_s = error.retry_after_s if isinstance(error, HttpRefusal) else None
            raise DeliveryError(text, status, wait_s) from None

    def close(self) -> None:
        """End a request under way."""
        self._client.close()
