"""`gpuferry migrate`, `gpuferry session suspend` and `gpuferry session resume`: a session goes elsewhere."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
from gpuferry.guest.units import format_size
from gpuferry.specs._generated import control_pb2, migration_pb2

from ..service.dial import stays_here
from ..views.stats.plain import as_json, word
from .client import NOT_FOUND, Metadata, attended, monitor_client
from .errors import CliError, Exit, say
from .reach import locate

SCHEMA = "gpuferry.migration/1"
FILE_SCHEMA = "gpuferry.file/1"
NO_FILE = "it is looked for on the monitor's machine, by the name that `gpuferry session suspend` was given"
INSPECT_SECONDS = 5.0  # for an answer
GPU = re.compile(r"gpu:(\d{1,9}(?:,\d{1,9})*)")
ANY = "gpu:any"

Stub = Any
Call = Callable[[Stub, Metadata], Any]  # of whose answers each is a Migration


def target(text: str) -> dict[str, Any]:
    """The target that a user means by `gpu:1`, `gpu:2,3`, `gpu:any`, a GPU server's name, or HOST:PORT."""
    if found := GPU.fullmatch(text):
        device, *more = map(int, found[1].split(","))
        return {"device": device, "more": more} if more else {"device": device}
    if text == ANY:
        return {"any": True}
    if not text or text.startswith("gpu:"):
        raise CliError(Exit.USAGE, f"--to {text!r}: no target", "as in gpu:1, gpu-server-b or host:7700")
    return {"server": text}


def _phase(one: control_pb2.Migration) -> str:
    return word(migration_pb2.Phase.DESCRIPTOR, one.phase).replace("_", " ")


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"


def report(one: control_pb2.Migration) -> str:
    """One line about a migration that is done: how it was copied, how long the pause was."""
    there = f"; it is session {one.session_there} there" if one.session_there else ""
    lines = [f"session {one.session}: {one.source} → {one.target} in {one.seconds:.2f} s{there}"]
    if not one.HasField("report"):
        return lines[0]
    found = one.report
    how = [word(migration_pb2.Strategy.DESCRIPTOR, found.strategy)]
    how += [f"{found.rounds} round{'s' * (found.rounds > 1)}"] if found.rounds else []
    memory = [f"{format_size(found.copied_bytes)} copied"]
    memory += [f"{format_size(found.mapped_bytes)} mapped"] if found.mapped_bytes else []
    if found.pause_seconds:
        lines.append(
            f"  pause   {_milliseconds(found.pause_seconds)}, {format_size(found.pause_bytes)} in it"
        )
    lines.append(f"  memory  {', '.join(memory)}" + (f" ({', '.join(how)})" if found.strategy else ""))
    if found.phases:
        names = [word(migration_pb2.Phase.DESCRIPTOR, one.phase) for one in found.phases]
        times = [_milliseconds(one.seconds) for one in found.phases]
        pairs = [f"{name.replace('_', ' ')} {time}" for name, time in zip(names, times, strict=True)]
        lines.append(f"  phases  {', '.join(pairs)}")
    return "\n".join(lines)


def _with_json(steps: Iterator[control_pb2.Migration]) -> control_pb2.Migration | None:
    last = None
    for last in steps:
        print(json.dumps({"schema": SCHEMA} | as_json(last)), flush=True)
    return last


def _with_bar(steps: Iterator[control_pb2.Migration]) -> control_pb2.Migration | None:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

    last = None
    columns = (TextColumn("{task.description:11}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("prepare", total=None)
        for last in steps:
            done = min(last.bytes, last.bytes_total)
            bar.update(task, description=_phase(last), completed=done, total=last.bytes_total or None)
    return last


def _refused(error: grpc.RpcError, what: str) -> CliError | None:
    code, details = error.code(), error.details() or ""
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return CliError(Exit.NO_CAPACITY, f"{what}: {details}", "see `gpuferry status` for one with room")
    if code in (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.INVALID_ARGUMENT):
        return CliError(Exit.FAILED, f"{what}: {details}")
    return None


def follow(
    control: str | None,
    token_file: str | None,
    json_wanted: bool,
    what: str,
    still: str,
    call: Call,
    not_found: str = NOT_FOUND,
) -> control_pb2.Migration:
    """Show how a migration goes until it is done. Raises CliError, with where the session is `still`."""
    with monitor_client(control, token_file, not_found) as (stub, metadata):
        steps = call(stub, metadata)
        try:
            with attended(steps, stub, metadata):
                if json_wanted:
                    last = _with_json(steps)
                elif sys.stderr.isatty():
                    last = _with_bar(steps)
                else:
                    last = next(reversed(list(steps)), None)
        except KeyboardInterrupt:
            say("not waiting any longer; it goes on", "see `gpuferry session list` for how it ended")
            raise
        except grpc.RpcError as error:
            raise _refused(error, what) or error from None
    if last is None:
        raise CliError(Exit.FAILED, f"{what}: the monitor stopped", "see `gpuferry session list`")
    if last.state == control_pb2.MIGRATION_STATE_FAILED:
        raise CliError(Exit.FAILED, f"{what}: {last.reason}", still)
    if last.state == control_pb2.MIGRATION_STATE_RUNNING:
        raise CliError(
            Exit.UNREACHABLE,
            f"{what}: the monitor stopped",
            "API servers finish it alone: ask the next monitor",
        )
    return last


def migrate(
    session: int,
    to: str,
    strategy: str,
    dry_run: bool,
    timeout: float,
    control: str | None,
    token_file: str | None,
    json_wanted: bool,
) -> None:
    """Move a session to a device or another GPU server."""
    request = control_pb2.MigrateRequest(
        session=session,
        strategy=f"STRATEGY_{strategy.upper()}",
        timeout_seconds=timeout,
        dry_run=dry_run,
        **target(to),
    )
    what = f"session {session} cannot move to {to}"
    done = follow(
        control,
        token_file,
        json_wanted,
        what,
        "it goes on where it was",
        lambda stub, metadata: stub.Migrate(request, metadata=metadata),
    )
    if not json_wanted:
        print(f"session {session} could move to {done.target}" if dry_run else report(done))


def _check_room(path: str) -> None:
    if os.path.exists(path):
        raise CliError(Exit.USAGE, f"{path} exists already", "choose another name, or remove it")
    if not os.access(os.path.dirname(path), os.W_OK):
        raise CliError(Exit.USAGE, f"cannot write into {os.path.dirname(path)}", "choose another folder")


def suspend(
    session: int, file: str, timeout: float, control: str | None, token_file: str | None, json_wanted: bool
) -> None:
    """Put a session into a file that is not there yet."""
    path = os.path.abspath(os.path.expanduser(file))
    if stays_here(locate(control, token_file, "GPUFERRY_CONTROL").address):  # else it is another machine's
        _check_room(path)
    request = control_pb2.MigrateRequest(session=session, file=path, timeout_seconds=timeout)
    done = follow(
        control,
        token_file,
        json_wanted,
        f"session {session} cannot be suspended",
        "it goes on where it was",
        lambda stub, metadata: stub.Migrate(request, metadata=metadata),
    )
    if not json_wanted:
        print(report(done))
        print(f"its program waits at its next CUDA call; `gpuferry session resume {file}` lets it go on")


def resume(
    file: str,
    to: str | None,
    timeout: float,
    allow_unencrypted: bool,
    control: str | None,
    token_file: str | None,
    json_wanted: bool,
) -> None:
    """Bring a session out of its file, to any device."""
    path = os.path.abspath(os.path.expanduser(file))
    where = {} if to is None or to == ANY else target(to)
    if "more" in where:
        raise CliError(Exit.USAGE, f"--to {to}: a session comes out of a file on one GPU", "as in gpu:1")
    request = control_pb2.ResumeSessionRequest(
        file=path, timeout_seconds=timeout, allow_unencrypted=allow_unencrypted, **where
    )
    done = follow(
        control,
        token_file,
        json_wanted,
        f"the session in {file} cannot go on",
        "it is still suspended there",
        lambda stub, metadata: stub.ResumeSession(request, metadata=metadata),
        not_found=NO_FILE,
    )
    if not json_wanted:
        print(report(done))
        print(f"{file} is of no use any more: the program goes on from here")


def inspect(file: str, control: str | None, token_file: str | None, json_wanted: bool) -> None:
    """Print whose session is in a file."""
    path = os.path.abspath(os.path.expanduser(file))
    with monitor_client(control, token_file, NO_FILE) as (stub, metadata):
        request = control_pb2.InspectFileRequest(file=path)
        try:
            reply = stub.InspectFile(request, metadata=metadata, timeout=INSPECT_SECONDS)
        except grpc.RpcError as error:
            raise _refused(error, f"nothing can be said of {file}") or error from None
    found = as_json(reply.about) | {"file": path, "bytes": reply.size, "suspended": reply.suspended}
    if json_wanted:
        print(json.dumps({"schema": FILE_SCHEMA} | found, indent=2))
        return
    found["created"] = time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(reply.about.created))
    for name, value in found.items():
        print(f"{name:12} {value}")
