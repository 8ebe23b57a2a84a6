"""Commands of operators: ack, dismiss, mute, unmute, mutes, repaired; each asks a running service."""

from __future__ import annotations

import getpass
import re
import time
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
import typer
from rich.console import Console

from detector.cli_ask import SERVICE, TokenFileOption, UrlOption, ask, message_of, send
from detector.errors import OddnodeError
from detector.plain_text import moment_of, printable, utc_minute

MAX_SHOWN = 1000

_FOR = re.compile(r"(?=.)(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")

ByOption = Annotated[
    str | None, typer.Option("--by", help="Who acts (else your user name); a token's name wins.")
]
NoteOption = Annotated[str, typer.Option("--note", help="What else there is to say.")]


def ack(
    incident: Annotated[str, typer.Argument(help="Incident, such as gpu068@1767225240.")],
    note: NoteOption = "",
    by: ByOption = None,
    url: UrlOption = SERVICE,
    token_file: TokenFileOption = None,
) -> None:
    """Acknowledge an incident: it is a fault, and somebody looks after it."""
    path = f"/v1/incidents/{in_path(incident)}/acknowledge"
    answer = _changed("POST", url, path, token_file, ("feedback",), {"note": note, "by": whoever(by)})
    _say(f"acknowledged: {answer['feedback']['incident_id']}, by {answer['feedback']['by']}")


def dismiss(
    incident: Annotated[str, typer.Argument(help="Incident, such as gpu068@1767225240.")],
    reason: Annotated[str, typer.Option("--reason", help="Why it is a false alarm; kept as feedback.")],
    by: ByOption = None,
    url: UrlOption = SERVICE,
    token_file: TokenFileOption = None,
) -> None:
    """Dismiss an incident as a false alarm: it is no suspect, unless there is other evidence."""
    path = f"/v1/incidents/{in_path(incident)}/dismiss"
    answer = _changed("POST", url, path, token_file, ("feedback",), {"reason": reason, "by": whoever(by)})
    _say(f"dismissed: {answer['feedback']['incident_id']}, by {answer['feedback']['by']}")


def repaired(
    node: Annotated[str, typer.Argument(help="Name of the node.")],
    note: NoteOption = "",
    by: ByOption = None,
    url: UrlOption = SERVICE,
    token_file: TokenFileOption = None,
) -> None:
    """Set a node healthy after its repair: its incident is cleared, and it is judged afresh."""
    path = f"/v1/nodes/{in_path(node)}/repaired"
    answer = _changed("POST", url, path, token_file, ("node", "cleared"), {"note": note, "by": whoever(by)})
    cleared = f"cleared {answer['cleared']}" if answer["cleared"] else "it had no incident"
    _say(f"repaired: {answer['node']}, {cleared}; it is judged afresh")


def mute(
    reason: Annotated[str, typer.Option("--reason", help="Why.")],
    node: Annotated[str, typer.Option(help="Node, exactly.")] = "",
    pool: Annotated[str, typer.Option(help="Pool, exactly.")] = "",
    metric: Annotated[str, typer.Option(help="Metric that is no evidence meanwhile.")] = "",
    apart: Annotated[
        bool, typer.Option("--apart", help="Out of its pool meanwhile: the node is nobody's peer.")
    ] = False,
    for_: Annotated[str | None, typer.Option("--for", help="How long: 2h, 1d12h, 90m.")] = None,
    until: Annotated[str | None, typer.Option(help="End: epoch seconds or ISO 8601.")] = None,
    start: Annotated[
        str | None, typer.Option(help="Begin of a maintenance window: epoch seconds or ISO 8601; else now.")
    ] = None,
    note: NoteOption = "",
    by: ByOption = None,
    url: UrlOption = SERVICE,
    token_file: TokenFileOption = None,
) -> None:
    """Mute a node, a pool, a metric or a combination for a while; with --start a maintenance window."""
    if (for_ is None) == (until is None):
        raise OddnodeError("give the end of the mute: --for 2h or --until TIME, one of them")
    sent: dict[str, Any] = {
        "node": node, "pool": pool, "metric": metric, "reason": reason, "note": note, "by": whoever(by),
    }  # fmt: skip
    if apart:
        sent["apart"] = True
    if start is not None:
        sent["start"] = moment_of(start, "--start")
    if for_ is not None:
        sent["for_s"] = seconds_of(for_)
    if until is not None:
        sent["until"] = moment_of(until, "--until")
    made = _changed("POST", url, "/v1/mutes", token_file, ("mute",), sent)["mute"]
    _say(f"{'planned' if made['state'] == 'planned' else 'muted'}: {line_of(made)}")


def unmute(
    mute_id: Annotated[str, typer.Argument(metavar="ID", help="The mute, as `oddnode mutes` shows it.")],
    note: NoteOption = "",
    by: ByOption = None,
    url: UrlOption = SERVICE,
    token_file: TokenFileOption = None,
) -> None:
    """End a mute, or call off a maintenance window."""
    path, parameters = f"/v1/mutes/{in_path(mute_id)}", {"by": whoever(by), "note": note}
    answer = _changed("DELETE", url, path, token_file, ("mute",), parameters=parameters)
    _say(f"ended: {line_of(answer['mute'])}")


def mutes(
    ended: Annotated[bool, typer.Option("--ended", help="Also those that are over.")] = False,
    url: UrlOption = SERVICE,
    token_file: TokenFileOption = None,
) -> None:
    """List what is muted and what is planned."""
    address = f"{url.rstrip('/')}/v1/mutes"
    status, body = ask(address, {"limit": str(MAX_SHOWN), "ended": str(ended).lower()}, token_file=token_file)
    answer = parsed(address, status, body, "mutes", "total")
    if not answer["mutes"]:
        _say("nothing is muted")
    for one in answer["mutes"]:
        _say(f"{one['state']}: {line_of(one)}")
    if answer["total"] > len(answer["mutes"]):
        _say(f"and {answer['total'] - len(answer['mutes'])} more")


def line_of(one: dict[str, Any]) -> str:
    """Put one mute into a line."""
    what = ", ".join(f"{kind} {one[kind]}" for kind in ("node", "pool", "metric") if one[kind])
    what += ", apart" if one.get("apart") else ""
    end = one["until"] if one["ended_at"] is None else one["ended_at"]
    span = f"{utc_minute(one['start'])} to {utc_minute(end)}"
    return f"{one['id']} {what}, {span}, {one['by']}: {one['reason']}"


def seconds_of(text: str, option: str = "--for") -> float:
    """Return seconds of ``2h``, ``1d12h``, ``90m``.

    Raises
    ------
    OddnodeError
        When it is none of that.
    """
    found = _FOR.fullmatch(text.strip())
    if found is None or len(text) > 40:
        raise OddnodeError(f"{option} {text!r} is no time such as 2h, 1d12h or 90m")
    return sum(float(n or 0) * s for n, s in zip(found.groups(), (86400, 3600, 60, 1), strict=True))


def parsed(address: str, status: int, body: bytes, *names: str) -> dict[str, Any]:
    """Return an answer of the service that has all of `names`.

    Raises
    ------
    OddnodeError
        With the service's own sentence when it refused.
    """
    if not 200 <= status < 300:
        told = message_of(body) or "is it an Oddnode service of this version?"
        raise OddnodeError(f"{address}: answered {status}: {told}")
    try:
        found: dict[str, Any] | None = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError):
        found = None
    if found is None or not found.keys() >= set(names):
        raise OddnodeError(f"{address}: the answer is not that of an Oddnode service")
    return found


def _changed(
    method: str,
    url: str,
    path: str,
    token_file: Path | None,
    names: tuple[str, ...],
    sent: dict[str, Any] | None = None,
    *,
    parameters: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Ask for a change, once more when an evaluation was in the way; the answer has all of `names`."""
    address = f"{url.rstrip('/')}{path}"
    for attempt in range(3):
        status, body = send(method, address, sent, parameters=parameters, token_file=token_file)
        if status != 503 or attempt == 2:
            break
        time.sleep(2.0)
    return parsed(address, status, body, *names)


def in_path(text: str) -> str:
    """Return a name as a part of an address."""
    if not text.strip():
        raise OddnodeError("the name must not be empty")
    return quote(text, safe="@")


def whoever(by: str | None) -> str:
    """Return who acts: the name given, else that of the user."""
    if by is not None:
        return by
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""


def _say(text: str) -> None:
    Console().print(printable(text), markup=False, highlight=False, soft_wrap=True)
