"""Headers that keep browsers from making more of an answer than it is."""

from __future__ import annotations

HEADERS = {
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}
"""Sent with every answer that does not say otherwise itself."""
