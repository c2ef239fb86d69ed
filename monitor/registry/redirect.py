"""Takes guests from the listener and sends each to a GPU server."""

from __future__ import annotations

import asyncio
import socket

import structlog
from gpuferry.guest.endpoint import split_address
from gpuferry.specs._generated import registry_pb2

from .. import handshake, tickets
from ..guests import Farewells, Guest
from ..handshake import CudaError, Reason, Refusal, Resume
from ..waiting import within
from .choose import Wish, choose, eligible, why_none
from .directory import Directory

WAITING_MOST = 1000
PROBE_SECONDS = 1.0

log = structlog.get_logger()


async def _greets(address: str) -> bool:
    """Whether a monitor answers there: one that hangs still accepts connections, in its backlog."""
    target = split_address(address)
    opening = (
        asyncio.open_unix_connection(target) if isinstance(target, str) else asyncio.open_connection(*target)
    )

    async def greet() -> bytes:
        reader, writer = await opening
        try:
            return await reader.readexactly(handshake.HEADER.size + len(handshake.MAGIC))
        finally:
            writer.close()

    try:
        greeting = await within(PROBE_SECONDS, greet())
    except (OSError, EOFError, asyncio.TimeoutError):
        return False
    return greeting.endswith(handshake.MAGIC)


class Redirector:
    """The registry's Reception."""

    def __init__(self, directory: Directory, cluster_key: bytes, policy: str, max_wait: float) -> None:
        self._directory = directory
        self._key = cluster_key
        self._policy = policy
        self._max_wait = max_wait
        self._farewells = Farewells()
        self._tasks: set[asyncio.Task[None]] = set()
        # Each by the heartbeat that it was true at: the next one knows better.
        self._sent: dict[tuple[str, int], int] = {}
        self._dead: set[tuple[str, int]] = set()

    def arrive(self, guest: Guest) -> None:
        """Choose, in the background."""
        if len(self._tasks) >= WAITING_MOST:
            refusal = Refusal(Reason.NO_CAPACITY, f"{WAITING_MOST} guests wait already")
            self.turn_away(guest.connection, guest.peer, refusal)
            return
        task = asyncio.ensure_future(self._place(guest))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def quiet(self) -> None:
        """Nothing waits for that."""

    def resume(self, connection: socket.socket, peer: str, _: Resume) -> None:
        """Sessions are at the GPU servers, and their guests know which."""
        self.turn_away(connection, peer, Refusal(Reason.NO_SESSION, "a registry has no sessions"))

    def turn_away(self, connection: socket.socket, peer: str, refusal: Refusal) -> None:
        """Tell a guest why not, in the background."""
        log.info("refused", reason=refusal.reason.name, text=refusal.text, peer=peer)
        self._farewells.send(connection, refusal.frame())

    async def _place(self, guest: Guest) -> None:
        try:
            server = await within(self._max_wait, self._find(guest))
        except asyncio.TimeoutError:
            self.turn_away(guest.connection, guest.peer, self._refusal(_wish(guest)))
            return
        except asyncio.CancelledError:
            guest.connection.close()
            raise
        address, hello = server.registration.address, guest.hello
        ticket = tickets.issue(self._key, server.load.incarnation, hello.tenant)
        session_key = tickets.session_key(self._key, ticket)
        frame = handshake.redirect(guest.key, guest.nonces, session_key, ticket, address)
        log.info("redirected", peer=guest.peer, program=hello.program, function=hello.function, to=address)
        self._farewells.send(guest.connection, frame)

    def _refusal(self, wish: Wish) -> Refusal:
        servers = self._directory.servers
        enough = any(eligible(server, Wish(0, wish.labels)) for server in servers)
        error = CudaError.OUT_OF_MEMORY if enough and wish.memory else None
        return Refusal(Reason.NO_CAPACITY, why_none(servers, wish), error)

    async def _find(self, guest: Guest) -> registry_pb2.Server:
        """The chosen server, which has just greeted."""
        wish = _wish(guest)
        while True:
            change = self._directory.next_change()
            while server := self._choose(wish):
                beat = _beat(server)
                self._sent[beat] = self._sent.get(beat, 0) + 1
                if await _greets(server.registration.address):
                    return server
                log.warning("server does not answer", address=server.registration.address)
                self._dead.add(beat)
            await change.wait()

    def _choose(self, wish: Wish) -> registry_pb2.Server | None:
        current = {_beat(server): server for server in self._directory.servers}
        self._sent = {beat: count for beat, count in self._sent.items() if beat in current}
        self._dead &= current.keys()
        candidates = [server for beat, server in current.items() if beat not in self._dead]
        pending = {address: count for (address, _), count in self._sent.items()}
        address = choose(self._policy, candidates, wish, pending)
        return next((one for one in candidates if one.registration.address == address), None)

    async def close(self) -> None:
        """Guests that wait for a server are told."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._farewells.finish()


def _wish(guest: Guest) -> Wish:
    return Wish(guest.hello.memory, guest.hello.labels)


def _beat(server: registry_pb2.Server) -> tuple[str, int]:
    return server.registration.address, server.load.sequence
