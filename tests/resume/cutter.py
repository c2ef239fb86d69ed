"""A TCP proxy that cuts connections after a chosen number of bytes, in either direction."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections.abc import Iterable

from gpuferry.guest.endpoint import split_address

# How many bytes a connection may carry to the server and back before it is cut; None: as many as come.
Allowance = tuple[int | None, int | None]


class Cutter:
    """Stands before a monitor. Use as a context manager."""

    def __init__(self, target: str, allowances: Iterable[Allowance] = ()) -> None:
        self.target = target
        self._allowances = iter(allowances)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._threads: list[threading.Thread] = []
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self.cuts = self.connections = 0
        self.refusing = False  # new connections are closed at once

    def __enter__(self) -> Cutter:
        self._accepting.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._accepting.join()
        for pair in self._pairs:
            self._end(pair)
        for thread in self._threads:
            thread.join()
        for connection in itertools.chain.from_iterable(self._pairs):
            connection.close()

    def cut(self) -> None:
        """Cut what there is now, not what comes of it."""
        for pair in list(self._pairs):
            self._end(pair)

    def _end(self, pair: tuple[socket.socket, socket.socket]) -> None:
        for connection in pair:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            if self.refusing:
                near.close()
                continue
            parts = split_address(self.target)
            far = socket.socket(socket.AF_UNIX if isinstance(parts, str) else socket.AF_INET)
            try:
                far.connect(parts)
            except OSError:
                near.close()
                far.close()
                continue
            pair = (near, far)
            self.connections += 1
            self._pairs.append(pair)
            up, down = next(self._allowances, (None, None))
            for source, sink, allowance in ((near, far, up), (far, near, down)):
                if sink.family == socket.AF_INET:
                    sink.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                thread = threading.Thread(
                    target=self._pump, args=(source, sink, pair, allowance), daemon=True
                )
                self._threads.append(thread)
                thread.start()

    def _pump(
        self,
        source: socket.socket,
        sink: socket.socket,
        pair: tuple[socket.socket, socket.socket],
        allowance: int | None,
    ) -> None:
        left = allowance
        with contextlib.suppress(OSError):
            while data := source.recv(65536 if left is None else min(left, 65536)):
                sink.sendall(data)
                if left is not None:
                    left -= len(data)
                    if left == 0:
                        self.cuts += 1
                        break
        self._end(pair)
