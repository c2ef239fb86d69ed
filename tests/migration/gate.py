"""Where a program's calls pass by: they are counted, and held back where its session is to be moved."""

from __future__ import annotations

import contextlib
import enum
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from gpuferry.apiserver.relay import Frames
from gpuferry.migration.frames import HEADER, OPERATIONS
from gpuferry.specs._generated import migration_pb2
from gpuferry.specs._generated.frames import Frame

from tests.migration.moving import STOP

CLOSE = OPERATIONS["sessionClose"]
CONTROL = 0xFF00  # from here on operations are the connection's own, and no calls
SECONDS = 60.0
TRY_AGAIN = "try again"  # said of what is just under way and will soon be over


def attempts() -> Iterator[None]:
    """For as long as it may take until that is over."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        yield


class Way(enum.Enum):
    """How to move a session."""

    GPU = "gpu"
    FILE = "file"
    SERVER = "server"


@dataclass(frozen=True)
class Stop:
    """Where to move: ordered after so many calls; those after `hold` wait until the session is elsewhere."""

    call: int
    hold: int
    strategy: migration_pb2.Strategy = STOP


@dataclass
class Journey:
    """What became of one run."""

    stops: Sequence[Stop] = ()
    calls: int = 0  # of its longest session
    sessions: int = 0
    moved: int = 0
    followed: int = 0  # times that a guest came after its session to another server
    refused: list[str] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)


class Gate:
    """Of one session. A program that makes fewer calls than it was to make is moved before its last one."""

    def __init__(self, stops: Sequence[Stop]) -> None:
        self._stops = list(stops)
        self._changed = threading.Condition()
        self.calls = 0
        self.closing = False  # all that is left to do is to end
        self._open = 0  # connections
        self._left = self._ended = False  # the guest, without a word of coming back; its process

    def stops(self) -> Sequence[Stop]:
        """Those that were not gone past."""
        return tuple(self._stops)

    @property
    def over(self) -> bool:
        """Nothing comes any more."""
        return self._left or (self._ended and not self._open)

    def reached(self, stop: Stop) -> bool:
        """Waits for it; False: the program ended before."""
        with self._changed:
            self._changed.wait_for(lambda: self.calls >= stop.call or self.closing or self.over)
            return self.calls >= stop.call or not self.over

    def go_on(self, *stops: Stop) -> None:
        """Waits at these no longer."""
        with self._changed:
            for stop in stops:
                self._stops.remove(stop)
            self._changed.notify_all()

    def end(self) -> None:
        """The process is gone; what it said last may still be on its way."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def enter(self) -> None:
        """By one more connection."""
        with self._changed:
            self._open += 1

    def leave(self, follows: bool) -> None:
        """All that was said on a connection has passed."""
        with self._changed:
            self._open -= 1
            self._left = self._left or not follows
            self._changed.notify_all()

    def holds(self, call: int) -> bool:
        """Whether what comes after this call waits."""
        with self._changed:
            return any(stop.hold == call for stop in self._stops)

    def passed(self, calls: int) -> None:
        """So many more, all of which the server has; waits if the next one must."""
        with self._changed:
            self.calls += calls
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self.holds(self.calls))

    def before_the_end(self) -> None:
        """Waits until nobody wants to move the session any more."""
        with self._changed:
            self.closing = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._stops)


class Passage:
    """Passes the bytes of one connection on, in both directions."""

    def __init__(self, gate: Gate, guest: socket.socket, server: socket.socket) -> None:
        self._gate = gate
        self._guest = guest
        self._server = server
        self._frames = Frames()
        self._kept = b""  # the beginning of a header, of which nobody knows yet what it asks for
        self._began = False  # whether the last bytes passed on belong to a frame that is not over
        self._follows = False  # the session is elsewhere, and the guest comes there with another connection
        self._up = threading.Thread(target=self._pass_up, daemon=True)
        self._down = threading.Thread(target=self._pass_down, daemon=True)

    def start(self) -> None:
        self._gate.enter()
        self._up.start()
        self._down.start()

    def join(self) -> None:
        """To the end of both directions."""
        self._up.join()
        self._down.join()

    def _pass_up(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._guest.recv(1 << 20):
                self._pass(data)
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_WR)
        self._gate.leave(self._follows)

    def _pass(self, data: bytes) -> None:
        at = len(self._kept)
        waiting = memoryview(self._kept + data)
        calls = begin = sent = 0
        for end, op in self._frames.feed(data):
            if op == CLOSE:
                self._server.sendall(waiting[sent:begin])
                self._gate.passed(calls)
                self._gate.before_the_end()
                sent, calls = begin, 0
            begin = at + end
            self._began = False
            self._follows = self._follows or op == Frame.MOVED
            if op >= CONTROL:
                continue
            calls += 1
            if self._gate.holds(self._gate.calls + calls):
                self._server.sendall(waiting[sent:begin])
                self._gate.passed(calls)
                sent, calls = begin, 0
        if self._began or len(waiting) - begin >= HEADER.size:
            begin, self._began = len(waiting), True
        self._server.sendall(waiting[sent:begin])
        self._kept = bytes(waiting[begin:])
        self._gate.passed(calls)

    def _pass_down(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._server.recv(1 << 20):
                self._guest.sendall(data)
        with contextlib.suppress(OSError):
            self._guest.shutdown(socket.SHUT_WR)
