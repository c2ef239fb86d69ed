"""`gpuferry session list|show|kill|suspend|resume|evict|recall|inspect`."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from gpuferry.guest.units import format_size

from .errors import CliError, Exit
from .parameters import SECONDS_MOST, Control, Json, Number, TokenFile

app = typer.Typer(help="Sessions of a monitor, running and waiting.", no_args_is_help=True)

SCHEMA = "gpuferry.sessions/1"
Limit = Annotated[
    float,
    typer.Option(
        "--timeout", min=0, max=SECONDS_MOST, metavar="SECONDS", help="Then it is given up; 0: never"
    ),
]
TIMEOUT = 5.0  # seconds for an answer
_STATES = {
    "running": "running on gpu:{device}",
    "migrating": "moving from gpu:{device}",
    "suspended": "suspended",
    "moved": "moved to {where}",
    "waiting": "waiting, place {place}",
}
_ELSEWHERE = {
    "leaving": "its memory leaving",
    "host": "its memory in host memory",
    "disk": "its memory on disk",
    "returning": "its memory returning",
}
_DISCONNECTED = {"running": "disconnected on gpu:{device}", "suspended": "suspended, disconnected"}


def _fetch(control: str | None, token_file: str | None) -> list[dict[str, Any]]:
    """Running sessions, then waiting ones by their place."""
    from gpuferry.specs._generated import control_pb2

    from ..views.stats.plain import as_json
    from .client import monitor_client

    with monitor_client(control, token_file) as (stub, metadata):
        reply = stub.Status(control_pb2.StatusRequest(), metadata=metadata, timeout=TIMEOUT)
    running = [as_json(session) for session in reply.sessions]
    queue = [as_json(waiting) for waiting in reply.queue]
    waiting = [{"state": "waiting", "id": w.pop("session"), "place": n} | w for n, w in enumerate(queue, 1)]
    return running + waiting


@app.command("list")
def show_all(
    waiting: Annotated[bool, typer.Option("--waiting", help="Only those that wait, and why")] = False,
    control: Control = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Print all sessions, and those that wait."""
    from . import terminal
    from .grid import Gives, Grid, left, names

    sessions = _fetch(control, token_file)
    if waiting:
        sessions = [one for one in sessions if one["state"] == "waiting"]
    if as_json:
        print(json.dumps({"schema": SCHEMA, "sessions": sessions}, indent=2))
        return
    columns = [left("id"), left("lease", Gives.WAY), left("state")]
    columns += names("program", "function", "tenant")
    columns += [left("pid"), left("from", Gives.WAY), *([left("why", Gives.LINES)] if waiting else [])]
    table = Grid(*columns)
    # Processes of one program, which share a lease, stand together.
    for one in sorted(sessions, key=lambda one: (one["state"] == "waiting", one.get("lease", 0))):
        states = _STATES | _DISCONNECTED if one.get("disconnected") else _STATES
        named = one | {"device": ",".join(map(str, one.get("devices") or [one.get("device")]))}
        state = states.get(one["state"], one["state"]).format(**named)  # a newer monitor has others
        if one.get("residency") in _ELSEWHERE:
            state = f"{state}, {_ELSEWHERE[one['residency']]}"
        if one.get("stays"):
            state = f"{state} (its memory stays: {one['stays']})"
        whose = (one["program"], one["function"] or "-", one["tenant"] or "-")
        table.add_row(
            str(one["id"]),
            str(one.get("lease") or "-"),
            state,
            *whose,
            str(one["guest_pid"]),
            one.get("peer", "-"),
            *([one["reason"] or "others are before it"] if waiting else []),
        )
    terminal.console().print(table if sessions else "nobody waits" if waiting else "no sessions")


@app.command()
def show(
    session: Number, control: Control = None, token_file: TokenFile = None, as_json: Json = False
) -> None:
    """Print everything that is known of one session."""
    found = [one for one in _fetch(control, token_file) if one["id"] == session]
    if not found:
        raise CliError(Exit.NOT_FOUND, f"there is no session {session}", "see `gpuferry session list`")
    if as_json:
        print(json.dumps({"schema": SCHEMA, "sessions": found}, indent=2))
        return
    for name, value in found[0].items():
        print(f"{name:20} {value}")


@app.command()
def kill(
    session: Number,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="What its program is told")] = "",
    control: Control = None,
    token_file: TokenFile = None,
) -> None:
    """End a session, and those of all processes that share its lease. Its program gets a CUDA error, and the
    reason on stderr.
    """
    from gpuferry.specs._generated import control_pb2

    from .client import monitor_client

    with monitor_client(control, token_file) as (stub, metadata):
        request = control_pb2.EndSessionRequest(session=session, reason=reason)
        stub.EndSession(request, metadata=metadata, timeout=TIMEOUT)
    print(f"session {session} ended")


@app.command()
def suspend(
    session: Number,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A new file, on the monitor's machine")],
    timeout: Limit = 0.0,
    control: Control = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Put a session into a file. Its GPU is free, and its program waits at its next CUDA call."""
    from .migrate import suspend as put_away

    put_away(session, file, timeout, control, token_file, as_json)


@app.command()
def resume(
    file: Annotated[str, typer.Argument(metavar="FILE", help="As given to `session suspend`")],
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="gpu:N|gpu:any|SERVER", help="Another GPU, or GPU server; default: any GPU here"
        ),
    ] = None,
    timeout: Limit = 0.0,
    allow_unencrypted: Annotated[
        bool, typer.Option("--allow-unencrypted", help="It is a file of gpuferry 0.1, and you trust it")
    ] = False,
    control: Control = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Let a session that is suspended in a file go on."""
    from .migrate import resume as take_up

    take_up(file, to, timeout, allow_unencrypted, control, token_file, as_json)


@app.command()
def evict(session: Number, control: Control = None, token_file: TokenFile = None) -> None:
    """Send a session's memory away from its GPU. It is back there before its program's next work."""
    from gpuferry.specs._generated import control_pb2

    from .client import attended, monitor_client

    with monitor_client(control, token_file) as (stub, metadata):
        call = stub.EvictSession.future(control_pb2.EvictSessionRequest(session=session), metadata=metadata)
        with attended(call, stub, metadata):
            reply = call.result()
    print(
        f"session {session} left its GPU: {format_size(reply.bytes)}, of which "
        f"{format_size(reply.copied_bytes)} had to be copied, in {1000 * reply.seconds:.1f} ms"
    )


@app.command()
def recall(
    session: Number,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", min=0.01, max=SECONDS_MOST, metavar="SECONDS", help="For room on its GPU, in all"
        ),
    ] = 30.0,
    control: Control = None,
    token_file: TokenFile = None,
) -> None:
    """Bring a session's memory back to its GPU."""
    from gpuferry.specs._generated import control_pb2

    from .client import attended, monitor_client

    with monitor_client(control, token_file) as (stub, metadata):
        request = control_pb2.RecallSessionRequest(session=session, timeout_seconds=timeout)
        call = stub.RecallSession.future(request, metadata=metadata)
        with attended(call, stub, metadata):
            reply = call.result()
    print(f"session {session} is on its GPU again, after {1000 * reply.seconds:.1f} ms")


@app.command()
def inspect(
    file: Annotated[str, typer.Argument(metavar="FILE", help="On the monitor's machine")],
    control: Control = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Print whose session a file holds. This GPU server's key proves it."""
    from .migrate import inspect as look

    look(file, control, token_file, as_json)
