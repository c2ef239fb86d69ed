"""A real `gpuferry monitor` process, by default with fake API servers, in a private runtime folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from gpuferry.monitor.cli.identity import identity_for
from gpuferry.monitor.service.dial import dial
from gpuferry.specs._generated import control_pb2, control_pb2_grpc

from tests.helpers import processes
from tests.helpers.logs import shown_on_failure
from tests.helpers.monitor import QUIET
from tests.helpers.points import daemon
from tests.helpers.ports import lasting_ports
from tests.helpers.warm import CLI, Popen

HERE = Path(__file__).parent
FAKE_SERVER = f"{sys.executable} {HERE / 'fake_apiserver.py'}"
# Of a monitor that waits for API servers of the one before for as long as any machine may be busy.
PATIENT = {"gpuferry.monitor.daemon:RETURN_SECONDS": 3600.0}
NONE: Mapping[str, float] = {}
DEADLINE = 120.0
# A busy machine is no reason to give anybody up.
LIVENESS = ("--handshake-timeout", "60", "--start-timeout", "60", "--ready-timeout", "120")


def environment(runtime: str, **changes: str | None) -> dict[str, str]:
    """This process's, without settings that would reach beyond the test."""
    kept = ("GPUFERRY_GUEST_LIBRARY", "GPUFERRY_SIM_LIBRARY", "GPUFERRY_SANITIZER")
    base = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GPUFERRY_") or name.startswith(kept)
    }
    if (
        os.environ.get("GPUFERRY_SANITIZER") == "address"
    ):  # its runtime must come first where our libraries are
        base["LD_PRELOAD"] = os.environ["GPUFERRY_SANITIZER_RUNTIME"]
    elif (
        os.environ.get("GPUFERRY_SANITIZER") == "thread"
    ):  # gRPC's own races would end the monitor: guests only
        base.pop("GPUFERRY_SIM_LIBRARY", None)
    base |= {"GPUFERRY_RUNTIME_DIR": runtime, "GPUFERRY_DEVICE": "sim", "NO_COLOR": "1"}
    base["GPUFERRY_CONFIG"] = os.devnull  # nobody's settings files
    if changes.get("GPUFERRY_APISERVER"):  # a fake one is nowhere where a jail would show it
        base["GPUFERRY_MONITOR_JAIL"] = "off"
    base["GPUFERRY_STATE_DIR"] = f"{runtime}-state"
    for name, value in changes.items():
        base.pop(name, None)
        if value is not None:
            base[name] = value
    return base


def gpuferry(runtime: str, *arguments: str, **changes: str | None) -> subprocess.CompletedProcess[str]:
    """One command of the CLI."""
    return run([*CLI, *arguments], environment(runtime, **changes))


def run(command: list[str], settings: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """To its end."""
    pipe = subprocess.PIPE
    with Popen(
        command, env=settings, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True
    ) as process:
        with killed_on_failure(process):
            stdout, stderr = process.communicate(timeout=DEADLINE)
        return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


def wait_until(condition: Callable[[], Any], what: str, seconds: float = DEADLINE) -> Any:
    """For what nothing announces, such as the end of somebody else's process."""
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        if time.monotonic() >= deadline:
            raise AssertionError(f"{what}: not within {seconds:g} s\n{processes.where_they_stand()}")
        time.sleep(0.01)
    return result


def alive(pids: set[int]) -> set[int]:
    """Those that still run."""
    return {pid for pid in pids if pid in processes.descendants(pid)}


@contextlib.contextmanager
def killed_on_failure(process: subprocess.Popen[Any]) -> Iterator[None]:
    """With all that it started: what waits for its end would wait for ever."""
    try:
        yield
    except BaseException:
        for pid in processes.descendants(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        raise


def first_line(connection: socket.socket) -> str:
    """What a monitor tells its parent."""
    with connection.makefile() as file:
        return file.readline().strip()


class Monitor:
    """The process, its address and token, and its status."""

    def __init__(
        self,
        runtime: str,
        process: subprocess.Popen[str],
        parent: socket.socket,
        log: Path,
        environment: dict[str, str],
        successors: list[subprocess.Popen[str]],
    ) -> None:
        self._environment = environment
        self._successors = successors
        self.runtime = runtime
        self.process = process
        self.parent = parent
        self.log = log
        published = dict(line.split("=", 1) for line in Path(runtime, "endpoint").read_text().splitlines())
        self.address = published["GPUFERRY_MONITOR"]
        self.tcp = published["GPUFERRY_TCP"]
        self.control = published["GPUFERRY_CONTROL"]
        self.token = Path(published["GPUFERRY_TOKEN_FILE"]).read_text().strip()
        self.channel = dial(self.control, identity_for([self.control], published))
        self.stub = control_pb2_grpc.MonitorStub(self.channel)
        self.metadata = (("authorization", f"Bearer {self.token}"),)

    def status(self) -> Any:
        return self.stub.Status(control_pb2.StatusRequest(), metadata=self.metadata, timeout=DEADLINE)

    def wait_for(self, condition: Callable[[Any], Any], what: str, seconds: float = DEADLINE) -> Any:
        """The first status that satisfies the condition."""
        request = control_pb2.WatchStatusRequest(interval_seconds=0.1)
        watching = self.stub.WatchStatus(request, metadata=self.metadata, timeout=seconds)
        try:
            for status in watching:
                if condition(status):
                    return status
        except grpc.RpcError as error:
            stand = processes.where_they_stand()
            text = f"{what}: not within {seconds:g} s; log:\n{self.log.read_text()}\n{stand}"
            raise AssertionError(text) from error
        finally:
            watching.cancel()
        raise AssertionError(f"{what}: the monitor stopped; log:\n{self.log.read_text()}")

    def wait_for_log(self, said: str) -> None:
        """Until its log says so: what a log tells of may be seen before it is written."""
        wait_until(lambda: said in self.log.read_text(), f"{said!r} in its log")

    def wait_idle(self, count: int, seconds: float = DEADLINE) -> Any:
        return self.wait_for(
            lambda status: sum(device.pool_idle for device in status.devices) == count,
            f"{count} idle",
            seconds,
        )

    def run(self, *arguments: str, **changes: str | None) -> subprocess.CompletedProcess[str]:
        return gpuferry(self.runtime, *arguments, **changes)

    def succeed(self, *options: str, constants: Mapping[str, float] = NONE) -> Monitor:
        """Another monitor in its place, after its end; a token was given to both. With `PATIENT` constants it
        starts no API server, and finds all that there are."""
        self.channel.close()
        self.process.wait(DEADLINE)
        Path(self.runtime, "endpoint").unlink(missing_ok=True)
        with self.log.open("a") as stderr:
            cli, settings = daemon(constants)
            command = [
                *cli,
                "monitor",
                "--grace",
                "0",
                "--listen",
                self.tcp.removeprefix("tls://"),
                *QUIET,
                *LIVENESS,
                *options,
            ]
            process = Popen(
                command,
                env=self._environment | settings,
                stdin=subprocess.DEVNULL,
                stderr=stderr,
                text=True,
            )
        self._successors.append(process)
        wait_until(Path(self.runtime, "endpoint").exists, f"another monitor; log:\n{self.log.read_text()}")
        return Monitor(self.runtime, process, self.parent, self.log, self._environment, self._successors)

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        self.channel.close()
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(DEADLINE)


@dataclass(frozen=True)
class Started:
    """A process that may become a monitor."""

    runtime: str
    process: subprocess.Popen[str]
    parent: socket.socket
    log: Path
    environment: dict[str, str]
    successors: list[subprocess.Popen[str]]


@contextlib.contextmanager
def monitor(
    *options: str,
    server: str | None = FAKE_SERVER,
    ready: bool = True,
    cli: Sequence[str] | None = None,
    constants: Mapping[str, float] = NONE,
    **changes: str | None,
) -> Iterator[Monitor]:
    """A monitor whose pool has one API server ready. Nothing of it is left afterwards. `cli`: of another."""
    with _started(*options, server=server, cli=daemon(constants, cli or CLI), **changes) as made:
        if ready:
            line = first_line(made.parent)
            assert line == "ready", f"{line!r}; log:\n{made.log.read_text()}"
        else:
            wait_until(Path(made.runtime, "endpoint").exists, "published endpoint")
        running = Monitor(
            made.runtime, made.process, made.parent, made.log, made.environment, made.successors
        )
        with running.channel:
            yield running


@contextlib.contextmanager
def failing(
    *options: str, server: str | None = FAKE_SERVER, **changes: str | None
) -> Iterator[tuple[str, subprocess.Popen[str], Path]]:
    """One that cannot start: what it tells its parent, its process, and its log."""
    with _started(*options, server=server, cli=daemon(NONE), **changes) as made:
        yield first_line(made.parent), made.process, made.log


@contextlib.contextmanager
def _started(
    *options: str, server: str | None, cli: tuple[Sequence[str], dict[str, str]], **changes: str | None
) -> Iterator[Started]:
    with contextlib.ExitStack() as lasting:  # until all has ended: a successor has the same
        folder = tempfile.mkdtemp(prefix="gf-", dir="/tmp")  # short: it holds Unix sockets
        lasting.callback(shutil.rmtree, folder, ignore_errors=True)
        runtime = os.path.join(folder, "run")
        ours, theirs = socket.socketpair()
        ours.settimeout(DEADLINE)
        log = Path(folder, "log")
        successors: list[subprocess.Popen[str]] = []
        (port,) = lasting.enter_context(lasting_ports(1))
        lasting.enter_context(shown_on_failure(log))
        defaults = ["--listen", f"127.0.0.1:{port}", "--grace", "0", "--orphan-grace", "0", *QUIET, *LIVENESS]
        defaults += ["--parent-fd", str(theirs.fileno())]
        with theirs, log.open("w") as stderr:
            settings = environment(runtime, GPUFERRY_APISERVER=server, **changes)
            command, more = cli
            process = Popen(
                [*command, "monitor", *defaults, *options],
                env=settings | more,
                stdin=subprocess.DEVNULL,
                stderr=stderr,
                pass_fds=(theirs.fileno(),),
                text=True,
            )
        try:
            yield Started(runtime, process, ours, log, settings, successors)
        finally:
            ours.close()
            below = set[int]()
            for one in (process, *successors):
                below |= processes.descendants(one.pid)
                if one.poll() is None:
                    one.terminate()
            try:
                for one in (process, *successors):
                    one.wait(DEADLINE)
            finally:
                for pid in alive(below):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
