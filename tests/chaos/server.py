"""A GPU server that is killed and started again, always at the same addresses."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import grpc
from gpuferry.specs._generated import control_pb2, control_pb2_grpc

from tests.helpers.ports import lasting_ports
from tests.helpers.tokens import token_of
from tests.helpers.warm import CLI
from tests.monitor import harness

TOKEN = token_of("chaos")
METADATA = (("authorization", f"Bearer {TOKEN}"),)
MARK = "GPUFERRY_RUNTIME_DIR"
WHOLE_SECONDS = 90.0
MOVE_SECONDS = 40.0  # by then a migration has ended somehow
RESUME_GRACE = 20.0  # a monitor that was killed must be back by then, however busy the machine is


class GpuServer:
    """Use as a context manager; nothing of it is left afterwards."""

    def __init__(self, devices: int, pool: int, *options: str, memory: str = "2GiB") -> None:
        """Of so many simulated devices, each with this `memory` (a size) and `pool` API servers."""
        self._folder = tempfile.mkdtemp(prefix="gf-", dir="/tmp")  # short: it holds Unix sockets
        self.runtime = Path(self._folder, "run")
        self._ports = contextlib.ExitStack()
        (port,) = self._ports.enter_context(lasting_ports(1))
        self.tcp = f"127.0.0.1:{port}"
        self.unix = f"unix:{self._folder}/guests"
        self._devices = devices
        self._memory = memory
        self.pool = devices * pool
        self.files = Path(self._folder, "files")
        self.files.mkdir()
        self.log = Path(self._folder, "log")
        self._options = (
            *("--listen", self.tcp, "--socket", self.unix.removeprefix("unix:"), "--http", "none"),
            *("--control", f"unix:{self._folder}/control", "--pool", str(pool)),
            *("--memory", "128MiB"),  # so that there is room for all of them on each device
            *("--grace", "0", "--max-wait", "20", "--resume-grace", str(RESUME_GRACE)),
            *options,
        )
        self._channel = grpc.insecure_channel(f"unix:{self._folder}/control")
        self._stub = control_pb2_grpc.MonitorStub(self._channel)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> GpuServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self._process:
            self._process.wait()
        shutil.rmtree(self._folder)
        self._ports.close()

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*CLI, "monitor", *self._options],
                env=harness.environment(
                    str(self.runtime),
                    GPUFERRY_TOKEN=TOKEN,
                    GPUFERRY_SIM_DEVICES=str(self._devices),
                    GPUFERRY_SIM_MEMORY=self._memory,
                ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def pid(self) -> int:
        """The monitor's."""
        assert self._process
        return self._process.pid

    def kill(self) -> None:
        """As a crash: it cleans up nothing."""
        assert self._process
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """As an operator does; the exit status."""
        assert self._process
        self._process.terminate()
        return self._process.wait(harness.DEADLINE)

    def status(self) -> Any:
        """None while there is no monitor that answers."""
        return self._answer(self._stub.Status, control_pb2.StatusRequest(), timeout=5)

    def migrate(self, session: int, **target: Any) -> Any:
        """How it ended; None: there was no point in it, or the monitor is gone and nobody knows."""
        return self._last(self._stub.Migrate, control_pb2.MigrateRequest(session=session, **target))

    def resume(self, file: Path, **target: Any) -> Any:
        """Likewise."""
        return self._last(
            self._stub.ResumeSession, control_pb2.ResumeSessionRequest(file=str(file), **target)
        )

    def evict(self, session: int) -> Any:
        """Send the session's memory away from its device. None: it was refused, or nobody answers."""
        return self._answer(self._stub.EvictSession, control_pb2.EvictSessionRequest(session=session))

    def recall(self, session: int) -> Any:
        """Bring the session's memory back to its device. None: it was refused, or nobody answers."""
        return self._answer(self._stub.RecallSession, control_pb2.RecallSessionRequest(session=session))

    def _answer(self, ask: Any, request: Any, timeout: float = MOVE_SECONDS) -> Any:
        """A monitor's only answer; None: there is none."""
        try:
            return ask(request, metadata=METADATA, timeout=timeout, wait_for_ready=True)
        except grpc.RpcError:
            return None

    def _last(self, ask: Any, request: Any) -> Any:
        try:
            *_, last = ask(request, metadata=METADATA, timeout=MOVE_SECONDS, wait_for_ready=True)
        except grpc.RpcError:
            return None
        return last

    def wait_whole(self) -> Any:
        """Until every API server is idle and nobody waits; the status."""

        def whole() -> Any:
            status = self.status()
            if not status or status.sessions or status.queue:
                return None
            return (
                status
                if sum(d.pool_idle for d in status.devices) == len(status.servers) == self.pool
                else None
            )

        try:
            return harness.wait_until(whole, "a whole pool", WHOLE_SECONDS)
        except AssertionError:
            print(self.status())
            raise

    def server_of(self, guest: int) -> int:
        """The API server of the guest with this process id."""
        status = harness.wait_until(self.status, "a monitor")
        (found,) = [s.server_pid for s in status.sessions if s.guest_pid == guest]
        return int(found)

    def processes(self) -> set[int]:
        """The monitor, API servers of this one and of those before, and what they started."""
        mark = f"{MARK}={self.runtime}\0".encode()
        found = set()
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdecimal() and mark in (entry / "environ").read_bytes():
                    found.add(int(entry.name))
        return found

    def api_servers(self) -> list[int]:
        """Whether a monitor knows them or not; and keepers."""
        return self._running(b"gpuferry.apiserver", b"gpuferry.apiserver.keeper")

    def arbiters(self) -> list[int]:
        """Who hands out the turns of a device."""
        return self._running(b"gpuferry.monitor.arbiter")

    def _running(self, *modules: bytes) -> list[int]:
        found = []
        for pid in self.processes():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if any(module in words for module in modules):
                    found.append(pid)
        return sorted(found)
