"""Accepts connections on a listening socket in the event loop, some at a time."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import socket
from collections.abc import Callable
from pathlib import Path

import structlog

from .rates import Sparing

ACCEPTED_MOST = 16  # at once, before others get their turn
PAUSE_SECONDS = 0.1  # when there are no descriptors

log = structlog.get_logger()


def origin(address: str) -> str:
    """Whose connections are counted together: of IPv6 all of a network, for a machine has as many addresses
    there as it likes. An IPv4 address is one machine, also where a socket of IPv6 is told it.
    """
    address = address.removeprefix("::ffff:") if "." in address else address
    if ":" not in address:
        return address
    return str(ipaddress.IPv6Network((address.partition("%")[0], 64), strict=False))


def make_way(path: Path) -> None:
    """Remove the Unix socket that a daemon left there which is gone. Raises OSError for one that lives, and
    for what is no socket: it is somebody's.
    """
    if not path.is_socket():
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, "there is a file, which is no socket", str(path))
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        if probe.connect_ex(str(path)) in (0, errno.EAGAIN):  # or so many wait there already
            raise OSError(errno.EADDRINUSE, "another monitor listens there", str(path))
    path.unlink(missing_ok=True)


class Acceptor:
    """Gives each connection to `admit`, with its origin; it outlives a lack of descriptors."""

    def __init__(
        self, listening: socket.socket, kind: str, admit: Callable[[socket.socket, str], None]
    ) -> None:
        """`kind`: what is spoken there, for log lines."""
        self._listening = listening
        self._kind = kind
        self._admit = admit
        self.complaints = Sparing(log.warning)

    @property
    def is_open(self) -> bool:
        """Whether there is still a socket to listen on."""
        return self._listening.fileno() >= 0

    def open(self) -> None:
        """Begin to accept connections, in the running event loop."""
        if self.is_open:
            asyncio.get_running_loop().add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(ACCEPTED_MOST):
            try:
                connection, address = self._listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                self.complaints.say(f"{self._kind}: accept failed", "accept", error=str(error))
                loop.remove_reader(self._listening)
                loop.call_later(PAUSE_SECONDS, self.open)
                return
            self._admit(connection, origin(str(address[0])))

    def close(self) -> None:
        """Accept no more, and close the listening socket."""
        if self.is_open:
            asyncio.get_running_loop().remove_reader(self._listening)
        self._listening.close()
