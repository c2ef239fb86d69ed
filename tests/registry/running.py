"""A real `gpuferry registry` process, and calls to it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
from gpuferry.monitor.cli.identity import identity_for
from gpuferry.monitor.cluster.registry.client import CallFailed, answers
from gpuferry.monitor.cluster.registry.signing import Caller
from gpuferry.monitor.service.dial import dial
from gpuferry.specs._generated import registry_pb2

from tests.helpers.points import daemon
from tests.helpers.ports import lasting_ports
from tests.helpers.warm import CLI, Popen
from tests.monitor.harness import DEADLINE, NONE, environment, run, wait_until

PROBE = "gpuferry.monitor.cluster.registry.redirect:PROBE_SECONDS"
PATIENT = {PROBE: DEADLINE}  # where a server that greets late is to be no other than one that greets


class Registry:
    """The process; after `kill` it can be started again with the same state and ports."""

    def __init__(
        self,
        folder: Path,
        options: tuple[str, ...],
        state: Path,
        ports: list[int],
        constants: Mapping[str, float],
    ) -> None:
        self.runtime = str(folder / "run")
        self.log = folder / "log"
        self.state = state
        self._options = options
        self._cli, self._settings = daemon(constants)
        self.address, self.control = (f"127.0.0.1:{port}" for port in ports)
        self.start()

    def start(self) -> None:
        endpoint = Path(self.runtime, "registry", "endpoint")
        endpoint.unlink(missing_ok=True)
        self.environment = environment(self.runtime, GPUFERRY_STATE_DIR=str(self.state))
        command = [*self._cli, "registry", "--listen", self.address, "--control", self.control]
        with self.log.open("a") as log:
            self.process = Popen(
                [*command, *self._options],
                env=self.environment | self._settings,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        wait_until(lambda: endpoint.exists() or self.process.poll() is not None, "the registry")
        assert self.process.poll() is None, self.log.read_text()
        published = dict(line.split("=", 1) for line in endpoint.read_text().splitlines())
        self._published = published
        self.address, self.control = published["GPUFERRY_MONITOR"], published["GPUFERRY_REGISTRY"]
        self.key_file = published["GPUFERRY_CLUSTER_KEY_FILE"]
        self.key = Path(self.key_file).read_text().strip().encode()
        self.token = Path(published["GPUFERRY_TOKEN_FILE"]).read_text().strip()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def call(self, method: str, request: Any) -> Any:
        with self._dial() as channel:
            (answer,) = answers(channel, Caller(self.key), self.control, method, request, DEADLINE)
            return answer

    def _dial(self) -> grpc.Channel:
        """With the registry's own certificate, if it has one."""
        return dial(self.control, identity_for([self.control], self._published))

    def register(self, address: str, **labels: str) -> None:
        request = registry_pb2.RegisterRequest(address=address)
        for name, value in labels.items():
            request.labels.add(name=name, value=value)
        self.call("Register", request)

    def on(self, method: str, address: str) -> Any:
        return self.call(method, registry_pb2.ServerRequest(address=address))

    def servers(self) -> dict[str, Any]:
        reply = self.call("List", registry_pb2.ListRequest())
        return {server.registration.address: server for server in reply.servers}

    def wait_for(self, address: str, beats: int = 0, **wanted: Any) -> None:
        """Until the server's `alive`, `drained`, or its load's `sessions` or `idle` API servers, is this
        where guests are placed; after so many heartbeats at least.

        That is the registry's view; what `servers` reads from its store may be newer.
        """
        address = address.removeprefix("tls://")
        request = registry_pb2.WatchRequest()
        with self._dial() as channel:
            watching = answers(channel, Caller(self.key), self.control, "Watch", request, DEADLINE)
            try:
                for view in watching:
                    for server in view.servers:
                        found = {
                            "alive": server.alive,
                            "drained": server.registration.drained,
                            "sessions": server.load.sessions,
                            "idle": sum(device.idle for device in server.load.devices),
                        }
                        known = server.load.sequence >= beats and wanted.items() <= found.items()
                        if server.registration.address == address and known:
                            return
            except CallFailed as error:
                raise AssertionError(f"{address} {wanted} after {beats} heartbeats: {error}") from error

    def run(self, *arguments: str, **changes: str | None) -> subprocess.CompletedProcess[str]:
        """A command of the CLI, as the registry's user."""
        return run(
            [*CLI, *arguments], environment(self.runtime, GPUFERRY_STATE_DIR=str(self.state), **changes)
        )


@contextlib.contextmanager
def registry(
    *options: str, state: Path | None = None, constants: Mapping[str, float] = NONE
) -> Iterator[Registry]:
    """Nothing of it is left afterwards but the state, if that is given. `constants`: of its process."""
    folder = Path(tempfile.mkdtemp(prefix="gf-", dir="/tmp"))
    running = None
    with lasting_ports(2) as ports:
        try:
            running = Registry(folder, options, state or folder / "state", ports, constants)
            yield running
        finally:
            if running and running.process.poll() is None:
                running.process.terminate()
                try:
                    running.process.wait(DEADLINE)
                finally:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(running.process.pid, signal.SIGKILL)
            shutil.rmtree(folder, ignore_errors=True)
