"""A TCP proxy that cuts a connection at a byte of a frame, of whatever connection that comes first."""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import dataclass

from .cutter import Cutter

HEADER = 16


@dataclass(frozen=True)
class Cut:
    """After so many bytes of the next frame of this operation, on its way up to the server or down. None: it
    passes."""

    op: int
    up: bool
    size: int | None


class FrameCutter(Cutter):
    """Stands before a monitor, until cut after cut is done."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self._cuts: list[Cut] = []
        self._lock = threading.Lock()

    def __enter__(self) -> FrameCutter:
        super().__enter__()
        return self

    def expect(self, *cuts: Cut) -> None:
        """What is to be done next, in this order."""
        with self._lock:
            self._cuts.extend(cuts)

    def left(self) -> list[Cut]:
        """What was not done; it will not be."""
        with self._lock:
            left, self._cuts = self._cuts, []
        return left

    def _pump(
        self,
        source: socket.socket,
        sink: socket.socket,
        pair: tuple[socket.socket, socket.socket],
        allowance: int | None,
    ) -> None:
        with contextlib.suppress(OSError, EOFError):
            while not self._pass_frame(source, sink, source is pair[0]):
                pass
        self._end(pair)

    def _pass_frame(self, source: socket.socket, sink: socket.socket, up: bool) -> bool:
        """Whether the connection is to be cut."""
        head = b""
        while len(head) < HEADER:
            head += _some(source, HEADER - len(head))
        left, op = int.from_bytes(head[:4], "little") - HEADER, int.from_bytes(head[4:6], "little")
        size = self._allowed(op, up)
        if size is not None:
            left = min(left, max(0, size - HEADER))
            head = head[:size]
        sink.sendall(head)
        while left > 0:
            data = _some(source, min(left, 65536))
            sink.sendall(data)
            left -= len(data)
        return size is not None

    def _allowed(self, op: int, up: bool) -> int | None:
        """How much of this frame passes before the connection is cut; None: it is not."""
        with self._lock:
            if not self._cuts or (self._cuts[0].op, self._cuts[0].up) != (op, up):
                return None
            return self._cuts.pop(0).size


def _some(source: socket.socket, most: int) -> bytes:
    data = source.recv(most)
    if not data:
        raise EOFError
    return data
