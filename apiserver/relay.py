"""Passes bytes on between a guest and the API server that its session moved to, until the guest follows."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator

from gpuferry.migration.frames import HEADER
from gpuferry.native.tls.stream import Connection
from gpuferry.specs._generated.frames import FRAME_MAX, Frame

LIMIT = 1 << 20  # bytes on their way in one direction: who does not read makes the other wait
RECEIVE = 256 << 10


class Malformed(Exception):
    """Raised if the bytes to be passed on are no frames."""


class Frames:
    """Finds the ends of frames in a stream. `head`: bytes of a header that came already; `missing`: bytes
    of the frame in which the stream begins.
    """

    def __init__(self, head: bytes = b"", missing: int = 0) -> None:
        self._head = bytearray(head)
        self._missing = missing
        self._op = 0

    @property
    def between(self) -> bool:
        """Whether the stream stands between two frames."""
        return not self._head and self._missing == 0

    def feed(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Offsets in `data` at which frames end, each with its operation (0 for a frame that began before
        the stream). Raises Malformed.
        """
        at = 0
        while at < len(data):
            if self._missing == 0:
                taken = data[at : at + HEADER.size - len(self._head)]
                self._head += taken
                at += len(taken)
                if len(self._head) < HEADER.size:
                    return
                size, self._op = HEADER.unpack(self._head)[:2]
                self._head.clear()
                if not HEADER.size <= size <= FRAME_MAX:
                    raise Malformed
                self._missing = size - HEADER.size
            step = min(self._missing, len(data) - at)
            self._missing -= step
            at += step
            if self._missing == 0:
                yield at, self._op
                self._op = 0


class Direction:
    """Passes bytes on from one socket to another, with at most 1 MiB under way."""

    def __init__(self, source: Connection, sink: Connection, frames: Frames) -> None:
        self.source = source
        self.sink = sink
        self.frames = frames
        self.over = False  # nothing more comes
        self._bytes = bytearray()

    @property
    def wants_bytes(self) -> bool:
        return not self.over and len(self._bytes) < LIMIT

    @property
    def has_bytes(self) -> bool:
        return bool(self._bytes)

    def receive(self) -> bytes:
        """The bytes that came, without waiting; none at the end, after which `over` is set."""
        try:
            data = self.source.recv(RECEIVE, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return b""
        except OSError:
            data = b""
        self.over = not data
        return data

    def put(self, data: bytes) -> None:
        """Add bytes to those that are to be written."""
        self._bytes += data

    def send(self) -> bool:
        """Write what the socket takes, without waiting. Returns False if the sink is gone."""
        try:
            sent = self.sink.send(self._bytes, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return True
        except OSError:
            return False
        del self._bytes[:sent]
        return True


class Relay:
    """Passes requests and replies on between guest and link. `moved`: the MOVED frame, which the guest
    gets as soon as it is between two replies.
    """

    def __init__(
        self, guest: Connection, link: Connection, requests: Frames, replies: Frames, moved: bytes
    ) -> None:
        self._requests = Direction(guest, link, requests)
        self._replies = Direction(link, guest, replies)
        self._moved = moved
        self.followed = False  # the guest has said its last word here
        self._tell()

    def events(self) -> dict[int, int]:
        """The poll events to wait for, by descriptor."""
        wanted: dict[int, int] = {}
        for direction in (self._requests, self._replies):
            for end, flag, wants in (
                (direction.source, select.POLLIN, direction.wants_bytes),
                (direction.sink, select.POLLOUT, direction.has_bytes),
            ):
                if wants:
                    wanted[end.fileno()] = wanted.get(end.fileno(), 0) | flag
        return wanted

    def move(self) -> bool:
        """Pass on what can be passed on without waiting. Returns False when the relay is over."""
        try:
            if self._requests.wants_bytes:
                self._take_requests(self._requests.receive())
            if self._replies.wants_bytes:
                self._take_replies(self._replies.receive())
        except Malformed:
            return False
        for direction in (self._requests, self._replies):
            if direction.has_bytes and not direction.send():
                return False
        if self._requests.over and not self.followed and not self._requests.has_bytes:
            return False  # the guest is gone
        return not self._replies.over or self._replies.has_bytes

    def _take_requests(self, data: bytes) -> None:
        for end, op in self._requests.frames.feed(data):
            if op == Frame.MOVED:
                self.followed = self._requests.over = True
                data = data[:end]
                break
        self._requests.put(data)

    def _take_replies(self, data: bytes) -> None:
        if not self._moved:
            self._replies.put(data)
            return
        for end, _ in self._replies.frames.feed(data):
            self._replies.put(data[:end] + self._moved + data[end:])
            self._moved = b""
            return
        self._replies.put(data)

    def _tell(self) -> None:
        if self._replies.frames.between:
            self._replies.put(self._moved)
            self._moved = b""
