"""The registry's gRPC side: what registry.proto declares."""

from __future__ import annotations

import functools
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from gpuferry.guest.endpoint import TLS_SCHEME, is_name, split_address
from gpuferry.specs._generated import registry_pb2, registry_pb2_grpc, tenants_pb2

from ...door.tokens import proof
from ...door.tokens.book import TokenBook, TooMany
from ...service.versions import package_version
from ...settings.limits import NAMES
from ...store.interface import StoreError
from ...tenants.book import LimitBook
from ...tenants.messages import from_message, only_newer, to_message
from .accounts import ClusterUsage
from .directory import Directory, NotIdle, Unknown
from .programs import ID_SIZE, PROGRAMS_MOST

BEATS_PER_LEASE = 4
LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
KEY_SIZE = 32
ADDRESS_MOST = 255
TEXT_MOST = 255
NUMBER_SIZE = 16
DEVICES_MOST = 256
CLOCK_MOST = 1 << 53  # milliseconds

Method = Callable[[Any, Any, Any], Awaitable[Any]]


def _bare(address: str) -> str:
    """A server says itself whether it has TLS; who registers it may have copied that along."""
    return address.removeprefix(TLS_SCHEME)


def _check_address(address: str) -> None:
    """One that a guest can be sent to."""
    parts = split_address(address)
    if (
        len(address) > ADDRESS_MOST
        or not address.isprintable()
        or " " in address
        or not (isinstance(parts, str) or (parts[1] and is_name(parts[0])))
    ):
        raise ValueError(f"{address!r} is no address that a guest could connect to")


def _is_shown(text: str) -> bool:
    return text.isprintable() and len(text) <= TEXT_MOST


def _check_load(load: registry_pb2.Load) -> None:
    """What one server says, others read, and operators see on their terminals. Names that guests chose are
    left out where they cannot be shown: a server with another Python knows other letters, and must not be
    refused for what its guest says.
    """
    if not all(map(_is_shown, [load.address, load.version, *(device.name for device in load.devices)])):
        raise ValueError("its texts are too long, or hold control characters")
    for program in load.programs:
        for name in ("tenant", "function"):
            if not _is_shown(getattr(program, name)):
                program.ClearField(name)
    if len(load.incarnation) not in (0, NUMBER_SIZE) or any(len(one) != NUMBER_SIZE for one in load.tickets):
        raise ValueError(f"incarnation and tickets have {NUMBER_SIZE} bytes")
    if len(load.devices) > DEVICES_MOST:
        raise ValueError(f"{len(load.devices)} devices: at most {DEVICES_MOST} are believed")
    if len(load.programs) > PROGRAMS_MOST:
        raise ValueError(f"{len(load.programs)} programs: at most {PROGRAMS_MOST} are believed")
    if any(len(one.id) not in (0, ID_SIZE) or len(one.devices) > DEVICES_MOST for one in load.programs):
        raise ValueError(f"a program has {ID_SIZE} bytes of a digest, or none, and devices of its server")
    if load.clock > CLOCK_MOST:
        raise ValueError(f"no clock shows {load.clock} ms")


def _errors(method: Method) -> Method:
    """What goes wrong below becomes a status and a sentence."""

    @functools.wraps(method)
    async def call(self: RegistryService, request: Any, context: Any) -> Any:
        try:
            return await method(self, request, context)
        except Unknown as error:
            text = f"no GPU server {error} is registered: see `gpuferry server list`"
            await context.abort(grpc.StatusCode.NOT_FOUND, text)
        except NotIdle as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except TooMany as error:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except StoreError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, f"the registry's store: {error}")

    return call


class RegistryService(registry_pb2_grpc.RegistryServicer):  # type: ignore[misc]
    """One replica; it holds no state that another would miss."""

    def __init__(
        self, directory: Directory, book: TokenBook, lease: float, limits: LimitBook, usage: ClusterUsage
    ) -> None:
        self._directory = directory
        self._book = book
        self._limits = limits
        self._usage = usage
        self._interval = lease / BEATS_PER_LEASE

    @_errors
    async def Register(self, request: registry_pb2.RegisterRequest, context: Any) -> registry_pb2.Server:
        """Register a GPU server; again, it may change its labels."""
        address = _bare(request.address)
        _check_address(address)
        for label in request.labels:
            if not (LABEL.fullmatch(label.name) and LABEL.fullmatch(label.value)):
                raise ValueError(f"label {label.name}={label.value}: letters, digits, `.`, `_` and `-`")
        await self._directory.register(address, list(request.labels))
        return await self._directory.show(address)

    @_errors
    async def List(self, request: registry_pb2.ListRequest, context: Any) -> registry_pb2.ListReply:
        """All registered GPU servers, with their clocks as of now."""
        servers = await self._directory.read()
        for server in servers:
            if server.load.clock:
                server.load.clock = int(self._directory.clocks.of(server) * 1000)
        return registry_pb2.ListReply(servers=servers)

    async def Watch(
        self, request: registry_pb2.WatchRequest, context: Any
    ) -> AsyncIterator[registry_pb2.ListReply]:
        """All registered GPU servers now, and again after every change."""
        while True:
            change = self._directory.next_change()
            if self._directory.known:
                yield registry_pb2.ListReply(servers=self._directory.servers)
            await change.wait()

    @_errors
    async def Show(self, request: registry_pb2.ServerRequest, context: Any) -> registry_pb2.Server:
        """The GPU server with this address."""
        return await self._directory.show(_bare(request.address))

    @_errors
    async def Drain(self, request: registry_pb2.ServerRequest, context: Any) -> registry_pb2.Server:
        """Give the GPU server no new sessions."""
        await self._directory.set_drained(_bare(request.address), True)
        return await self._directory.show(_bare(request.address))

    @_errors
    async def Undrain(self, request: registry_pb2.ServerRequest, context: Any) -> registry_pb2.Server:
        """Give the GPU server new sessions again."""
        await self._directory.set_drained(_bare(request.address), False)
        return await self._directory.show(_bare(request.address))

    @_errors
    async def Remove(self, request: registry_pb2.ServerRequest, context: Any) -> registry_pb2.Server:
        """Forget a drained GPU server; returns what it was."""
        return await self._directory.remove(_bare(request.address))

    @_errors
    async def Heartbeat(
        self, request: registry_pb2.HeartbeatRequest, context: Any
    ) -> registry_pb2.HeartbeatReply:
        """Note what a monitor says of itself; returns what it must know."""
        _check_load(request.load)
        registration = await self._directory.beat(request.load)
        await self._usage.note(request.load)
        known = [(one.tenant, proof.Verifier(one.stored_key, b"")) for one in await self._book.all()]
        return registry_pb2.HeartbeatReply(
            interval_seconds=self._interval,
            drained=registration.drained,
            kills=await self._book.kills(),
            tenants=await self._limits.messages(),
            tokens=[
                registry_pb2.TokenDigest(tenant=tenant, digest=proof.fingerprint(one))
                for tenant, one in known
            ],
        )

    @_errors
    async def SetTenant(self, request: tenants_pb2.SetRequest, context: Any) -> tenants_pb2.Limits:
        """Set limits of a tenant for all GPU servers, which hear of them with their next heartbeats."""
        tenant = request.limits.tenant
        if not proof.is_tenant(tenant) or not set(request.unset) <= set(NAMES):
            raise ValueError("no such tenant, or limit, can be")
        if only_newer(request.limits):
            raise ValueError(f"this registry, {package_version()}, does not know all of these limits")
        found = await self._limits.set(tenant, from_message(request.limits), request.unset)
        return to_message(tenant, found)

    @_errors
    async def ListTenants(self, request: tenants_pb2.ListRequest, context: Any) -> tenants_pb2.ListReply:
        """What tenants may have, have and have used in the whole cluster."""
        limits = await self._limits.all()
        reports = await self._usage.reports(await self._directory.read(), limits)
        return tenants_pb2.ListReply(reports=[one for one in reports if request.tenant in ("", one.tenant)])

    @_errors
    async def AddToken(self, request: registry_pb2.AddTokenRequest, context: Any) -> registry_pb2.Token:
        """Store what checks a token. The token itself is made by the caller and stays there."""
        token = request.token
        if not proof.is_tenant(token.tenant) or {len(token.stored_key), len(token.server_key)} != {KEY_SIZE}:
            raise ValueError("no such token can be")
        known = proof.Verifier(token.stored_key, token.server_key)
        if token.id != proof.token_id(known):
            raise ValueError("the id does not belong to the key")
        await self._book.add(token)
        return _without_keys(token)

    @_errors
    async def RevokeTokens(
        self, request: registry_pb2.RevokeTokensRequest, context: Any
    ) -> registry_pb2.RevokeTokensReply:
        """Make one token of a tenant, or all of them, unknown from this moment on."""
        revoked = await self._book.revoke(request.tenant, request.id, request.kill)
        return registry_pb2.RevokeTokensReply(revoked=revoked)

    @_errors
    async def ListTokens(
        self, request: registry_pb2.ListTokensRequest, context: Any
    ) -> registry_pb2.ListTokensReply:
        """Tenants, ids and dates of all tokens; nothing that could check one."""
        tokens = [_without_keys(token) for token in await self._book.all()]
        return registry_pb2.ListTokensReply(tokens=tokens)


def _without_keys(token: registry_pb2.Token) -> registry_pb2.Token:
    return registry_pb2.Token(tenant=token.tenant, id=token.id, created=token.created)
