"""`gpuferry status`."""

from __future__ import annotations

import json
import sys

from gpuferry.guest.units import format_size
from gpuferry.specs._generated import control_pb2
from rich.console import Group
from rich.live import Live
from rich.text import Text

from ..policy.portion import FULL, Portion
from ..views.stats.plain import status_json, word
from . import terminal, turns
from .client import looks, monitor_client
from .errors import plain
from .grid import Gives, Grid, left, names, right


def _age(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s" if minutes else f"{seconds:.1f}s"


_ELSEWHERE = {
    control_pb2.RESIDENCY_LEAVING: " (leaving)",
    control_pb2.RESIDENCY_HOST: " (in host memory)",
    control_pb2.RESIDENCY_DISK: " (on disk)",
    control_pb2.RESIDENCY_RETURNING: " (returning)",
}


def devices_of(session: control_pb2.Session) -> list[int]:
    """The devices that a session is on; none while it is in a file."""
    return list(session.devices) or ([session.device] if session.HasField("device") else [])


def place_of(session: control_pb2.Session) -> str:
    """The devices that a session is on, or where else it is, in a few characters."""
    if session.state == control_pb2.SESSION_STATE_SUSPENDED:
        return "in a file"
    if session.state == control_pb2.SESSION_STATE_MOVED:
        return f"→ {session.where}"
    device = ",".join(map(str, devices_of(session))) or "-"
    if session.state == control_pb2.SESSION_STATE_MIGRATING:
        return f"{device} moving"
    return device + _ELSEWHERE.get(session.residency, "")


def asked_for(one: control_pb2.Session | control_pb2.Waiting) -> str:
    """The part of a GPU's time and the labels that a session has, or waits for; "-" if none."""
    said = one.portion
    labels = (said.affinity, said.anti_affinity, said.exclusion)
    return Portion(said.request, said.limit or FULL, *labels).shown() or "-"


def _devices(reply: control_pb2.StatusReply) -> Grid:
    table = Grid(
        left("id"),
        *names("name"),
        left("state"),
        right("memory"),
        right("granted"),
        right("default quota", Gives.WAY),
        right("promised", Gives.WAY),
        right("pool"),
        right("idle"),
        title="Devices",
    )
    for device in reply.devices:
        kind = " (simulated)" if device.simulated and "imulated" not in device.name else ""
        table.add_row(
            str(device.ordinal),
            (device.name or "-") + kind,
            word(control_pb2.DeviceState.DESCRIPTOR, device.state),
            format_size(device.memory_total),
            format_size(device.memory_granted),
            format_size(device.default_quota),
            f"{device.time_promised / FULL:.0%}",
            str(device.pool_size),
            str(device.pool_idle),
        )
    return table


def _servers(reply: control_pb2.StatusReply) -> Grid:
    columns = (right("pid"), right("device"), left("state"), right("session"), right("memory"), right("age"))
    table = Grid(*columns, title="API servers")
    for server in reply.servers:
        state = word(control_pb2.ServerState.DESCRIPTOR, server.state)
        session = str(server.session) if server.session else "-"
        memory = format_size(server.rss) if server.rss else "-"
        table.add_row(str(server.pid), str(server.device), state, session, memory, _age(server.age_seconds))
    return table


def _sessions(reply: control_pb2.StatusReply) -> Grid:
    table = Grid(
        right("id"),
        *names("program", "function"),
        right("pid"),
        right("device"),
        right("memory"),
        left("asked for", Gives.WAY),
        right("calls", Gives.WAY),
        right("in", Gives.WAY),
        right("out", Gives.WAY),
        right("age"),
        title="Sessions",
    )
    for session in reply.sessions:
        table.add_row(
            str(session.id),
            session.program or "-",
            session.function or "-",
            str(session.guest_pid),
            place_of(session),
            f"{format_size(session.memory_mapped)} of {format_size(session.memory_quota)}",
            asked_for(session),
            f"{session.calls_async + session.calls_sync:,}",
            format_size(session.bytes_in),
            format_size(session.bytes_out),
            _age(session.age_seconds),
        )
    return table


def _turns(reply: control_pb2.StatusReply) -> list[Text | Grid]:
    """A line for each GPU whose sessions take turns, and a table of those; nothing if there are none."""
    heads = [Text(turns.head(device)) for device in reply.devices if device.HasField("turns")]
    those = [session for session in reply.sessions if session.HasField("turns")]
    if not heads:
        return []
    table = Grid(*turns.COLUMNS, title="Turns")
    for session in those:
        table.add_row(*turns.row(session))
    return [Text(), *heads, *([table] if those else [])]


def _migrations(reply: control_pb2.StatusReply) -> Grid:
    table = Grid(
        right("session"),
        left("from"),
        left("to"),
        left("state"),
        right("bytes", Gives.WAY),
        right("pause"),
        right("took"),
        right("ago", Gives.WAY),
        left("why not", Gives.LINES),
        title="Migrations",
    )
    for one in reply.migrations:
        state = word(control_pb2.MigrationState.DESCRIPTOR, one.state)
        pause = f"{one.downtime_seconds * 1000:.1f} ms" if one.downtime_seconds else "-"
        table.add_row(
            str(one.session),
            one.source,
            one.target,
            state,
            format_size(one.bytes),
            pause,
            f"{one.seconds:.2f}s",
            _age(one.started_seconds_ago),
            one.reason or "-",
        )
    return table


def _queue(reply: control_pb2.StatusReply) -> Grid:
    table = Grid(
        right("place"),
        *names("program", "function"),
        right("pid"),
        right("memory"),
        left("asks for", Gives.WAY),
        right("waits"),
        left("why", Gives.LINES),
        title="Queue",
    )
    for place, waiting in enumerate(reply.queue, 1):
        memory = format_size(waiting.memory) if waiting.memory else "default"
        table.add_row(
            str(place),
            waiting.program or "-",
            waiting.function or "-",
            str(waiting.guest_pid),
            memory,
            asked_for(waiting),
            _age(waiting.waited_seconds),
            waiting.reason or "others are before it",
        )
    return table


def render(reply: control_pb2.StatusReply) -> Group:
    """The status as tables for a terminal."""
    info = reply.monitor
    where = ", ".join(info.listening)
    head = f"monitor {info.pid}, gpuferry {info.version}, up {_age(info.uptime_seconds)}, on {where}"
    parts: list[Text | Grid] = [Text(plain(head)), Text(), _devices(reply), Text(), _servers(reply)]
    parts[3:3] = [Text(plain(f"device {d.ordinal}: {d.problem}")) for d in reply.devices if d.problem]
    parts += [Text(), _sessions(reply)] if reply.sessions else [Text(), Text("no sessions")]
    parts += _turns(reply)
    if reply.queue:
        parts += [Text(), _queue(reply)]
    if reply.migrations:
        parts += [Text(), _migrations(reply)]
    return Group(*parts)


def _print_json(reply: control_pb2.StatusReply, indent: int | None) -> None:
    print(json.dumps(status_json(reply), indent=indent), flush=True)


def show_status(
    control: str | None, token_file: str | None, json_wanted: bool, interval: float | None, timeout: float
) -> None:
    """Print the status once, or each `interval` seconds until interrupted."""
    console = terminal.console()
    with monitor_client(control, token_file) as (stub, metadata):
        if interval is None:
            reply = stub.Status(control_pb2.StatusRequest(), metadata=metadata, timeout=timeout)
            if json_wanted:
                _print_json(reply, 2)
            else:
                console.print(render(reply))
            return
        replies = looks(stub, metadata, interval, timeout)
        if json_wanted or not sys.stdout.isatty():
            for reply in replies:
                _print_json(reply, None) if json_wanted else console.print(render(reply))
            return
        with Live(console=console, auto_refresh=False) as live:
            for reply in replies:
                live.update(render(reply), refresh=True)
