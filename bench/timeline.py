"""A session watched through its monitor's control port: where it is, how far it got, and how it moves."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import grpc
from gpuferry.monitor.views.stats.plain import word
from gpuferry.specs._generated import control_pb2, control_pb2_grpc, migration_pb2
from matplotlib.figure import Figure

from tests.helpers.monitor import Monitor

INTERVAL = 0.1  # seconds between looks; the monitor allows no less


@dataclass(frozen=True)
class Look:
    """What the monitor said of the session at one moment."""

    time: float  # time.monotonic()
    device: int
    launches: int


@dataclass(frozen=True)
class Move:
    """One migration, and when it was over."""

    time: float
    report: Any  # migration_pb2.Report


@dataclass
class Timeline:
    """All looks at one session, and its moves."""

    looks: list[Look] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)


class Control:
    """A client of the monitor's gRPC service."""

    def __init__(self, server: Monitor, channel: grpc.Channel) -> None:
        self._stub = control_pb2_grpc.MonitorStub(channel)
        self._metadata = (("authorization", f"Bearer {server.token}"),)

    def watch(self) -> Iterator[Any]:
        """Replies of WatchStatus for as long as the channel is open."""
        request = control_pb2.WatchStatusRequest(interval_seconds=INTERVAL)
        try:
            yield from self._stub.WatchStatus(request, metadata=self._metadata)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.CANCELLED:
                raise

    def migrate(self, session: int, device: int) -> Any:
        """Move a session, and return the monitor's last word: a control_pb2.Migration."""
        request = control_pb2.MigrateRequest(session=session, device=device)
        steps = list(self._stub.Migrate(request, metadata=self._metadata))
        return steps[-1] if steps else None


@contextmanager
def control(server: Monitor) -> Iterator[Control]:
    """A Control for this monitor, within this context."""
    with grpc.insecure_channel(server.control) as channel:
        yield Control(server, channel)


@contextmanager
def follow_and_move(server: Monitor, at: int) -> Iterator[Timeline]:
    """Within this context, watch the only session, and move it to device 1 once it has launched so many
    kernels.
    """
    timeline = Timeline()

    def watch(port: Control) -> None:
        moving: Future[None] | None = None
        for status in port.watch():
            for session in status.sessions:
                if not session.HasField("device"):
                    continue
                timeline.looks.append(Look(time.monotonic(), session.device, session.launches))
                if session.launches >= at and not moving:
                    moving = threads.submit(move, port, session.id)
        if moving:
            moving.result()

    def move(port: Control, session: int) -> None:
        moved = port.migrate(session, 1)
        if moved is None or moved.state != control_pb2.MIGRATION_STATE_DONE:
            raise RuntimeError(f"the session did not move: {moved.reason if moved else 'no answer'}")
        timeline.moves.append(Move(time.monotonic(), moved.report))

    with ThreadPoolExecutor(2) as threads:
        with control(server) as port:
            watching = threads.submit(watch, port)
            yield timeline
            time.sleep(INTERVAL)  # one more look
        watching.result()


def draw(path: Path, timeline: Timeline, title: str) -> None:
    """Write a PNG: kernels launched over time, a colour for each device, the pause of each move as a bar."""
    begin = timeline.looks[0].time
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    axes = figure.subplots()
    colours = ("tab:blue", "tab:orange", "tab:green", "tab:red")
    looks = timeline.looks
    shown: set[int] = set()
    for one, other in pairwise(looks):
        label = f"GPU {other.device}" if other.device not in shown else None
        shown.add(other.device)
        times, launches = (one.time - begin, other.time - begin), (one.launches, other.launches)
        axes.plot(times, launches, color=colours[other.device % len(colours)], linewidth=2.5, label=label)
    for move in timeline.moves:
        end = move.time - begin
        pause, whole = move.report.pause_seconds, move.report.seconds
        axes.axvspan(end - whole, end, color="0.9", label=f"migration, {whole * 1000:.0f} ms in all")
        axes.axvspan(end - pause, end, color="tab:red", alpha=0.6, label=f"pause, {pause * 1000:.1f} ms")
        phases = [
            f"{word(migration_pb2.Phase.DESCRIPTOR, one.phase).replace('_', ' ')} {one.seconds * 1000:.1f} ms"
            for one in move.report.phases
        ]
        text = "\n".join([f"{move.report.copied_bytes / (1 << 20):.0f} MiB copied", *phases])
        axes.annotate(
            text,
            (end, 0),
            (6, 4),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            fontsize=7,
            va="bottom",
        )
    axes.set(title=title, xlabel="seconds", ylabel="kernels launched")
    axes.legend(loc="upper left", frameon=False)
    figure.savefig(path, format="png", dpi=120)
