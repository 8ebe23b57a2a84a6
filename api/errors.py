"""Errors of the REST interface: one shape, whoever raises them."""

from __future__ import annotations

import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from api import examples
from api.schemas import ErrorOut
from detector.errors import OddnodeError
from detector.service_view import BusyError

log = logging.getLogger("oddnode.api")

_CODES = {
    400: "bad_request",
    404: "not_found",
    405: "method_not_allowed",
    422: "invalid_parameter",
    503: "unavailable",
}
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
INTERNAL: Responses = {
    500: _documented("internal", "the request failed; the log of the service says why", "A defect.")
}


def _answer(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    body = {"error": {"code": code, "message": message[:MAX_MESSAGE]}}
    return JSONResponse(body, status_code=status, headers=headers)


def install(app: FastAPI) -> None:
    """Give every error of the app the one shape."""

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> JSONResponse:
        code = _CODES.get(error.status_code, "error")
        return _answer(error.status_code, code, str(error.detail), dict(error.headers or {}))

    @app.exception_handler(RequestValidationError)
    async def _invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"][1:]) or "request"
        message = str(first["msg"])
        return _answer(422, "invalid_parameter", f"{name}: {message[:1].lower()}{message[1:]}")

    @app.exception_handler(BusyError)
    async def _busy(request: Request, error: BusyError) -> JSONResponse:
        return _answer(503, "unavailable", str(error), {"Retry-After": "2"})

    @app.exception_handler(OddnodeError)
    async def _ours(request: Request, error: OddnodeError) -> JSONResponse:
        log.error("request path=%s problem=%r", request.url.path, str(error))
        return _answer(503, "unavailable", str(error), {"Retry-After": "10"})

    @app.exception_handler(Exception)
    async def _other(request: Request, error: Exception) -> JSONResponse:
        log.error("request path=%s failed=true", request.url.path, exc_info=error)
        return _answer(500, "internal", "the request failed; the log of the service says why")
