"""A TCP proxy that makes trouble: cuts, stalls, and delivers in crumbs."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from collections.abc import Callable
from functools import partial

from tests.helpers.door import Between, Pair, end, shut


class Proxy(Between):
    """Stands before a monitor. Use as a context manager."""

    def __init__(self, target: str, crumbs: int = 0, port: int = 0) -> None:
        super().__init__(target, port)
        self._crumbs = crumbs  # at most so many bytes at a time; 0: as they come
        self._flowing = threading.Event()
        self._flowing.set()

    def __exit__(self, *_: object) -> None:
        self._flowing.set()
        super().__exit__()

    def cut_one(self, chance: random.Random) -> None:
        """If there is one, by chance."""
        if pairs := list(self._open):
            end(chance.choice(pairs))

    def stall(self) -> None:
        """Deliver nothing until `resume`."""
        self._flowing.clear()

    def resume(self) -> None:
        self._flowing.set()

    def _pumps(self, pair: Pair) -> tuple[Callable[[], None], Callable[[], None]]:
        near, far = pair
        return partial(self._pump, near, far), partial(self._pump, far, near)

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        chance = random.Random(self._crumbs)
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                while data:
                    self._flowing.wait()
                    size = chance.randint(1, self._crumbs) if self._crumbs else len(data)
                    sink.sendall(data[:size])
                    data = data[size:]
        shut(sink, socket.SHUT_WR)
