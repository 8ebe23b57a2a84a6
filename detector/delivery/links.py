"""Where people find the evidence of a notice, and times as others write them."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import quote

from detector.delivery.notice import Notice
from detector.settings_delivery import DeliverySettings


def link_of(notice: Notice, settings: DeliverySettings) -> str:
    """Return the address of a notice's evidence, empty when there is no `external_url`."""
    if settings.external_url is None:
        return ""
    base = settings.external_url.rstrip("/")
    if not notice.is_suspect:
        return f"{base}/v1/groups"
    return base + settings.evidence_path.replace("{node}", quote(notice.node, safe=""))


def rfc3339(at: float) -> str:
    """Return epoch seconds as UTC with milliseconds."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
