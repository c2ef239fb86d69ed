"""`gpuferry top`: what the page shows, in a terminal."""

from __future__ import annotations

import json
import sys
from collections import deque

from gpuferry.guest.units import format_size
from gpuferry.specs._generated import control_pb2
from rich.console import Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from ..views.stats.plain import status_json
from . import terminal, turns
from .client import looks, monitor_client
from .errors import plain
from .grid import Gives, Grid, left, names, right
from .status import place_of

BARS = "▁▂▃▄▅▆▇█"
METER = 18  # characters
PAST = 40  # looks in a sparkline
COUNTERS = ("calls_async", "calls_sync", "bytes_in", "bytes_out", "busy_seconds")
COLUMNS = (
    right("id"),
    *names("program", "function"),
    right("GPU"),
    right("memory"),
    right("calls/s"),
    right("in/s", Gives.WAY),
    right("out/s", Gives.WAY),
    right("busy"),
    right("share", Gives.WAY),
    left("turn", Gives.WAY),
    right("age", Gives.WAY),
)
STATES = {
    control_pb2.DEVICE_STATE_STARTING: ("starting", "yellow"),
    control_pb2.DEVICE_STATE_UP: ("up", "green"),
    control_pb2.DEVICE_STATE_FAILING: ("failing", "bold red"),
    control_pb2.DEVICE_STATE_LOST: ("LOST", "bold white on red"),
}


def _age(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s" if minutes else f"{seconds:.0f}s"


def meter(part: float, width: int = METER) -> Text:
    """A bar of `part` (0 to 1) as wide as so many characters, in steps of an eighth."""
    full, rest = divmod(round(max(0.0, min(part, 1.0)) * width * 8), 8)
    bar = "█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")
    return Text(f"{bar:<{width}}", style="magenta on grey23")


def sparkline(values: deque[float | None]) -> Text:
    """The past values as a row of bars, the newest on the right; a gap where nothing is known."""
    line = "".join(" " if v is None else BARS[min(int(v * len(BARS)), len(BARS) - 1)] for v in values)
    return Text(f"{line:>{PAST}}", style="cyan")


def _rates(old: control_pb2.Session | None, new: control_pb2.Session, seconds: float) -> dict[str, float]:
    """Per second, since the look before."""
    if old is None or seconds <= 0:
        return dict.fromkeys(COUNTERS, 0.0)
    return {name: max(getattr(new, name) - getattr(old, name), 0) / seconds for name in COUNTERS}


class View:
    """What is shown, and what rates and sparklines need of the looks before."""

    def __init__(self) -> None:
        self._past: dict[int, deque[float | None]] = {}
        self._before: control_pb2.StatusReply | None = None

    def render(self, reply: control_pb2.StatusReply) -> RenderableType:
        """The next picture, from this status and those before."""
        parts: list[RenderableType] = [self._head(reply), *self._notices(reply), Text(), self._gpus(reply)]
        parts += [Text(), self._sessions(reply)]
        if reply.queue:
            parts += [Text(), self._queue(reply)]
        self._before = reply
        return Group(*parts)

    def _head(self, reply: control_pb2.StatusReply) -> Text:
        info = reply.monitor
        idle = sum(server.state == control_pb2.SERVER_STATE_IDLE for server in reply.servers)
        head = Text.assemble(
            (info.hostname or "gpuferry", "bold"),
            f"  up {_age(info.uptime_seconds)}   sessions ",
            (str(len(reply.sessions)), "bold"),
            f" ({info.sessions_granted} so far)   waiting ",
            (str(len(reply.queue)), "bold"),
            f"   API servers idle {idle} of {len(reply.servers)}",
        )
        if info.http:
            page = info.http if "://" in info.http else f"http://{info.http}"
            head.append(f"   {page}", style="dim")
        return head

    def _notices(self, reply: control_pb2.StatusReply) -> list[RenderableType]:
        texts = []
        if reply.monitor.draining:
            texts.append(f"drained: no new sessions, {len(reply.sessions)} that run may end")
        for device in reply.devices:
            if device.state == control_pb2.DEVICE_STATE_LOST:
                texts.append(f"GPU {device.ordinal} is lost: the driver cannot reach it")
            if device.state == control_pb2.DEVICE_STATE_FAILING:
                why = device.problem or "the monitor's log says why"
                texts.append(f"GPU {device.ordinal} starts no API server: {why}")
        if reply.monitor.gpu_stats_problem:
            texts.append(f"no figures of the devices: {reply.monitor.gpu_stats_problem}")
        return [Panel(Text(plain("\n".join(texts))), style="yellow", expand=False)] if texts else []

    def _gpus(self, reply: control_pb2.StatusReply) -> Grid:
        table = Grid(
            right("GPU"),
            *names("name"),
            left("state"),
            left("utilisation", Gives.WAY),
            right(""),
            left("memory", Gives.WAY),
            left("used / total"),
            left("granted"),
            left("°C", Gives.WAY),
            left("W", Gives.WAY),
            header_style="dim",
        )
        for device in reply.devices:
            past = self._past.setdefault(device.ordinal, deque(maxlen=PAST))
            busy = device.utilization if device.HasField("utilization") else None
            past.append(busy)
            used = device.memory_used if device.HasField("memory_used") else None
            word, style = STATES.get(device.state, ("?", ""))
            table.add_row(
                str(device.ordinal),
                device.name or "starting …",
                Text(word, style=style),
                sparkline(past),
                "–" if busy is None else f"{busy:.0%}",
                meter((used or 0) / (device.memory_total or 1)),
                f"{'–' if used is None else format_size(used)} / {format_size(device.memory_total)}",
                format_size(device.memory_granted),
                f"{device.temperature:.0f}" if device.HasField("temperature") else "–",
                f"{device.power:.0f}" if device.HasField("power") else "–",
            )
        return table

    def _sessions(self, reply: control_pb2.StatusReply) -> RenderableType:
        if not reply.sessions:
            return Text("no sessions", style="dim")
        before = self._before
        seconds = reply.monitor.uptime_seconds - before.monitor.uptime_seconds if before else 0.0
        earlier = {session.id: session for session in before.sessions} if before else {}
        table = Grid(*COLUMNS, header_style="dim")
        for session in reply.sessions:
            rate = _rates(earlier.get(session.id), session, seconds)
            table.add_row(
                str(session.id),
                Text.assemble(session.program or "-", (" disconnected" * session.disconnected, "yellow")),
                Text(session.function or "-"),
                place_of(session),
                f"{format_size(session.memory_mapped)} of {format_size(session.memory_quota)}",
                f"{rate['calls_async'] + rate['calls_sync']:,.0f}",
                format_size(int(rate["bytes_in"])),
                format_size(int(rate["bytes_out"])),
                f"{min(rate['busy_seconds'], 1):.0%}",
                turns.share(session),
                turns.state(session.turns),
                _age(session.age_seconds),
            )
        return table

    def _queue(self, reply: control_pb2.StatusReply) -> Grid:
        columns = left("waits"), *names("program", "function"), left("asks for"), left("since")
        table = Grid(*columns, header_style="dim")
        for place, waiting in enumerate(reply.queue, 1):
            memory = format_size(waiting.memory) if waiting.memory else "default"
            program, function = Text(waiting.program or "-"), Text(waiting.function or "-")
            table.add_row(str(place), program, function, memory, _age(waiting.waited_seconds))
        return table


def show_top(
    control: str | None, token_file: str | None, json_wanted: bool, interval: float, timeout: float
) -> None:
    """Show the picture until interrupted; once if nobody could see a second one."""
    with monitor_client(control, token_file) as (stub, metadata):
        if json_wanted or not sys.stdout.isatty():
            reply = stub.Status(control_pb2.StatusRequest(), metadata=metadata, timeout=timeout)
            if json_wanted:
                print(json.dumps(status_json(reply), indent=2))
            else:
                terminal.plain(160).print(View().render(reply))
            return
        view = View()
        with Live(console=terminal.plain(), auto_refresh=False, screen=True) as live:
            for reply in looks(stub, metadata, interval, timeout):
                live.update(view.render(reply), refresh=True)
