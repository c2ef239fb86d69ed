"""An API server process on the simulated device, with this test as its monitor."""

from __future__ import annotations

import array
import os
import select
import socket
import subprocess
import sys
import time
from pathlib import Path

from gpuferry.guest import paths
from gpuferry.specs._generated import node_pb2

from tests.apiserver.guest import Guest

DEADLINE = 60.0
GIB = 1 << 30


class Server:
    """Use as a context manager; the process is gone afterwards."""

    def __init__(self, log: Path, **environment: str) -> None:
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        preload = f"{paths.simulated_driver()}:{os.environ.get('LD_PRELOAD', '')}".rstrip(":")
        with theirs, log.open("ab") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "gpuferry.apiserver", "--device=0", f"--control-fd={theirs.fileno()}"],
                pass_fds=[theirs.fileno()],
                env=os.environ | {"LD_PRELOAD": preload} | environment,
                stderr=stderr,
            )
        self.log = log
        self._sessions = 0

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.control.close()
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

    def connect(self, quota: int = GIB, proof: bytes = b"p" * 32) -> Guest:
        """Grants a session; returns its guest, WELCOME read."""
        self._sessions += 1
        ours, theirs = socket.socketpair()
        grant = node_pb2.Grant(
            session=self._sessions, memory_quota=quota, welcome_proof=proof, tenant="t", program="test"
        )
        with theirs:
            rights = array.array("i", [theirs.fileno()])
            self.control.sendmsg(
                [node_pb2.ToServer(grant=grant).SerializeToString()],
                [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)],
            )
        assert self.message().started.session == self._sessions
        guest = Guest(ours)
        guest.receive_welcome()
        return guest

    def stats(self) -> node_pb2.Stats:
        self.order(stats=node_pb2.StatsRequest())
        message = self.message()
        assert message.WhichOneof("message") == "stats", message
        return message.stats

    def wait_for_exit(self, seconds: float = DEADLINE) -> int:
        return self.process.wait(seconds)


def elapsed(since: float) -> float:
    return time.monotonic() - since
