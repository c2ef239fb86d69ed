"""Accepts guests on TCP and on a Unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import select
import socket
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import structlog
from gpuferry.guest.endpoint import TLS_SCHEME
from gpuferry.native.tls.stream import Connection

from ..service.acceptor import make_way, origin
from ..service.rates import Sparing
from ..service.tls import Identity
from ..settings.errors import ConfigError
from ..settings.monitor import resolve
from .credentials import Authority, look_up
from .guests import Guest, Handshake, Reception, address_of, admit
from .handshake import Claim, CudaError, Proven, Reason, Refusal, Resume
from .secure import SecureHandshake

# As many as the system lets: a crowd must not fill it while the monitor does something else, for whoever
# comes then is not heard before TCP asks again, a second later.
BACKLOG = 4096
LOST_AFTER_MS = 20000  # of data that nobody acknowledges, or probes: the guest is gone
HANDSHAKES_MOST = 1024  # at once, where there are descriptors for so many
LISTEN_ONCE = select.EPOLLIN | select.EPOLLONESHOT  # who has said HELLO need not be unregistered
MAKING_ROOM = 8  # of the largest crowd this part goes when there are too many
ACCEPTED_MOST = 16  # before those who are further get their turn
LOOKS_MOST = 64  # before the rest of the monitor gets its turn
SO_PASSRIGHTS = 83  # of Linux 6.16, not yet in Python's socket

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
        # And keep-alive does not ask while data waits to be acknowledged. It asks for so long, too: with this
        # the kernel does not count its probes.
        (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, LOST_AFTER_MS),
    ):
        listening.setsockopt(level, setting, value)
    return _listen(listening, lambda: listening.bind(bound), address, option)


def listen_unix(path: str) -> socket.socket:
    """A listening socket that only this user can reach. What an earlier monitor left behind is removed."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Connections inherit it: nobody sends descriptors. The last close of a socket may wait for as long as it
    # is set to linger, and whoever reads what it came with, or closes what it was not read from, would wait.
    with contextlib.suppress(OSError):  # an older kernel, where the socket's own user can do that
        listening.setsockopt(socket.SOL_SOCKET, SO_PASSRIGHTS, 0)

    def bind() -> None:
        make_way(Path(path))
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


def name_of(listening: socket.socket, secure: bool = False) -> str:
    """The socket's address as `--monitor` takes it, with the port that was really bound; `secure`: it speaks
    TLS.
    """
    address = listening.getsockname()
    if listening.family == socket.AF_UNIX:
        return f"unix:{address}"
    host, port = address[:2]
    name = f"[{host}]:{port}" if listening.family == socket.AF_INET6 else f"{host}:{port}"
    return TLS_SCHEME + name if secure else name


def stop_listening(listening: socket.socket) -> None:
    """Close a listening socket and remove its file, if it has one. Of one that is closed: nothing."""
    if listening.fileno() >= 0:
        address = listening.getsockname()
        listening.close()
        if isinstance(address, str):
            Path(address).unlink(missing_ok=True)


class Listener:
    """One listening socket and the handshakes that are going on.

    A crowd may arrive at once. They share one epoll and one timer, for what an event loop does about a
    descriptor, a timer or a task takes longer than all the rest of a handshake. What is done for several
    of them in a row is still in the processor's caches for all but the first.
    """

    def __init__(
        self,
        listening: socket.socket,
        authority: Authority,
        limit: float,
        reception: Reception,
        identity: Identity | None = None,
        most: int = HANDSHAKES_MOST,
    ) -> None:
        """With an identity, whoever comes by TCP must speak TLS; a Unix socket does not leave the machine."""
        self._listening = listening
        self._family = listening.family
        self._authority = authority
        self._limit = limit  # seconds for a handshake
        self._reception = reception
        self._most = most  # handshakes at once
        self._complaints = Sparing(log.error)
        self._epoll = select.epoll()
        self._door = listening.fileno()
        self._epoll.register(listening, select.EPOLLIN)
        self._identity = identity if listening.family != socket.AF_UNIX else None
        self._handshakes: dict[int, Handshake | SecureHandshake] = {}  # by descriptor; oldest first
        self._lookups: dict[asyncio.Task[None], str] = {}  # peers of claims that take time; oldest first
        self._timer: asyncio.TimerHandle | None = None  # while there are handshakes
        self.name = name_of(listening, secure=self._identity is not None)

    async def serve(self) -> None:
        """Accept guests and shake hands with them, until cancelled."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._epoll, self._look)
        try:
            await loop.create_future()
        finally:
            loop.remove_reader(self._epoll)

    def _look(self) -> None:
        """Those who are further go first; each step is taken with all who are at it."""
        for _ in range(LOOKS_MOST):
            found = [descriptor for descriptor, _ in self._epoll.poll(0)]
            speaking = [descriptor for descriptor in found if descriptor in self._handshakes]
            for descriptor in speaking:
                self._handshakes[descriptor].receive()
            if proven := [guest for descriptor in speaking if (guest := self._hear(descriptor))]:
                self._reception.arrive(proven)
            if self._door in found:
                self._accept()
            if not found:
                break
        self._settle()

    def _settle(self) -> None:
        if not self._handshakes and not self._lookups:
            self._reception.quiet()

    def _accept(self) -> None:
        ends = time.monotonic() + self._limit
        for _ in range(ACCEPTED_MOST):
            try:
                # accept() would ask the kernel and two enums what the listening socket is, for each guest.
                descriptor, address = self._listening._accept()  # type: ignore[attr-defined]
            except BlockingIOError:
                return
            except OSError as error:  # out of descriptors, say: the guests in the backlog can wait
                self._complaints.say("accept failed", self.name, error=str(error))
                self._epoll.unregister(self._listening)
                asyncio.get_running_loop().call_later(0.1, self._accept_again)
                return
            if len(self._handshakes) + len(self._lookups) >= self._most:
                self._make_room()
            connection = socket.socket(self._family, socket.SOCK_STREAM, 0, descriptor)
            peer = f"{address[0]}:{address[1]}" if isinstance(address, tuple) else "unix"
            try:
                self._handshakes[descriptor] = self._begin(connection, peer, ends)
            except OSError as error:  # with new certificates TLS needs a descriptor of its own
                self._complaints.say("handshake failed to begin", self.name, error=str(error))
                connection.close()
                continue
            self._epoll.register(descriptor, LISTEN_ONCE)
            if not self._timer:
                self._timer = asyncio.get_running_loop().call_later(self._limit, self._end_late)

    def _begin(self, connection: socket.socket, peer: str, ends: float) -> Handshake | SecureHandshake:
        if self._identity:
            return SecureHandshake(connection, peer, ends, self._identity.server_context())
        return Handshake(connection, peer, ends)

    def _accept_again(self) -> None:
        if not self._epoll.closed:
            self._epoll.register(self._listening, select.EPOLLIN)

    def _make_room(self) -> None:
        """A right guest needs milliseconds: of the machine that has most of them here, the oldest go."""
        silent = {at: origin(address_of(one.peer)) for at, one in self._handshakes.items()}
        asking = {task: origin(address_of(peer)) for task, peer in self._lookups.items()}
        ((crowd, many),) = Counter([*silent.values(), *asking.values()]).most_common(1)
        # Some at once: they were counted for each who came, and that cost more than all the rest.
        going = many // MAKING_ROOM + 1
        for at in [at for at, one in silent.items() if one == crowd][:going]:
            self._handshakes.pop(at).connection.close()
            going -= 1
        for task in [task for task, one in asking.items() if one == crowd][:going]:
            del self._lookups[task]
            task.cancel()

    def _end_late(self) -> None:
        self._timer = None
        now = time.monotonic()
        while self._handshakes:
            descriptor, oldest = next(iter(self._handshakes.items()))
            if oldest.ends > now:
                self._timer = asyncio.get_running_loop().call_later(oldest.ends - now, self._end_late)
                return
            # Who does speak the protocol has a machine or a way that is too slow at the moment.
            late = Refusal(Reason.MALFORMED, oldest.late(self._limit), CudaError.SYSTEM_NOT_READY)
            del self._handshakes[descriptor]
            if oldest.can_be_told:
                self._reception.turn_away(oldest.connection, oldest.peer, late)
            else:
                oldest.connection.close()

    def _hear(self, descriptor: int) -> Guest | None:
        """The guest, if it has proved itself with what has come."""
        handshake = self._handshakes[descriptor]
        peer = handshake.peer
        try:
            said = handshake.read()
        except Refusal as refusal:
            del self._handshakes[descriptor]
            self._reception.turn_away(handshake.connection, peer, refusal)
            return None
        except OSError as error:
            del self._handshakes[descriptor]
            log.debug("guest left during the handshake", peer=peer, error=str(error))
            handshake.connection.close()
            return None
        if not said:
            self._epoll.modify(descriptor, LISTEN_ONCE)
            return None
        connection = handshake.connection
        del self._handshakes[descriptor]
        if isinstance(said, Resume):
            # Later than those who are heard with it: one of theirs may be the session.
            asyncio.get_running_loop().call_soon(self._reception.resume, connection, peer, said)
        elif proven := self._authority.at_once(said):
            return self._admitted(connection, peer, said, proven)
        else:
            task = asyncio.ensure_future(self._look_up(connection, peer, said))
            self._lookups[task] = peer
            task.add_done_callback(functools.partial(self._looked_up, connection))
        return None

    async def _look_up(self, connection: Connection, peer: str, claim: Claim) -> None:
        try:
            proven = await look_up(self._authority, claim)
        except Refusal as refusal:
            self._reception.turn_away(connection, peer, refusal)
        else:
            if guest := self._admitted(connection, peer, claim, proven):
                self._reception.arrive([guest])

    def _looked_up(self, connection: Connection, task: asyncio.Task[None]) -> None:
        if task.cancelled():  # perhaps before it began
            connection.close()
        self._lookups.pop(task, None)
        self._settle()

    def _admitted(
        self, connection: Connection, peer: str, claim: Claim, proven: Proven | None
    ) -> Guest | None:
        try:
            return admit(connection, peer, claim, proven)
        except Refusal as refusal:
            self._reception.turn_away(connection, peer, refusal)
            return None

    def close(self) -> None:
        """Listen no more, and end the handshakes that are still going on."""
        if self._timer:
            self._timer.cancel()
        self._epoll.close()
        for handshake in self._handshakes.values():
            handshake.connection.close()
        for task in self._lookups:
            task.cancel()
        stop_listening(self._listening)
