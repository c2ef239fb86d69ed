"""An API server process on the simulated device, with this test as its monitor."""

from __future__ import annotations

import array
import os
import select
import socket
import subprocess
import sys
from pathlib import Path

from gpuferry.guest import paths
from gpuferry.specs._generated import node_pb2

from tests.apiserver.guest import Guest

DEADLINE = 60.0
GIB = 1 << 30


class Server:
    """Use as a context manager; the process is gone afterwards."""

    module = "gpuferry.apiserver"

    def __init__(self, log: Path, device: int = 0, **environment: str) -> None:
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        preload = f"{os.environ.get('LD_PRELOAD', '')}:{paths.simulated_driver()}".lstrip(
            ":"
        )  # libasan first
        with theirs, log.open("ab") as stderr:
            options = [f"--device={device}", f"--control-fd={theirs.fileno()}"]
            self.process = subprocess.Popen(
                [sys.executable, "-m", self.module, *options],
                pass_fds=[theirs.fileno()],
                env=os.environ | {"LD_PRELOAD": preload} | environment,
                stderr=stderr,
            )
        self.log = log
        self._guests: list[Guest] = []

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.control.close()
        for guest in self._guests:
            guest.socket.close()
        try:
            self.process.wait(DEADLINE)
        finally:
            self.process.kill()
            self.process.wait()

    def message(self, seconds: float = DEADLINE) -> node_pb2.FromServer:
        """The next thing the server says."""
        assert select.select([self.control], [], [], seconds)[0], "the server says nothing"
        data = self.control.recv(1 << 16)
        assert data, f"the server is gone:\n{self.log.read_text()}"
        return node_pb2.FromServer.FromString(data)

    def ready(self) -> node_pb2.Ready:
        message = self.message()
        assert message.WhichOneof("message") == "ready", message
        return message.ready

    def ended(self) -> node_pb2.SessionEnded:
        message = self.message()
        assert message.WhichOneof("message") == "ended", message
        return message.ended

    def order(self, **message: object) -> None:
        self.control.send(node_pb2.ToServer(**message).SerializeToString())  # type: ignore[arg-type]

    def connect(self, quota: int = GIB, proof: bytes = b"p" * 32, **terms: float) -> Guest:
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

    def wait_for_exit(self, seconds: float = DEADLINE) -> int:
        return self.process.wait(seconds)
