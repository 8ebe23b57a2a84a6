"""Times and lines of text, as people write and read them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from detector.errors import OddnodeError

_AFTER_START = re.compile(r"\+(?=.)(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?")
LATEST_S = datetime(9999, 12, 31, tzinfo=UTC).timestamp()


def moment_of(text: str, option: str) -> float:
    """Return epoch seconds of a time on the command line.

    Raises
    ------
    OddnodeError
        Names the option.
    """
    try:
        found = float(text)
    except ValueError:
        try:
            found = iso_moment(text)
        except ValueError:
            raise OddnodeError(f"{option} {text!r} is neither epoch seconds nor ISO 8601") from None
    return in_calendar(found, text, option)


def iso_moment(text: str) -> float:
    """Return epoch seconds of an ISO 8601 time, UTC without a zone.

    Raises
    ------
    ValueError
        When it is none.
    """
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def recorded_moment(text: str, start: float | None) -> float:
    """Return epoch seconds of ``--at``, a time that may count from a recording's start.

    Parameters
    ----------
    text
        RFC 3339 (UTC without a zone), epoch seconds, or ``+1h30m`` after the start.
    start
        Start of the recording, None when there is none.

    Raises
    ------
    OddnodeError
        When it is none of these.
    """
    relative = _AFTER_START.fullmatch(text)
    if relative is not None:
        if start is None:
            raise OddnodeError(f"--at {text!r} counts from a recording's start, and a service has none")
        days, hours, minutes, seconds = (float(part or 0) for part in relative.groups())
        found = start + 86400 * days + 3600 * hours + 60 * minutes + seconds
    else:
        found = _absolute(text)
    return in_calendar(found, text, "--at")


def _absolute(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        try:
            return iso_moment(text)
        except ValueError:
            raise OddnodeError(
                f"--at {text!r} is neither RFC 3339, nor epoch seconds, nor a time after the start as +12m is"
            ) from None


def in_calendar(found: float, text: str, option: str) -> float:
    """Return a time that is one.

    Raises
    ------
    OddnodeError
        Names the option.
    """
    if not 0 <= found <= LATEST_S:
        raise OddnodeError(f"{option} {text!r} is no time between the years 1970 and 9999")
    return found


def utc_second(at: float) -> str:
    """Return a time as text, or the number when it is in no calendar."""
    return _in_utc(at, "%Y-%m-%d %H:%M:%S UTC")


def utc_minute(at: float) -> str:
    """Return a time as text where seconds do not matter, or the number when it is in no calendar."""
    return _in_utc(at, "%Y-%m-%d %H:%M UTC")


def _in_utc(at: float, form: str) -> str:
    try:
        return datetime.fromtimestamp(at, UTC).strftime(form)
    except (ValueError, OverflowError, OSError):
        return f"{at:g}"


def printable(text: str) -> str:
    """Return text that cannot steer a terminal: a space for each character that is not printable."""
    return "".join(c if c.isprintable() else " " for c in text)
