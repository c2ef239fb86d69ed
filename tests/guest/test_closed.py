"""The last that a program says arrives, also on a connection that breaks about then."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from gpuferry.specs._generated import frames

from tests.guest.conftest import preloaded, run_guest
from tests.guest.fake_server import Answer, Frame
from tests.guest.moving_server import MovingServer


@dataclass
class BreakingServer(MovingServer):
    """Its first connection breaks at the first cuCtxSynchronize: unanswered, or behind what comes next."""

    behind: bool = False
    resumable: bool = True
    asked: Frame | None = None

    def _converse(self, until: int | None) -> None:
        if self.connections == 1:
            self.answer = self._breaks
        elif self.asked is not None:
            self.reply(self.asked, Answer())
            self.asked = None
        super()._converse(until)

    def _breaks(self, frame: Frame) -> Answer | None:
        if self.connections > 1 or frame.name != "cuCtxSynchronize":
            return Answer()
        assert self.connection
        if self.behind:
            self.reply(frame, Answer())
            size = frames.Header.SIZE
            assert len(self.connection.recv(size, socket.MSG_PEEK | socket.MSG_WAITALL)) == size
        else:
            self.asked = frame
        raise ConnectionError


@pytest.fixture
def server() -> Iterator[BreakingServer]:
    with TemporaryDirectory(prefix="gpuferry-fake-") as folder:
        fake = BreakingServer(Path(folder) / "socket")
        yield fake
        fake.close()


def test_it_was_written_and_not_read(server: BreakingServer) -> None:
    """The guest had written all, and knew of no break. It waits for the server's word, and comes again."""
    server.behind = True
    outcome = run_guest(server, 'start(); ok("cuCtxSynchronize")', GPUFERRY_ON_LOSS="reconnect")
    assert (outcome.status, outcome.stderr) == (0, "")
    assert server.names[-2:] == ["cuCtxSynchronize", "sessionClose"]
    assert server.connections == 2


def test_who_hears_late_of_a_break_does_not_wait_on_the_new_connection(
    server: BreakingServer, tmp_path: Path
) -> None:
    """The thread that sends was told of the old one's end, and would wait for something to read."""
    outcome = run_guest(
        server,
        """
start()
shim = ctypes.CDLL(None)
event = made("cuEventCreate", 0)
shim.gf_test_arm()
ok("cuCtxSynchronize")
shim.gf_test_let_go()
ok("cuEventRecord", event, 0)
""",
        GPUFERRY_ON_LOSS="reconnect",
        LD_PRELOAD=preloaded("late_poll.c", tmp_path),
    )
    assert (outcome.status, outcome.stderr) == (0, "")
    assert server.names[-2:] == ["cuEventRecordWithFlags", "sessionClose"]
    assert server.connections == 2
