"""An API server process on the simulated device, with this test as its monitor."""

from __future__ import annotations

import array
import os
import select
import socket
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, TypeVar

from gpuferry.guest import paths
from gpuferry.specs._generated import node_pb2

from tests.apiserver.guest import Guest
from tests.helpers.warm import API_SERVER, Popen

DEADLINE = 120.0
REST_SECONDS = 5.0  # then another one is started
GIB = 1 << 30
Self = TypeVar("Self", bound="Process")


class Process:
    """A process with a control socket. Use as a context manager; it is gone afterwards."""

    def __init__(self, log: Path, command: list[str], environment: dict[str, str]) -> None:
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, log.open("ab") as stderr:
            self.process = Popen(
                [*command, f"--control-fd={theirs.fileno()}"],
                pass_fds=[theirs.fileno()],
                env=os.environ | environment,
                stderr=stderr,
            )
        self.log = log

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.control.close()
        try:
            self.process.wait(DEADLINE)
        finally:
            self.process.kill()
            self.process.wait()

    def message(self, seconds: float = DEADLINE) -> node_pb2.FromServer:
        """The next thing that it says."""
        assert select.select([self.control], [], [], seconds)[0], "the server says nothing"
        data = self.control.recv(1 << 16)
        assert data, f"the server is gone:\n{self.log.read_text()}"
        return node_pb2.FromServer.FromString(data)

    def order(self, **message: object) -> None:
        self.control.send(node_pb2.ToServer(**message).SerializeToString())  # type: ignore[arg-type]

    def wait_for_exit(self, seconds: float = DEADLINE) -> int:
        return self.process.wait(seconds)


class Server(Process):
    """One API server."""

    command: ClassVar[list[str]] = API_SERVER

    def __init__(self, log: Path, device: int = 0, **environment: str) -> None:
        preload = f"{os.environ.get('LD_PRELOAD', '')}:{paths.simulated_driver()}".lstrip(
            ":"
        )  # libasan first
        environment = {"LD_PRELOAD": preload} | environment
        super().__init__(log, [*self.command, f"--device={device}"], environment)
        self._guests: list[Guest] = []
        self._ready = 0  # times that it said so

    def message(self, seconds: float = DEADLINE) -> node_pb2.FromServer:
        message = super().message(seconds)
        self._ready += message.HasField("ready")
        return message

    def rests(self) -> bool:
        """Whether it is ready for another session, once the guests that are left have gone."""
        for guest in self._guests:
            guest.socket.close()
        try:
            while self._ready <= len(self._guests):
                self.message(REST_SECONDS)
        except (AssertionError, OSError):  # it is gone, or something keeps it
            return False
        return self.process.poll() is None and not select.select([self.control], [], [], 0)[0]

    def __exit__(self, *_: object) -> None:
        for guest in self._guests:
            guest.socket.close()
        super().__exit__()

    def ready(self) -> node_pb2.Ready:
        message = self.message()
        assert message.WhichOneof("message") == "ready", message
        return message.ready

    def ended(self) -> node_pb2.SessionEnded:
        """How the session ended; what it asks of the monitor meanwhile stays unanswered."""
        while (message := self.message()).WhichOneof("message") == "fetch":
            pass
        assert message.WhichOneof("message") == "ended", message
        return message.ended

    def connect(self, quota: int = GIB, proof: bytes = b"p" * 32, **terms: float | list[float]) -> Guest:
        """Grants a session; returns its guest, WELCOME read."""
        ours, theirs = socket.socketpair()
        grant = node_pb2.Grant(
            session=len(self._guests) + 1, memory_quota=quota, welcome_proof=proof, tenant="t", program="test"
        )
        grant.MergeFrom(node_pb2.Grant(**terms))  # type: ignore[arg-type]
        with theirs:
            rights = array.array("i", [theirs.fileno()])
            self.control.sendmsg(
                [node_pb2.ToServer(grant=grant).SerializeToString()],
                [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)],
            )
        guest = Guest(ours)
        self._guests.append(guest)
        assert self.message().started.session == len(self._guests)
        guest.receive_welcome()
        return guest

    def stats(self) -> node_pb2.Stats:
        self.order(stats=node_pb2.StatsRequest())
        message = self.message()
        assert message.WhichOneof("message") == "stats", message
        return message.stats


class Shared:
    """One API server for test after test, as for guest after guest. Use as a context manager."""

    def __init__(self, start: Callable[[], Server]) -> None:
        self._start = start
        self._server: Server | None = None

    def take(self) -> Server:
        self._server = self._server or self._start()
        return self._server

    def give_back(self) -> None:
        """One that is not ready for another session is ended."""
        if self._server and not self._server.rests():
            self._end()

    def _end(self) -> None:
        server, self._server = self._server, None
        if server:
            server.__exit__()

    def __enter__(self) -> Shared:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
