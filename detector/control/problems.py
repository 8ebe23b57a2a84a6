"""Why a request of an operator is refused."""

from __future__ import annotations

from detector.errors import OddnodeError


class ControlError(OddnodeError):
    """A request that cannot be done; nothing was changed."""


class NotKnownError(ControlError):
    """There is no such incident, node, pool, metric or mute."""


class NotPossibleError(ControlError):
    """It does not fit the state of things."""


class NotValidError(ControlError):
    """It breaks a rule: a time that is over, a mute that is too long."""
