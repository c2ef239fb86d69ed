"""A GPU server that is killed and started again, always at the same addresses."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import grpc
from gpuferry.specs._generated import control_pb2, control_pb2_grpc

from tests.monitor import harness

TOKEN = "chaos" * 8
MARK = "GPUFERRY_RUNTIME_DIR"
WHOLE_SECONDS = 60.0


class GpuServer:
    """Use as a context manager; nothing of it is left afterwards."""

    def __init__(self, pool: int, **settings: str) -> None:
        self._folder = tempfile.mkdtemp(prefix="gf-", dir="/tmp")  # short: it holds Unix sockets
        self._runtime = str(Path(self._folder, "run"))
        self._settings = settings | {"GPUFERRY_TOKEN": TOKEN}
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.tcp = f"127.0.0.1:{free.getsockname()[1]}"
        self.unix = f"unix:{self._folder}/guests"
        self.pool = pool
        self.log = Path(self._folder, "log")
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

    def start(self) -> None:
        options = ["--listen", self.tcp, "--socket", self.unix.removeprefix("unix:"), "--grace", "0"]
        options += ["--control", f"unix:{self._folder}/control", "--pool", str(self.pool)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "gpuferry.monitor.cli.main", "monitor", *options],
                env=harness.environment(self._runtime, **self._settings),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

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
        metadata = (("authorization", f"Bearer {TOKEN}"),)
        try:
            return self._stub.Status(
                control_pb2.StatusRequest(), metadata=metadata, timeout=5, wait_for_ready=True
            )
        except grpc.RpcError:
            return None

    def wait_whole(self) -> Any:
        """Until every API server is idle; the status."""

        def whole() -> Any:
            status = self.status()
            return status if status and sum(d.pool_idle for d in status.devices) == self.pool else None

        try:
            return harness.wait_until(whole, "a whole pool", WHOLE_SECONDS)
        except AssertionError:
            print(self.status(), "\n".join(self.log.read_text().splitlines()[-40:]), sep="\n")
            raise

    def processes(self) -> set[int]:
        """The monitor, API servers of this one and of those before, and what they started."""
        mark = f"{MARK}={self._runtime}\0".encode()
        found = set()
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdecimal() and mark in (entry / "environ").read_bytes():
                    found.add(int(entry.name))
        return found
