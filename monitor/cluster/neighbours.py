"""Another GPU server, to which a session is handed over: the way there, and the handshake (WIRE.md §10)."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import secrets
import socket
import ssl
import struct
from collections.abc import Iterator, Sequence

import structlog
from gpuferry.guest.endpoint import TLS_SCHEME, split_address
from gpuferry.native.tls.stream import Connection
from gpuferry.specs._generated import frames, migration_pb2, operations, registry_pb2, wire
from gpuferry.specs._generated.frames import Extension, Frame

from ..door import handshake
from ..door.agreement import UNTOLD, Agreement, names, offer
from ..door.tickets import issue, restore_key
from ..moves.migration import CannotMove
from ..moves.orders import Link
from ..pool.channel import shown
from ..service.dial import dial_async
from ..service.waiting import within
from ..sessions.session import Session
from .cluster import Cluster
from .registry.client import CallFailed, ask
from .registry.clocks import clock_of
from .registry.directory import way_to
from .registry.signing import Caller
from .way import receive, secure, send

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 5.0
REGISTRY_SECONDS = 3.0
WAIT_SECONDS = 30.0  # in the queue there
LOST_AFTER_MS = 20000
U32 = struct.Struct("<I")
U32_MOST = (1 << 32) - 1
# Without these a session can be handed over another way.
OPTIONAL = {
    number
    for number, name in wire.OPERATIONS.items()
    if name
    in ("sessionRestoreCounters", "sessionRestoreTls", "sessionRestoreOrphan", "sessionRestoreVariable")
}

log = structlog.get_logger()


class Neighbours:
    """The other GPU servers, by their names in the registry or their addresses."""

    def __init__(self, token: bytes, cluster: Cluster) -> None:
        self._token = token
        self._cluster = cluster

    async def connect(self, session: Session, name: str) -> Link:
        """Connect to the GPU server of this name and wait for an API server there. Raises CannotMove."""
        address, known = await self._find(name)
        assert session.grant
        extensions = _extensions(session)
        key = self._token
        if known:
            assert self._cluster.key
            ticket = issue(
                self._cluster.key, known.load.incarnation, session.hello.tenant, clock_of(known.load)
            )
            key = restore_key(self._cluster.key, ticket)
            extensions += handshake.extension(Extension.TICKET, ticket)
        connection = await self._open(address)
        with _closed_on_failure(connection):
            try:
                remote = await within(
                    WAIT_SECONDS + ANSWER_SECONDS, _shake_hands(connection, session, key, extensions)
                )
            except asyncio.TimeoutError:
                raise CannotMove(f"{address} does not answer") from None
            except OSError as error:
                raise CannotMove(f"{address}: {error.strerror or error}") from None
        connection.setblocking(True)
        remote.address = address
        if self._cluster.identity:
            remote.authority = self._cluster.identity.authority
        return Link(connection, remote)

    async def _open(self, address: str) -> Connection:
        """With TLS where the address says so, as its guest, which follows, will have it too."""
        identity = self._cluster.identity
        if not address.startswith(TLS_SCHEME):
            if identity:
                raise CannotMove(f"{address} has no TLS, and what comes over TLS does not go on in clear")
            return await _connect(address)
        if not identity:
            raise CannotMove(
                f"{address} wants TLS: start this monitor with --tls-cert, --tls-key and --tls-ca"
            )
        connection = await _connect(address)
        name = split_address(address)[0]
        with _closed_on_failure(connection):
            try:
                return await within(ANSWER_SECONDS, secure(connection, identity.client_context(), name))
            except asyncio.TimeoutError:
                raise CannotMove(f"{address} does not answer to TLS") from None
            except ssl.SSLCertVerificationError as error:
                text = f"{address}: its certificate is not believed: {error.verify_message}"
                raise CannotMove(text) from None
            except OSError as error:
                raise CannotMove(f"{address}: no TLS with it: {error.strerror or error}") from None

    async def _find(self, name: str) -> tuple[str, registry_pb2.Server | None]:
        """Address and, of one that the registry knows, what it knows."""
        known = await self._registered() if self._cluster.registries else []
        matching = [
            server
            for server in known
            if name
            in (way_to(server), server.registration.address, server.registration.address.rpartition(":")[0])
        ]
        if len(matching) > 1:
            addresses = ", ".join(server.registration.address for server in matching)
            raise CannotMove(f"{name} could be any of {addresses}: say which")
        if matching:
            (server,) = matching
            if not server.alive:
                raise CannotMove(f"the registry has not heard of {server.registration.address} lately")
            if server.registration.drained:
                raise CannotMove(f"{server.registration.address} is being drained")
            return way_to(server), server
        try:
            address = split_address(name)
        except ValueError:
            address = ""
        if not isinstance(address, tuple):
            asked = (
                "no such GPU server is registered" if known else "no registry is known here that could tell"
            )
            raise CannotMove(f"{name}: {asked}; write HOST:PORT for one with the same token")
        return name, None

    async def _registered(self) -> Sequence[registry_pb2.Server]:
        assert self._cluster.key
        problem, caller = "", Caller(self._cluster.key)
        for registry in self._cluster.registries:
            channel = dial_async(registry, self._cluster.identity, self._cluster.insecure)
            async with channel:
                try:
                    request = registry_pb2.ListRequest()
                    reply = await ask(channel, caller, registry, "List", request, REGISTRY_SECONDS)
                    return list(reply.servers)
                except CallFailed as error:
                    problem = f"{registry}: {error}"
        raise CannotMove(f"no registry answers: {problem}")


@contextlib.contextmanager
def _closed_on_failure(connection: Connection) -> Iterator[None]:
    try:
        yield
    except BaseException:
        connection.close()
        raise


def _extensions(session: Session) -> bytes:
    found = handshake.extension(Extension.RESTORE, frames.Restore(session.id, int(session.age * 1000)).pack())
    for kind, value in (
        (Extension.MAX_WAIT, WAIT_SECONDS * 1000),
        (Extension.WALL_LIMIT, session.wall_limit),
        (Extension.IDLE_LIMIT, session.idle_limit),
    ):
        if value:
            found += handshake.extension(kind, U32.pack(min(max(int(value), 1), U32_MOST)))
    return found


async def _connect(address: str) -> socket.socket:
    loop = asyncio.get_running_loop()
    parts = split_address(address)
    if isinstance(parts, str):
        raise CannotMove(f"{address} is on this machine: HOST:PORT is wanted")
    try:
        found = await loop.getaddrinfo(*parts, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise CannotMove(f"{address}: {error.strerror}") from None
    except UnicodeError:
        raise CannotMove(f"{address}: there can be no such name") from None
    reason = "no address"
    for family, kind, protocol, _, where in found:
        connection = socket.socket(family, kind, protocol)
        connection.setblocking(False)
        for level, setting, value in (
            (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
            (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, LOST_AFTER_MS),
        ):
            connection.setsockopt(level, setting, value)
        try:
            await within(CONNECT_SECONDS, loop.sock_connect(connection, where))
        except asyncio.TimeoutError:
            reason = "nobody answers"
        except OSError as error:
            reason = error.strerror or str(error)
        except BaseException:
            connection.close()
            raise
        else:
            return connection
        connection.close()
    raise CannotMove(f"cannot connect to {address}: {reason}")


def _promised(session: Session) -> frozenset[int] | None:
    """The operations that the session's guest may use for as long as it lives; None: all that there are."""
    assert session.grant
    return frozenset(session.grant.operations) if session.grant.limited else None


def check_agreement(promised: frozenset[int] | None, guest: str, agreement: Agreement) -> list[int]:
    """What the destination lacks of this build's operations for the way there.

    `promised` are those that the guest, of version `guest`, may use; None: all of this build. CannotMove if
    the destination lacks one of them, or one without which no session can be handed over."""
    ours = frozenset(operations.SPOKEN)
    wanted = (ours if promised is None else promised) - operations.RESTORE
    if lacking := agreement.lacks(wanted):
        raise CannotMove(
            f"it is {agreement.version} and does not know {names(lacking)} as this server does "
            f"({operations.VERSION}): the program's library ({guest}) may use that"
        )
    lacking = agreement.lacks(ours & operations.RESTORE)
    if missing := set(lacking) - OPTIONAL:
        raise CannotMove(f"it is {agreement.version} and lacks {names(missing)} to take a session over")
    return lacking


async def _shake_hands(
    connection: Connection, session: Session, key: bytes, extensions: bytes
) -> migration_pb2.RemoteTarget:
    """What WELCOME says, and the session's key there; the address is left to the caller."""
    assert session.grant
    op, greeting = await _read(connection)
    if op != Frame.GREETING or len(greeting) != frames.Greeting.SIZE:
        raise CannotMove("what answers there is no gpuferry monitor")
    greeted, nonce = frames.Greeting.unpack(greeting), secrets.token_bytes(frames.NONCE_SIZE)
    server_nonce, promised = greeted.nonce, _promised(session)
    offered = offer(greeted.build, None if promised is None else promised | operations.RESTORE)
    wish = session.hello._replace(memory=session.quota, resumable=session.grant.resume_seconds > 0, labels=())
    asked = handshake.portion_extension(wish.portion)
    if asked and greeted.build == UNTOLD:
        raise CannotMove(f"it is of release 0.1 and cannot keep what the session has: {wish.portion.shown()}")
    frame = handshake.restoring_hello(key, server_nonce, nonce, wish, offered, extensions + asked)
    await send(connection, frame)
    op, body = await _read(connection)
    while op == Frame.QUEUED:
        op, body = await _read(connection)
    if op == Frame.REFUSED:
        raise CannotMove(f"it refuses: {shown(body[frames.Refused.SIZE :].decode(errors='replace'))}")
    if op == Frame.REDIRECT:
        raise CannotMove("that is a registry, not a GPU server")
    proof = handshake.server_proof(key, server_nonce, nonce)
    if op != Frame.WELCOME or not hmac.compare_digest(body[: len(proof)], proof):
        raise CannotMove("it does not know the token: it may be an impostor")
    agreement = offered.agreed(body[_known_size(body) :])
    if agreement is None:
        raise CannotMove("its WELCOME is malformed")
    lacks = check_agreement(promised, session.grant.guest_version or operations.VERSION, agreement)
    resume_key = handshake.resume_key(key, server_nonce + nonce)
    return migration_pb2.RemoteTarget(welcome=body, key=resume_key, lacks=lacks)


def _known_size(welcome: bytes) -> int:
    """Of what WELCOME says of session, devices and images."""
    if len(welcome) < frames.Welcome.SIZE:
        return 0
    told = frames.Welcome.unpack(welcome)
    count = told.device_count
    links = count * count * frames.DeviceLink.SIZE if count > 1 else 0
    return told.SIZE + count * frames.Device.SIZE + links + told.image_hash_count * frames.HASH_SIZE


async def _read(connection: Connection) -> tuple[int, bytes]:
    """One frame, and not a byte more."""
    size, op, *_ = frames.Header.unpack(await _exactly(connection, frames.Header.SIZE))
    if not frames.Header.SIZE <= size <= frames.HANDSHAKE_FRAME_MAX:
        raise CannotMove("it does not speak gpuferry's protocol")
    return op, await _exactly(connection, size - frames.Header.SIZE)


async def _exactly(connection: Connection, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = await receive(connection, size - len(data))
        if not part:
            raise CannotMove("it closed the connection")
        data += part
    return data
