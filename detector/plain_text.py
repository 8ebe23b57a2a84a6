"""Times and lines of text, as people write and read them."""

from __future__ import annotations

from datetime import UTC, datetime

from detector.errors import OddnodeError

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
    """Return a time as text."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def utc_minute(at: float) -> str:
    """Return a time as text where seconds do not matter."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def printable(text: str) -> str:
    """Return text that cannot steer a terminal: a space for each character that is not printable."""
    return "".join(c if c.isprintable() else " " for c in text)
