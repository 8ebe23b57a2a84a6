"""``GET /v1/suspects``: all readers ask it, so its body is made once per evaluation and operators' change."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from fastapi import APIRouter, Response
from fastapi.concurrency import run_in_threadpool

from api import examples, present, schemas
from api.errors import INTERNAL, INVALID, UNAVAILABLE
from api.marks import Marks
from api.parameters import At, Limit, Offset, ok, seen_at
from detector.service_view import Latest, ServiceView

MAX_KEPT = 32
"""Bodies with other limits and offsets that are kept of one evaluation."""

TIMED = set(schemas.Timed.model_fields)


class Bodies:
    """Bodies of the newest evaluation; for one thread.

    Parameters
    ----------
    marks
        What operators have said.
    """

    def __init__(self, marks: Marks) -> None:
        self._marks = marks
        self._of: tuple[object, ...] = ()
        self._kept: dict[tuple[int, int], bytes] = {}

    def body(self, view: ServiceView, latest: Latest, limit: int, offset: int) -> bytes:
        """Return the JSON of a page of suspects.

        Parameters
        ----------
        view
            Of whom it is.
        latest
            Its newest evaluation.
        limit, offset
            Which suspects.
        """
        # compared by identity: both are replaced as a whole, and kept here so that no other takes their place
        of = (latest, *self._marks.said())
        if len(of) != len(self._of) or any(a is not b for a, b in zip(of, self._of, strict=True)):
            self._of, self._kept = of, {}
        rest = self._kept.get((limit, offset))
        if rest is None:
            rest = suspects_without_time(self._marks, latest, limit, offset)
            if len(self._kept) < MAX_KEPT:
                self._kept[limit, offset] = rest
        return with_time(view, latest, rest)


def add_suspects(
    router: APIRouter, view: ServiceView, evaluated: Callable[[ServiceView], Latest], marks: Marks
) -> None:
    """Add ``GET /suspects`` to the routes of a running service.

    Parameters
    ----------
    evaluated
        Returns the newest evaluation or answers that there is none.
    marks
        What operators have said.
    """
    bodies = Bodies(marks)

    def then(at: float, limit: int, offset: int) -> bytes:
        seen = seen_at(view, at)
        latest = evaluated(seen)
        return with_time(seen, latest, suspects_without_time(marks.as_of(seen, view), latest, limit, offset))

    @router.get(
        "/suspects",
        response_model=schemas.SuspectsOut,
        tags=["verdicts"],
        summary="Machines to look at now",
        responses={**ok(examples.SUSPECTS, "Strongest first."), **INVALID, **UNAVAILABLE, **INTERNAL},
    )
    async def suspects(limit: Limit = 100, offset: Offset = 0, at: At = None) -> Response:
        """List the nodes that deviate from their peers for long enough, each with its evidence."""
        if at is None:
            # in the thread that has the request already: a body that is kept takes less than handing it over
            body = bodies.body(view, evaluated(view), limit, offset)
        else:
            body = await run_in_threadpool(then, at, limit, offset)
        return Response(body, media_type="application/json")


def suspects_without_time(marks: Marks, latest: Latest, limit: int, offset: int) -> bytes:
    """Return what holds as long as nothing is evaluated and said."""
    verdicts = {verdict.node: verdict for verdict in latest.outcome.verdicts}
    shown = [item for item in latest.suspects if not marks.is_dismissed(item.id)]
    made = schemas.SuspectsOut.model_validate(
        {
            **dict.fromkeys(TIMED, None),
            "is_partial": False,
            "suspects": [
                marks.suspect(item, verdicts.get(item.node)) for item in shown[offset : offset + limit]
            ],
            "n_nodes": len(verdicts),
            "undetermined": dict(latest.outcome.undetermined),
        }
    )
    return made.model_dump_json(exclude=TIMED).encode()


def with_time(view: ServiceView, latest: Latest, rest: bytes) -> bytes:
    """Return a body with its time and its age as of now."""
    return msgspec.json.encode(present.timed(view, latest))[:-1] + b"," + rest[1:]
