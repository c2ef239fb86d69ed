"""Accepts guests on TCP and on a Unix socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import structlog

from .config import ConfigError, resolve
from .credentials import Authority
from .guests import Handshake, Reception, admit, look_up
from .handshake import Claim, Proven, Refusal, Resume

BACKLOG = 512
HANDSHAKES_MOST = 128  # at once
ACCEPTED_MOST = 32  # before those who are further get their turn

log = structlog.get_logger()


def listen_tcp(address: str, option: str = "--listen") -> socket.socket:
    """A listening socket for host:port; `option` is how to choose another."""
    family, bound = resolve(address)
    listening = socket.socket(family, socket.SOCK_STREAM)
    for level, setting, value in (
        (socket.SOL_SOCKET, socket.SO_REUSEADDR, 1),
        # Connections inherit the rest, and keep it when they are handed over.
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        # A guest machine that vanishes says nothing; without this its session would live for ever.
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    ):
        listening.setsockopt(level, setting, value)
    return _listen(listening, lambda: listening.bind(bound), address, option)


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

    return _listen(listening, bind, path, "--socket")


def _listen(listening: socket.socket, bind: Callable[[], None], name: str, option: str) -> socket.socket:
    try:
        bind()
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        reason = error.strerror or str(error)
        hint = f"choose another with {option}; `gpuferry doctor` may know who has this one"
        raise ConfigError(f"cannot listen on {name}: {reason}", hint) from None
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
        self._pending: dict[Handshake | asyncio.Task[None], str] = {}  # and who it is; oldest first
        self.name = name_of(listening)

    async def serve(self) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._listening, self._accept)
        try:
            await loop.create_future()
        finally:
            loop.remove_reader(self._listening)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_MOST):
            try:
                connection, address = self._listening.accept()
            except BlockingIOError:
                return
            except OSError as error:  # out of descriptors, say: the guests in the backlog can wait
                log.error("accept failed", error=str(error))
                loop = asyncio.get_running_loop()
                loop.remove_reader(self._listening)
                loop.call_later(0.1, self._accept_again)
                return
            if len(self._pending) >= HANDSHAKES_MOST:
                # A right guest needs milliseconds: whoever says nothing longest makes room.
                oldest = next(iter(self._pending))
                del self._pending[oldest]
                oldest.cancel()
            peer = f"{address[0]}:{address[1]}" if isinstance(address, tuple) else "unix"
            self._pending[Handshake(connection, self._limit, self._claimed)] = peer

    def _accept_again(self) -> None:
        if self._listening.fileno() >= 0:
            asyncio.get_running_loop().add_reader(self._listening, self._accept)

    def _claimed(self, handshake: Handshake, outcome: Claim | Resume | Refusal | OSError) -> None:
        peer, connection = self._pending.pop(handshake), handshake.connection
        if isinstance(outcome, Refusal):
            self._reception.turn_away(connection, peer, outcome)
        elif isinstance(outcome, Resume):
            self._reception.resume(connection, peer, outcome)
        elif isinstance(outcome, OSError):
            log.debug("guest left during the handshake", peer=peer, error=str(outcome))
            connection.close()
        elif proven := self._authority.at_once(outcome):
            self._admit(connection, peer, outcome, proven)
        else:
            task = asyncio.ensure_future(self._look_up(connection, peer, outcome))
            self._pending[task] = peer
            task.add_done_callback(lambda _: self._pending.pop(task, None))

    async def _look_up(self, connection: socket.socket, peer: str, claim: Claim) -> None:
        try:
            proven = await look_up(self._authority, claim)
        except Refusal as refusal:
            self._reception.turn_away(connection, peer, refusal)
        except asyncio.CancelledError:
            connection.close()
            raise
        else:
            self._admit(connection, peer, claim, proven)

    def _admit(self, connection: socket.socket, peer: str, claim: Claim, proven: Proven | None) -> None:
        try:
            guest = admit(connection, peer, claim, proven)
        except Refusal as refusal:
            self._reception.turn_away(connection, peer, refusal)
        else:
            self._reception.arrive(guest)

    def close(self) -> None:
        """Listen no more, and end handshakes that are still going on."""
        for pending in self._pending:
            pending.cancel()
        address = self._listening.getsockname()
        self._listening.close()
        if isinstance(address, str):
            Path(address).unlink(missing_ok=True)
