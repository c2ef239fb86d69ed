"""Something of the test's own that listens, and something that stands between guests and servers."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from gpuferry.guest.endpoint import split_address

PATIENCE = 10.0  # seconds for a server to take what was said before the end; one that stands still does not
Pair = tuple[socket.socket, socket.socket]  # of the same guest: its connection, and the one made for it
D = TypeVar("D", bound="Door")
B = TypeVar("B", bound="Between")


class Door:
    """Accepts connections, one after the other, until it is closed. Use as a context manager."""

    def __init__(self, listening: socket.socket, enter: Callable[[socket.socket], None]) -> None:
        """`enter` is called with each connection on the thread that accepts."""
        self._listening = listening
        self._enter = enter
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._threads: list[threading.Thread] = []

    def __enter__(self: D) -> D:
        self._accepting.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self.join()

    def close(self) -> None:
        """Close the listening socket: nobody else comes in."""
        with contextlib.suppress(OSError):  # it may be closed already
            self._listening.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listening.close()

    def begin(self, target: Callable[..., object], *arguments: Any) -> threading.Thread:
        """Call `target` on a new thread, for which `join` waits."""
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads = [each for each in self._threads if each.is_alive()] + [thread]
        thread.start()
        return thread

    def join(self) -> None:
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self._enter(connection)


class Between:
    """Passes on what is said on TCP connections to a server. Use as a context manager."""

    def __init__(self, target: str, port: int = 0) -> None:
        listening = socket.create_server(("127.0.0.1", port))
        self.target = target  # a monitor's address; it may change
        self.address = f"127.0.0.1:{listening.getsockname()[1]}"
        self.connections = 0
        self.refusing = False  # new connections are closed at once
        self._door = Door(listening, self._come)
        self._open: list[Pair] = []
        self._heard: list[threading.Event] = []  # of each connection: all that the guest says was passed on

    def __enter__(self: B) -> B:
        self._door.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._door.close()
        self._hear_last()
        self.cut()
        self._door.join()
        for connection in itertools.chain.from_iterable(self._open):
            connection.close()

    def _hear_last(self) -> None:
        """A guest that has ended said its last, which may not have been passed on yet. Nobody says more."""
        for near, _ in list(self._open):
            shut(near, socket.SHUT_RD)
        deadline = time.monotonic() + PATIENCE
        for heard in list(self._heard):
            heard.wait(max(0.0, deadline - time.monotonic()))

    def cut(self) -> None:
        """What there is now, not what comes of it; on both sides."""
        for pair in list(self._open):
            end(pair)

    def _come(self, near: socket.socket) -> None:
        far = None if self.refusing else connect(self.target)
        if far is None:
            near.close()
            return
        self.connections += 1
        pair = (near, far)
        for connection in pair:
            if connection.family == socket.AF_INET:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._open.append(pair)
        heard = threading.Event()
        self._heard.append(heard)
        self._door.begin(self._carry, pair, self._pumps(pair), heard)

    def _carry(
        self, pair: Pair, pumps: tuple[Callable[[], None], Callable[[], None]], heard: threading.Event
    ) -> None:
        up, down = pumps
        back = threading.Thread(target=down, daemon=True)
        back.start()
        up()
        heard.set()
        back.join()
        self._over(pair)

    def _over(self, pair: Pair) -> None:
        """Both directions of a connection have ended."""
        self._open.remove(pair)
        for connection in pair:
            connection.close()

    def _pumps(self, pair: Pair) -> tuple[Callable[[], None], Callable[[], None]]:
        """How to pass on what the guest says, and what the server says, until the connection ends."""
        raise NotImplementedError


def connect(target: str) -> socket.socket | None:
    """None: nobody listens there."""
    parts = split_address(target)
    connection = socket.socket(socket.AF_UNIX if isinstance(parts, str) else socket.AF_INET)
    try:
        connection.connect(parts)
    except OSError:
        connection.close()
        return None
    return connection


def end(pair: Pair) -> None:
    """Shut a connection down, on both sides."""
    for connection in pair:
        shut(connection, socket.SHUT_RDWR)


def shut(connection: socket.socket, how: int) -> None:
    """Shut a connection down that may have ended already. Under TLS the one below: `SSLSocket.shutdown`
    forgets the keys, and what is read after that is encrypted.
    """
    with contextlib.suppress(OSError):
        socket.socket.shutdown(connection, how)
