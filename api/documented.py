"""What access control adds to the OpenAPI description: the bearer scheme, and refusals of every route."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from api.errors import (
    BROKEN,
    FORBIDDEN,
    LATE,
    NO_JSON,
    TOO_LARGE,
    TOO_MANY,
    UNAUTHORIZED,
    Responses,
)

WRITES = ("post", "put", "patch", "delete")


def document_access(app: FastAPI) -> None:
    """Let ``/openapi.json`` tell of tokens and refusals."""
    describe = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = describe()
            found.setdefault("components", {}).setdefault("securitySchemes", {})["token"] = {
                "type": "http",
                "scheme": "bearer",
                "description": "Needed when the service has tokens set; changes need scope `operate`.",
            }
            for path, methods in found["paths"].items():
                for method, operation in methods.items():
                    if path.startswith("/v1") or path == "/metrics":
                        operation["security"] = [{"token": []}]
                        _add(operation, {**UNAUTHORIZED, **TOO_MANY})
                        if method in WRITES:
                            _add(operation, {**BROKEN, **LATE, **FORBIDDEN, **TOO_LARGE, **NO_JSON})
            app.openapi_schema = found
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _add(operation: dict[str, Any], responses: Responses) -> None:
    for status, told in responses.items():
        (content,) = told["content"].values()
        operation["responses"].setdefault(
            str(status),
            {
                "description": told["description"],
                "content": {
                    "application/json": {
                        "schema": {"$ref": "#/components/schemas/ErrorOut"},
                        "example": content["example"],
                    }
                },
            },
        )
