"""Accepts guests on TCP and on a Unix socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import structlog

from .config import ConfigError, resolve
from .credentials import Authority
from .guests import Reception, prepare, shake_hands
from .handshake import Refusal

BACKLOG = 512
HANDSHAKES_MOST = 128  # at once

log = structlog.get_logger()


def listen_tcp(address: str) -> socket.socket:
    """A listening socket for host:port."""
    family, bound = resolve(address)
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return _listen(listening, lambda: listening.bind(bound), address)


def listen_unix(path: str) -> socket.socket:
    """A listening socket that only this user can reach. What an earlier monitor left behind is removed."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    if Path(path).is_socket():
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            if probe.connect_ex(path) == 0:
                listening.close()
                raise ConfigError(f"{path}: another monitor listens there; give --socket another path")
        Path(path).unlink(missing_ok=True)

    def bind() -> None:
        listening.bind(path)
        Path(path).chmod(0o600)

    return _listen(listening, bind, path)


def _listen(listening: socket.socket, bind: Callable[[], None], name: str) -> socket.socket:
    try:
        bind()
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        reason = error.strerror or str(error)
        raise ConfigError(
            f"cannot listen on {name}: {reason}; choose another with --listen or --socket"
        ) from None
    listening.setblocking(False)
    return listening


def name_of(listening: socket.socket) -> str:
    """As `--monitor` takes it, with the port that was really bound."""
    address = listening.getsockname()
    if listening.family == socket.AF_UNIX:
        return f"unix:{address}"
    host, port = address[:2]
    return f"[{host}]:{port}" if listening.family == socket.AF_INET6 else f"{host}:{port}"


class Listener:
    """One listening socket and the handshakes that are going on."""

    def __init__(
        self, listening: socket.socket, authority: Authority, limit: float, reception: Reception
    ) -> None:
        self._listening = listening
        self._authority = authority
        self._limit = limit  # seconds for a handshake
        self._reception = reception
        self._handshakes: dict[asyncio.Task[None], None] = {}  # oldest first
        self.name = name_of(listening)

    async def serve(self) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(self._listening)
            except OSError as error:  # out of descriptors, say: the guests in the backlog can wait
                log.error("accept failed", error=str(error))
                await asyncio.sleep(0.1)
                continue
            if len(self._handshakes) >= HANDSHAKES_MOST:
                # A right guest needs milliseconds: whoever says nothing longest makes room.
                next(iter(self._handshakes)).cancel()
            peer = f"{address[0]}:{address[1]}" if isinstance(address, tuple) else "unix"
            task = asyncio.ensure_future(self._welcome(connection, peer))
            self._handshakes[task] = None
            task.add_done_callback(self._handshakes.pop)

    async def _welcome(self, connection: socket.socket, peer: str) -> None:
        try:
            prepare(connection)
            guest = await shake_hands(connection, peer, self._authority, self._limit)
            self._reception.arrive(guest)
        except Refusal as refusal:
            self._reception.turn_away(connection, peer, refusal)
        except OSError as error:
            log.debug("guest left during the handshake", peer=peer, error=str(error))
            connection.close()
        except asyncio.CancelledError:
            connection.close()
            raise

    def close(self) -> None:
        """Listen no more, and end handshakes that are still going on."""
        for task in self._handshakes:
            task.cancel()
        address = self._listening.getsockname()
        self._listening.close()
        if isinstance(address, str):
            Path(address).unlink(missing_ok=True)
