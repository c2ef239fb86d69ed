"""The gRPC side: status for the operator, health and reflection."""

from __future__ import annotations

import asyncio
import functools
import os
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

import grpc
from gpuferry.migration.errors import SnapshotError
from gpuferry.specs._generated import control_pb2, control_pb2_grpc, tenants_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from ..broker.broker import Broker
from ..door.listener import listen_tcp, name_of
from ..moves.migration import CannotMove, Target, ToDevice, ToDevices, ToFile, ToServer
from ..residency.copies import NoRoom
from ..residency.steward import Steward
from ..service.front import Front
from ..service.ports import add_front, add_port, bounded
from ..service.rates import Buckets
from ..service.tls import Identity
from ..store.interface import StoreError
from .callers import Caller, Callers, TooOften, visible
from .invocations import Listening
from .migrations import describe

SERVICE = control_pb2.DESCRIPTOR.services_by_name["Monitor"].full_name
KINDS = {False: "unary", True: "stream"}  # as gRPC calls them
Prove = Callable[[str, str | None], str | None]
Serving = health_pb2.HealthCheckResponse.ServingStatus
FOR_TENANTS = {"Status", "WatchStatus", "EndSession", "ListTenants", "Invocations"}
RECALL_SECONDS = 30.0  # for room on the GPU
SOCKET = "control.sock"
REASON_MOST = 500  # characters, of why a session is ended
LISTENING_MOST = 8  # calls of Invocations that a tenant may have at once
JUDGED_SECONDS = 1.0  # until the token of one who has such a call is looked at again
NOTES_A_SECOND = 1000.0  # of one tenant that are heard; the others wait on its side

# Of the call that this task serves: who makes it, and how to ask whether that is so still: as a call that is
# counted, or as part of this one.
_caller: ContextVar[Caller] = ContextVar("caller")
_again: ContextVar[Callable[[], Awaitable[Caller | Refused]]] = ContextVar("again")
_still: ContextVar[Callable[[], Awaitable[Caller | Refused]]] = ContextVar("still")


class Refused(NamedTuple):
    """How a call ends that may not be made."""

    code: grpc.StatusCode
    text: str


def printable(text: str) -> str:
    """The text without control characters: it reaches terminals and logs."""
    return "".join(letter for letter in text if letter.isprintable())


class RequireToken(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Calls of our own service need a token, and some the operator's; health and reflection tell nothing
    worth one.
    """

    def __init__(self, callers: Callers, prove: Prove) -> None:
        self._callers = callers
        self._prove = prove

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        details: grpc.HandlerCallDetails,
    ) -> Any:
        """Runs in front of every call."""
        service, _, method = details.method.rpartition("/")
        if service != f"/{SERVICE}":
            return await continuation(details)
        scheme, _, token = str(dict(details.invocation_metadata).get("authorization", "")).partition(" ")
        caller = await self._judge(token if scheme == "Bearer" else "")
        if isinstance(caller, Refused):
            return _aborting(*caller)
        if caller.tenant is not None and method not in FOR_TENANTS:
            text = (
                f"{method} is the operator's: a tenant's token lists, shows and ends that tenant's sessions"
            )
            return _aborting(grpc.StatusCode.PERMISSION_DENIED, text)
        _caller.set(caller)  # the call is served in this task
        _again.set(functools.partial(self._judge, token))
        _still.set(functools.partial(self._judge, token, counts=False))
        return _entered(await continuation(details), lambda peer: self._prove(peer, caller.tenant))

    async def _judge(self, token: str, counts: bool = True) -> Caller | Refused:
        """Who makes a call with this token."""
        try:
            caller = await self._callers.of(token, counts)
        except TooOften as error:
            return Refused(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        except StoreError as error:
            return Refused(grpc.StatusCode.UNAVAILABLE, f"tokens cannot be checked now: {error}")
        return caller or Refused(grpc.StatusCode.UNAUTHENTICATED, "wrong or missing token")


async def _until_revoked(
    judge: Callable[[], Awaitable[Caller | Refused]], listening: Listening, hearing: asyncio.Task[None]
) -> None:
    """Hear nothing more when its token is one no more, even if it does not read that. A store that does not
    answer is no reason.
    """
    while True:
        await asyncio.sleep(JUDGED_SECONDS)
        judged = await judge()
        if isinstance(judged, Refused) and judged.code is grpc.StatusCode.UNAUTHENTICATED:
            listening.refuse(*judged)
            hearing.cancel()
            return


def _entered(handler: Any, enter: Callable[[str], str | None]) -> Any:
    """The handler of a call, which ends it if the connection it came by has no place."""
    if handler is None:
        return None

    async def check(context: Any) -> None:
        if refusal := enter(context.peer()):
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, refusal)

    def replying(serve: Callable[[Any, Any], Awaitable[Any]]) -> Callable[[Any, Any], Awaitable[Any]]:
        async def reply(request: Any, context: Any) -> Any:
            await check(context)
            return await serve(request, context)

        return reply

    def streaming(
        serve: Callable[[Any, Any], AsyncGenerator[Any, None]],
    ) -> Callable[[Any, Any], AsyncGenerator[Any, None]]:
        async def stream(request: Any, context: Any) -> AsyncGenerator[Any, None]:
            await check(context)
            async with aclosing(serve(request, context)) as replies:
                async for reply in replies:
                    yield reply

        return stream

    wrap = streaming if handler.response_streaming else replying
    kind = f"{KINDS[handler.request_streaming]}_{KINDS[handler.response_streaming]}"
    return handler._replace(**{kind: wrap(getattr(handler, kind))})


def _aborting(code: grpc.StatusCode, text: str) -> Any:
    async def abort(_: object, context: Any) -> None:
        await context.abort(code, text)

    return grpc.unary_unary_rpc_method_handler(abort)


class MonitorService(control_pb2_grpc.MonitorServicer):  # type: ignore[misc]
    """The service Monitor of control.proto: what commands and tools ask a running monitor."""

    def __init__(
        self,
        status: Callable[[str | None], Awaitable[control_pb2.StatusReply]],
        pause: Callable[[float], Awaitable[bool]],
        broker: Broker,
        steward: Steward,
        reports: Callable[[str], list[tenants_pb2.Report]],
    ) -> None:
        """`status`: of a tenant's sessions; None: of all. `reports`: of one tenant; no name: of all."""
        self._status = status
        self._pause = pause
        self._broker = broker
        self._steward = steward
        self._reports = reports
        self._listening: Counter[str] = Counter()  # calls of Invocations, by tenant
        self._notes = Buckets(time.monotonic)

    async def Status(self, request: control_pb2.StatusRequest, context: Any) -> control_pb2.StatusReply:
        """What the monitor knows, and the caller may see, at this moment."""
        return await self._seen_by(_caller.get())

    async def _seen_by(self, caller: Caller) -> control_pb2.StatusReply:
        return visible(await self._status(caller.tenant), caller)

    async def WatchStatus(
        self, request: control_pb2.WatchStatusRequest, context: Any
    ) -> AsyncIterator[control_pb2.StatusReply]:
        """What the monitor knows, once per interval, until the caller hangs up or the monitor stops. To a
        tenant each time is a call: its token may have been revoked, and its calls are limited.
        """
        wanted, caller = request.interval_seconds, _caller.get()
        least = 0.1 if caller.tenant is None else 1.0
        interval = max(wanted, least) if wanted > 0 else 1.0  # what is no number too
        yield await self._seen_by(caller)
        while await self._pause(interval):
            if caller.tenant is not None and isinstance(refused := await _again.get()(), Refused):
                await context.abort(*refused)
            yield await self._seen_by(caller)

    async def EndSession(
        self, request: control_pb2.EndSessionRequest, context: Any
    ) -> control_pb2.EndSessionReply:
        """End a session; its guest is told why. Of another tenant's nobody learns whether it is there."""
        tenant = _caller.get().tenant
        who = "the operator" if tenant is None else f"tenant {tenant}"
        reason = printable(request.reason)[:REASON_MOST] or f"ended by {who}"
        if not self._broker.endings.by_number(request.session, reason, tenant):
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no session {request.session}")
        return control_pb2.EndSessionReply()

    async def EvictSession(
        self, request: control_pb2.EvictSessionRequest, context: Any
    ) -> control_pb2.EvictSessionReply:
        """Send a session's memory away from its GPU, to the end even if the caller goes: its copies would
        count for ever.
        """
        evicting = asyncio.ensure_future(self._steward.evict(request.session))
        evicting.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody else may look
        try:
            told = await asyncio.shield(evicting)
        except KeyError:
            await self._abort_without_memory(request.session, context)
            raise
        except NoRoom as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
            raise
        return control_pb2.EvictSessionReply(
            bytes=told.mapped, copied_bytes=told.copied_bytes, seconds=told.seconds
        )

    async def RecallSession(
        self, request: control_pb2.RecallSessionRequest, context: Any
    ) -> control_pb2.RecallSessionReply:
        """Bring a session's memory back to its GPU, and answer when it is there."""
        began = time.monotonic()
        try:
            await self._steward.recall(request.session, request.timeout_seconds or RECALL_SECONDS)
        except KeyError:
            await self._abort_without_memory(request.session, context)
            raise
        except NoRoom as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
            raise
        return control_pb2.RecallSessionReply(seconds=time.monotonic() - began)

    async def _abort_without_memory(self, number: int, context: Any) -> None:
        """Nothing of the session is on a GPU here, or was sent away from one."""
        session = self._broker.sessions.get(number)
        if session is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no session {number}")
            return
        if session.file:
            why = f"is suspended, in {session.file}"
        elif session.moved_to:
            why = f"has moved to {session.moved_to}"
        else:
            why = "waits for a GPU"
        text = f"session {number} {why}: it has no memory here"
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, text)

    async def Invocations(
        self, notes: AsyncIterator[control_pb2.InvocationNote], context: Any
    ) -> AsyncIterator[control_pb2.InvocationReply]:
        """Hear of invocations, and tell where memory is."""
        tenant = _caller.get().tenant
        if tenant is not None and self._listening[tenant] >= LISTENING_MOST:
            text = f"tenant {tenant} has {LISTENING_MOST} calls of Invocations already"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        listening = Listening(
            self._steward,
            tenant,
            self._move,
            lambda: self._may_speak(tenant),
            self._broker.all_back,
            self._broker.rooms,
            lambda: self._broker.share(tenant or ""),
        )
        tasks = [asyncio.ensure_future(listening.hear(notes))]
        if tenant is not None:
            tasks.append(asyncio.ensure_future(_until_revoked(_still.get(), listening, tasks[0])))
        self._listening[tenant or ""] += 1
        try:
            async for reply in listening.replies():
                yield reply
        finally:
            self._listening -= Counter([tenant or ""])
            for task in tasks:
                task.cancel()
            listening.close()
        if refusal := listening.refusal:
            await context.abort(*refusal)

    def _may_speak(self, tenant: str | None) -> bool:
        """Whether one more note is heard now."""
        return tenant is None or self._notes.take(tenant, NOTES_A_SECOND, NOTES_A_SECOND)

    def _move(self, session: int, device: int) -> str | None:
        """Begin to move a session. Returns why it cannot be."""
        try:
            self._broker.rehome(session, device)
        except KeyError:
            return "it is over"
        except CannotMove as error:
            return error.reason
        return None

    async def ListTenants(self, request: tenants_pb2.ListRequest, context: Any) -> tenants_pb2.ListReply:
        """What tenants may have, have and have had; to a tenant only its own."""
        tenant = _caller.get().tenant
        wanted = request.tenant if tenant is None else tenant
        return tenants_pb2.ListReply(reports=self._reports(wanted))

    async def Migrate(
        self, request: control_pb2.MigrateRequest, context: Any
    ) -> AsyncIterator[control_pb2.Migration]:
        """Move a running session, and tell how it goes until it is over."""
        kind = request.WhichOneof("target")
        target: Target
        if kind == "file":
            target = ToFile(request.file)
        elif kind == "server":
            target = ToServer(request.server)
        elif kind == "device" and request.more:
            target = ToDevices((request.device, *request.more))
        elif kind == "device" or request.any:
            target = ToDevice(None if request.any else request.device)
        else:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no target")
            return
        dry_run, timeout = request.dry_run, request.timeout_seconds
        try:
            begun = self._broker.migrate(request.session, target, request.strategy, timeout, dry_run)
        except KeyError:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no session {request.session}")
            return
        except CannotMove as error:
            await _refuse(context, error)
            return
        if begun is None:
            yield control_pb2.Migration(session=request.session, target=str(target))
            return
        async for _ in begun.follow():
            yield describe(begun)

    async def ResumeSession(
        self, request: control_pb2.ResumeSessionRequest, context: Any
    ) -> AsyncIterator[control_pb2.Migration]:
        """Bring a suspended session back from its file, and tell how it goes until it is over."""
        kind = request.WhichOneof("target")
        target = ToServer(request.server) if kind == "server" else ToDevice(None)
        if kind == "device":
            target = ToDevice(request.device)
        try:
            begun = self._broker.resume_session(
                request.file, target, request.timeout_seconds, request.allow_unencrypted
            )
        except KeyError:
            text = f"no session of this monitor is suspended in {request.file}: its program may have ended"
            if not os.path.lexists(request.file):
                text = f"there is no file {request.file}"
            await context.abort(grpc.StatusCode.NOT_FOUND, text)
            return
        except CannotMove as error:
            await _refuse(context, error)
            return
        async for _ in begun.follow():
            yield describe(begun)

    async def InspectFile(
        self, request: control_pb2.InspectFileRequest, context: Any
    ) -> control_pb2.InspectFileReply:
        """Tell whose session is in a file, as far as our key can tell."""
        if not os.path.lexists(request.file):
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no file {request.file}")
        try:
            return self._broker.inspect_file(request.file)
        except (SnapshotError, CannotMove) as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, error.reason)
            raise  # abort has raised already


async def _refuse(context: Any, error: CannotMove) -> None:
    code = grpc.StatusCode.RESOURCE_EXHAUSTED if error.room else grpc.StatusCode.FAILED_PRECONDITION
    await context.abort(code, error.reason)


class ControlServer:
    """The gRPC server on a Unix socket, or on a port, with TLS where there is an identity; then on a Unix
    socket too, for commands of the same user, whom no crowd at the port keeps out.
    """

    def __init__(
        self, service: MonitorService, callers: Callers, connections: int, identity: Identity | None
    ) -> None:
        self._identity = identity
        self._connections = connections
        self._front: Front | None = None
        self.here = ""  # that Unix socket, where the port is another
        guard = RequireToken(callers, self._prove)
        self._server = grpc.aio.server(interceptors=[guard], options=bounded(connections))
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]
        control_pb2_grpc.add_MonitorServicer_to_server(service, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection(
            (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server
        )

    def _prove(self, peer: str, tenant: str | None) -> str | None:
        return self._front.prove(peer, tenant) if self._front else None

    async def start(self, address: str, folder: Path) -> str:
        """Bind the address and answer; `folder` is the monitor's own. Returns the address as callers name it.
        Raises ConfigError.
        """
        path, name = Path(address.removeprefix("unix:")), address
        if not address.startswith("unix:"):
            listening = listen_tcp(address, "--control")
            name = name_of(listening, secure=self._identity is not None)
            self._front = add_front(self._server, listening, folder, self._identity, self._connections)
            path = folder / SOCKET
            self.here = f"unix:{path}"
        add_port(self._server, path)
        await self._server.start()
        path.chmod(0o600)
        if self._front:
            self._front.open()
        return name

    async def set_serving(self, serving: bool) -> None:
        """Tell gRPC's health service whether there is an API server for a guest."""
        status = Serving.SERVING if serving else Serving.NOT_SERVING
        await self._health.set("", status)
        await self._health.set(SERVICE, status)

    async def stop(self) -> None:
        """Answer no more calls; those that run have half a second to finish."""
        await self._server.stop(0.5)
        if self._front:
            self._front.close()
