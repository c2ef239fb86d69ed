"""A TCP proxy that cuts a connection at a byte of a frame, of whatever connection that comes first."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from gpuferry.specs._generated.frames import Frame, Header, Resume, Resumed

from tests.helpers.door import Pair, end

from .cutter import Cutter

HEADER = Header.SIZE


@dataclass(frozen=True)
class Cut:
    """After so many bytes of the next frame of this operation, on its way up to the server or down. None: it
    passes."""

    op: int
    up: bool
    size: int | None


class Stream:
    """What a guest says over all its connections, or hears. A connection may begin within a frame of it."""

    def __init__(self) -> None:
        self._frames = {0: 0}  # where they begin, as far as is known, and where they end

    def begins(self, position: int, size: int) -> int:
        """A frame; where it ends."""
        assert size >= HEADER, "no frame begins here"
        end = self._frames[position] = position + size
        self._frames.setdefault(end, end)
        return end

    def end(self, position: int) -> int:
        """Of the frame that this byte is within; the byte, if a frame begins there."""
        if position in self._frames:
            return position
        return self._frames[max(begin for begin in self._frames if begin < position)]


class Streams:
    """Of one guest, on its way up and down, whichever cutters it goes through."""

    def __init__(self) -> None:
        self.of = {True: Stream(), False: Stream()}
        self.begun = False


class Connection:
    """One that is passed on, and how far both streams have come; None: they have not begun."""

    def __init__(self, streams: Streams) -> None:
        self.streams = streams
        self.position: dict[bool, int | None] = {True: None, False: None}
        self.hushed = False  # the guest hears nothing more: a frame of its own is the last that passes
        self._resumes_at = 0

    def passes(self, op: int, frame: bytes) -> None:
        """One of the handshake. Neither end says more before the other has it: both pumps know in time."""
        if op == Frame.WELCOME and not self.streams.begun:
            self.streams.begun = True
            self.position = {True: 0, False: 0}
        elif op == Frame.RESUME:
            self._resumes_at = Resume.unpack(frame, HEADER).received
        elif op == Frame.RESUMED:
            self.position = {True: Resumed.unpack(frame, HEADER).received, False: self._resumes_at}


class FrameCutter(Cutter):
    """Stands before a monitor, until cut after cut is done."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self.streams = Streams()
        self._cuts: list[Cut] = []
        self._may_end = threading.Event()
        self._may_end.set()
        self._lock = threading.Lock()
        self._connections: dict[Pair, Connection] = {}

    def expect(self, *cuts: Cut) -> None:
        """What is to be done next, in this order."""
        with self._lock:
            self._cuts.extend(cuts)

    @contextlib.contextmanager
    def on_hold(self, cut: Cut) -> Iterator[None]:
        """Next this; but the connection ends only after this, and nothing more comes."""
        self._may_end.clear()
        self.expect(cut)
        try:
            yield
        finally:
            self._may_end.set()

    def is_done(self) -> bool:
        """Whether every cut that was expected has been made."""
        with self._lock:
            return not self._cuts

    def left(self) -> list[Cut]:
        """What was not done; it will not be."""
        with self._lock:
            left, self._cuts = self._cuts, []
        return left

    def _pump(self, source: socket.socket, sink: socket.socket, pair: Pair, allowance: int | None) -> None:
        with self._lock:
            connection = self._connections.setdefault(pair, Connection(self.streams))
        try:
            with contextlib.suppress(OSError, EOFError):
                while not self._pass_frame(source, sink, source is pair[0], connection):
                    pass
        finally:
            end(pair)

    def _pass_frame(
        self, source: socket.socket, sink: socket.socket, up: bool, connection: Connection
    ) -> bool:
        """Whether the connection is to be cut."""
        head = _exactly(source, 1)
        while connection.hushed and not up:
            _some(source, 65536)
        position, stream = connection.position[up], connection.streams.of[up]
        if position is not None and (end := stream.end(position)) > position:
            sink.sendall(head)
            _pass(source, sink, end - position - 1)
            connection.position[up] = end
            return False
        head += _exactly(source, HEADER - 1)
        size, op = int.from_bytes(head[:4], "little"), int.from_bytes(head[4:6], "little")
        if position is not None and op != Frame.MOVED:
            connection.position[up] = stream.begins(position, size)
        allowed = self._allowed(op, up)
        passed = size if allowed is None else min(size, allowed)
        if up and allowed is not None:
            connection.hushed = True  # before the server can answer
        if position is None and op in (Frame.WELCOME, Frame.RESUME, Frame.RESUMED):
            head += _exactly(source, size - HEADER)
            if passed == size:  # whoever has it may say more, even if the connection is cut behind it
                connection.passes(op, head)
        sink.sendall(head[:passed])
        _pass(source, sink, passed - len(head))
        if allowed is None:
            return False
        self._may_end.wait()
        return True

    def _allowed(self, op: int, up: bool) -> int | None:
        """How much of this frame passes before the connection is cut; None: it is not."""
        with self._lock:
            if not self._cuts or (self._cuts[0].op, self._cuts[0].up) != (op, up):
                return None
            return self._cuts.pop(0).size


def _exactly(source: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += _some(source, size - len(data))
    return data


def _pass(source: socket.socket, sink: socket.socket, size: int) -> None:
    while size > 0:
        data = _some(source, min(size, 65536))
        sink.sendall(data)
        size -= len(data)


def _some(source: socket.socket, most: int) -> bytes:
    data = source.recv(most)
    if not data:
        raise EOFError
    return data
