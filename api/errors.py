"""Errors of the REST interface: one shape, whoever raises them."""

from __future__ import annotations

import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from api import examples
from api.headers import HEADERS
from api.schemas import ErrorOut
from detector.control.problems import ControlError, NotKnownError, NotPossibleError, NotValidError
from detector.errors import OddnodeError
from detector.service_view import BusyError

log = logging.getLogger("oddnode.api")

_CODES = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "timeout",
    409: "conflict",
    413: "too_large",
    415: "unsupported_media_type",
    422: "invalid_parameter",
    429: "too_many_requests",
    503: "unavailable",
}
_STATUS: dict[type[ControlError], int] = {NotKnownError: 404, NotPossibleError: 409, NotValidError: 422}
MAX_MESSAGE = 500

Responses = dict[int | str, dict[str, Any]]


def _documented(code: str, message: str, description: str) -> dict[str, Any]:
    example = examples.error(code, message)
    return {
        "model": ErrorOut,
        "description": description,
        "content": {"application/json": {"example": example}},
    }


INVALID: Responses = {
    422: _documented(
        "invalid_parameter", "limit: input should be less than or equal to 1000", "A parameter is not valid."
    )
}
UNKNOWN: Responses = {404: _documented("not_found", "node 'gpu999' is not known", "There is no such thing.")}
UNAVAILABLE: Responses = {
    503: _documented("unavailable", "nothing was evaluated yet", "There is no answer now; ask again.")
}
CONFLICT: Responses = {
    409: _documented("conflict", "there are 1000 mutes already: end some first", "It does not fit now.")
}
UNAUTHORIZED: Responses = {
    401: _documented("unauthorized", "the token is not valid", "A token is needed and is missing or wrong.")
}
FORBIDDEN: Responses = {
    403: _documented(
        "forbidden",
        "the token may only read: changes need one of scope operate",
        "The token, the place the service listens at, or the page that asks does not allow changes.",
    )
}
TOO_LARGE: Responses = {
    413: _documented("too_large", "the body must be at most 65536 bytes", "The body is too large.")
}
NO_JSON: Responses = {
    415: _documented(
        "unsupported_media_type",
        "the body must be JSON: Content-Type: application/json",
        "The body is not declared to be JSON.",
    )
}
BROKEN: Responses = {
    400: _documented(
        "bad_request", "There was an error parsing the body", "The body is no text in UTF-8, or ended early."
    )
}
LATE: Responses = {
    408: _documented("timeout", "the body did not come in time", "The body took longer than 10 s to arrive.")
}
TOO_MANY: Responses = {
    429: _documented(
        "too_many_requests",
        "too many changes in a short time: ask again in 1 s",
        "Too many changes or refused tokens of one client; `Retry-After` tells how long to wait.",
    )
}
INTERNAL: Responses = {
    500: _documented("internal", "the request failed; the log of the service says why", "A defect.")
}


def _answer(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    body = {"error": {"code": code, "message": message[:MAX_MESSAGE]}}
    # a defect is answered from outside of the access control, which else adds these
    return JSONResponse(body, status_code=status, headers={**HEADERS, **(headers or {})})


def answer(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """Return an error in the one shape; its code follows from the status."""
    return _answer(status, _CODES.get(status, "error"), message, headers)


def install(app: FastAPI) -> None:
    """Give every error of the app the one shape."""

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> JSONResponse:
        return answer(error.status_code, str(error.detail), dict(error.headers or {}))

    @app.exception_handler(RequestValidationError)
    async def _invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            return _answer(422, "invalid_parameter", "the body is not JSON")
        name = ".".join(str(part) for part in first["loc"][1:]) or "request"
        message = str(first["msg"])
        return _answer(422, "invalid_parameter", f"{name}: {message[:1].lower()}{message[1:]}")

    @app.exception_handler(BusyError)
    async def _busy(request: Request, error: BusyError) -> JSONResponse:
        return _answer(503, "unavailable", str(error), {"Retry-After": "2"})

    @app.exception_handler(ControlError)
    async def _refused(request: Request, error: ControlError) -> JSONResponse:
        return answer(_STATUS.get(type(error), 409), str(error))

    @app.exception_handler(OddnodeError)
    async def _ours(request: Request, error: OddnodeError) -> JSONResponse:
        log.error("request path=%s problem=%r", request.url.path, str(error))
        return _answer(503, "unavailable", str(error), {"Retry-After": "10"})

    @app.exception_handler(Exception)
    async def _other(request: Request, error: Exception) -> JSONResponse:
        log.error("request path=%s failed=true", request.url.path, exc_info=error)
        return _answer(500, "internal", "the request failed; the log of the service says why")
