"""Programs that hold device memory, on a monitor whose device is smaller than all of them together."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import grpc
from gpuferry.monitor.views.stats.plain import word
from gpuferry.specs._generated import control_pb2, control_pb2_grpc

from tests.helpers import toolchain
from tests.helpers.monitor import Monitor
from tests.helpers.paths import ROOT
from tests.helpers.running import guest_environment
from tests.migration.gate import attempts

MIB = 1 << 20


class Lodger:
    """A program that works on its memory when it is told."""

    def __init__(self, server: Monitor, size: int, *extra: str, **settings: str) -> None:
        command = [str(toolchain.program(ROOT / "bench" / "micro" / "lodger.c")), str(size), *extra]
        environment = guest_environment(server.settings() | {"GPUFERRY_MEMORY": str(size)} | settings)
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )

    def ready(self) -> None:
        assert self._line() == "measured ready\n"

    def _line(self) -> str:
        assert self.process.stdout
        line = self.process.stdout.readline()
        while line and not line.startswith("measured "):
            line = self.process.stdout.readline()
        assert line, self.process.communicate()
        return line

    def begin(self, what: str = "w") -> None:
        """Tells it to work (w), or to read a word (r)."""
        assert self.process.stdin
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()

    def end(self) -> float:
        """Waits until that is done. Returns the seconds that it took."""
        return float(self._line().split()[-1])

    def work(self, what: str = "w") -> float:
        self.begin(what)
        return self.end()

    def finish(self) -> None:
        """It looks through all of its memory, and ends."""
        output, errors = self.process.communicate()
        assert self.process.returncode == 0, output + errors


@contextmanager
def lodgers(server: Monitor, sizes: list[int], *extra: str, **settings: str) -> Iterator[list[Lodger]]:
    """Started at once, and gone afterwards."""
    found = [Lodger(server, size, *extra, **settings) for size in sizes]
    try:
        yield found
    finally:
        for one in found:
            one.process.kill()
            one.process.communicate()


class Operator:
    """Somebody with the monitor's token."""

    def __init__(self, server: Monitor) -> None:
        self._metadata = (("authorization", f"Bearer {server.token}"),)
        self._channel = grpc.insecure_channel(server.control)
        self._stub = control_pb2_grpc.MonitorStub(self._channel)

    def close(self) -> None:
        self._channel.close()

    def status(self) -> control_pb2.StatusReply:
        return cast(control_pb2.StatusReply, self._call("Status", control_pb2.StatusRequest()))

    def evict(self, session: int) -> control_pb2.EvictSessionReply:
        request = control_pb2.EvictSessionRequest(session=session)
        return cast(control_pb2.EvictSessionReply, self._call("EvictSession", request))

    def recall(self, session: int, timeout: float = 0.0) -> control_pb2.RecallSessionReply:
        request = control_pb2.RecallSessionRequest(session=session, timeout_seconds=timeout)
        return cast(control_pb2.RecallSessionReply, self._call("RecallSession", request))

    def migrate(self, session: int, **target: Any) -> control_pb2.Migration:
        """To a device or into a file. Returns how it ended."""
        *_, last = self._call("Migrate", control_pb2.MigrateRequest(session=session, **target))
        return cast(control_pb2.Migration, last)

    def resume(self, file: Path, **target: Any) -> control_pb2.Migration:
        """Likewise, out of a file."""
        request = control_pb2.ResumeSessionRequest(file=str(file), **target)
        *_, last = self._call("ResumeSession", request)
        return cast(control_pb2.Migration, last)

    def _call(self, name: str, request: Any) -> Any:
        return getattr(self._stub, name)(request, metadata=self._metadata, timeout=120)

    def sessions(self) -> dict[int, control_pb2.Session]:
        return {session.id: session for session in self.status().sessions}

    def session(self) -> control_pb2.Session:
        (only,) = self.status().sessions
        return only

    def where(self, session: int) -> str:
        """Where its memory is: `resident`, `host`, `disk` …"""
        found = self.sessions()[session].residency
        return word(control_pb2.Residency.DESCRIPTOR, found)

    def until_at(self, *places: str) -> None:
        """Waits until the sessions' memory is there, in any order: a program goes on as soon as its memory is
        back, and the monitor hears of it later.
        """
        for _ in attempts():
            seen = sorted(self.where(number) for number in self.sessions())
            if seen == sorted(places):
                return
        raise AssertionError(seen)

    def until_none_is_left(self) -> control_pb2.StatusReply:
        """Waits until all sessions are over, and what they had is given back."""
        for _ in attempts():
            status = self.status()
            used = status.monitor.away_memory_used or status.monitor.away_disk_used
            if not status.sessions and not used:
                return status
        raise AssertionError(status)
