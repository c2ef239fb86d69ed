"""A TCP proxy that cuts connections after a chosen number of bytes, in either direction."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterable
from functools import partial

from tests.helpers.door import Between, Pair, end

# How many bytes a connection may carry to the server and back before it is cut; None: as many as come.
Allowance = tuple[int | None, int | None]


class Cutter(Between):
    """Stands before a monitor. Use as a context manager."""

    def __init__(self, target: str, allowances: Iterable[Allowance] = ()) -> None:
        super().__init__(target)
        self._allowances = iter(allowances)
        self.cuts = 0

    def _pumps(self, pair: Pair) -> tuple[Callable[[], None], Callable[[], None]]:
        near, far = pair
        up, down = next(self._allowances, (None, None))
        return partial(self._pump, near, far, pair, up), partial(self._pump, far, near, pair, down)

    def _over(self, pair: Pair) -> None:
        """It stays open until all is over: a close with bytes unread resets the connection, and what was let
        pass before would be lost."""

    def _pump(self, source: socket.socket, sink: socket.socket, pair: Pair, allowance: int | None) -> None:
        left = allowance
        with contextlib.suppress(OSError):
            while data := source.recv(65536 if left is None else min(left, 65536)):
                sink.sendall(data)
                if left is not None:
                    left -= len(data)
                    if left == 0:
                        self.cuts += 1
                        break
        end(pair)
