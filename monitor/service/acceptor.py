"""Accepts connections on a listening socket in the event loop, some at a time."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable

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
