"""The socket to `gpuferry run --local`: says how its monitor starts, and ends it with its parent."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable


class Parent:
    """The launcher that this monitor must not outlive, at the other end of a socket pair."""

    def __init__(self, descriptor: int, gone: Callable[[], None]) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._socket.setblocking(False)
        self._socket.set_inheritable(False)
        self._gone = gone
        asyncio.get_running_loop().add_reader(self._socket, self._hung_up)

    def tell(self, line: str) -> None:
        """Tell the launcher how the start went: `ready`, or `failed REASON`."""
        with contextlib.suppress(OSError):
            self._socket.send(line.encode() + b"\n")

    def _hung_up(self) -> None:
        asyncio.get_running_loop().remove_reader(self._socket)
        self._gone()
