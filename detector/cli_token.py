"""`oddnode token`: makes a token for the REST interface."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import typer
from pydantic import ValidationError
from rich.console import Console

from detector.errors import OddnodeError
from detector.settings_auth import TokenSettings
from detector.tokens import entry_line, hash_of, make_token


def token(
    name: Annotated[str, typer.Argument(help="Who or what will use it; stands in the audit trail.")],
    scope: Annotated[
        Literal["read", "operate"], typer.Option(help="`operate` may change things too.")
    ] = "read",
) -> None:
    """Make an API token: the token is printed once, beside the line for auth.tokens or auth.tokens_file."""
    made = make_token()
    try:
        TokenSettings.model_validate({"name": name, "sha256": hash_of(made), "scope": scope})
    except ValidationError as error:
        message = str(error.errors(include_url=False)[0]["msg"]).removeprefix("Value error, ")
        raise OddnodeError(f"name {name!r}: {message[:1].lower()}{message[1:]}") from None
    told = Console(stderr=True)
    told.print("token, shown this once:", markup=False, highlight=False)
    sys.stdout.write(f"{made}\n")
    told.print("line for auth.tokens or the file of auth.tokens_file:", markup=False, highlight=False)
    sys.stdout.write(f"{entry_line(name, made, scope)}\n")
