"""A TCP proxy that cuts a connection at a byte of a frame, of whatever connection that comes first."""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import dataclass

from gpuferry.guest.endpoint import split_address

HEADER = 16


@dataclass(frozen=True)
class Cut:
    """After so many bytes of the next frame of this operation, on its way up to the server or down. None: it
    passes."""

    op: int
    up: bool
    size: int | None


class FrameCutter:
    """Stands before a monitor, until cut after cut is done. Use as a context manager."""

    def __init__(self, target: str) -> None:
        where = split_address(target)
        assert isinstance(where, tuple)
        self._target = where
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._cuts: list[Cut] = []
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._pairs: list[tuple[socket.socket, socket.socket]] = []

    def __enter__(self) -> FrameCutter:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for pair in list(self._pairs):
            _end(pair)
        for thread in self._threads:
            thread.join()
        for pair in self._pairs:
            for connection in pair:
                connection.close()

    def expect(self, *cuts: Cut) -> None:
        """What is to be done next, in this order."""
        with self._lock:
            self._cuts.extend(cuts)

    def left(self) -> list[Cut]:
        """What was not done; it will not be."""
        with self._lock:
            left, self._cuts = self._cuts, []
        return left

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            far = socket.create_connection(self._target)
            pair = (near, far)
            self._pairs.append(pair)
            for source, sink, up in ((near, far, True), (far, near, False)):
                sink.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                thread = threading.Thread(target=self._pump, args=(source, sink, pair, up), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _pump(
        self, source: socket.socket, sink: socket.socket, pair: tuple[socket.socket, socket.socket], up: bool
    ) -> None:
        with contextlib.suppress(OSError, EOFError):
            while not self._pass_frame(source, sink, up):
                pass
        _end(pair)

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


def _end(pair: tuple[socket.socket, socket.socket]) -> None:
    for connection in pair:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
