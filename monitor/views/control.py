"""The gRPC side: status for the operator, health and reflection."""

from __future__ import annotations

import hmac
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
from gpuferry.migration.errors import SnapshotError
from gpuferry.specs._generated import control_pb2, control_pb2_grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from ..broker.broker import Broker
from ..moves.migration import CannotMove, Target, ToDevice, ToFile, ToServer
from ..service.ports import ALONE, add_port
from .migrations import describe

SERVICE = control_pb2.DESCRIPTOR.services_by_name["Monitor"].full_name
Serving = health_pb2.HealthCheckResponse.ServingStatus


class RequireToken(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Calls of our own service need the token; health and reflection tell nothing worth one."""

    def __init__(self, token: bytes) -> None:
        self._expected = b"Bearer " + token

        async def deny(_: object, context: Any) -> None:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "wrong or missing token")

        self._deny = grpc.unary_unary_rpc_method_handler(deny)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        details: grpc.HandlerCallDetails,
    ) -> Any:
        """Runs in front of every call."""
        if details.method.startswith(f"/{SERVICE}/"):
            given = str(dict(details.invocation_metadata).get("authorization", ""))
            if not hmac.compare_digest(given.encode(), self._expected):
                return self._deny
        return await continuation(details)


class MonitorService(control_pb2_grpc.MonitorServicer):  # type: ignore[misc]
    """What control.proto declares."""

    def __init__(
        self,
        status: Callable[[], Awaitable[control_pb2.StatusReply]],
        pause: Callable[[float], Awaitable[bool]],
        broker: Broker,
    ) -> None:
        self._status = status
        self._pause = pause
        self._broker = broker

    async def Status(self, request: control_pb2.StatusRequest, context: Any) -> control_pb2.StatusReply:
        """What the monitor knows, at this moment."""
        return await self._status()

    async def WatchStatus(
        self, request: control_pb2.WatchStatusRequest, context: Any
    ) -> AsyncIterator[control_pb2.StatusReply]:
        """What the monitor knows, once per interval, until the caller hangs up or the monitor stops."""
        interval = max(request.interval_seconds or 1.0, 0.1)
        yield await self._status()
        while await self._pause(interval):
            yield await self._status()

    async def EndSession(
        self, request: control_pb2.EndSessionRequest, context: Any
    ) -> control_pb2.EndSessionReply:
        """End a session; its guest is told why."""
        if not self._broker.end_by_number(request.session, request.reason or "ended by the operator"):
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no session {request.session}")
        return control_pb2.EndSessionReply()

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
        elif kind == "device":
            target = ToDevice(request.device)
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
    """The gRPC server on a loopback port or a Unix socket."""

    def __init__(self, service: MonitorService, token: bytes) -> None:
        self._server = grpc.aio.server(interceptors=[RequireToken(token)], options=ALONE)
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]
        control_pb2_grpc.add_MonitorServicer_to_server(service, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection(
            (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server
        )

    async def start(self, address: str) -> str:
        """Bind the address and answer. Returns it with the port that was bound. Raises ConfigError."""
        if address.startswith("unix:"):
            path = Path(address[len("unix:") :])
            path.unlink(missing_ok=True)
        port = add_port(self._server, address)
        await self._server.start()
        if address.startswith("unix:"):
            path.chmod(0o600)
            return address
        return f"{address.rpartition(':')[0]}:{port}"

    async def set_serving(self, serving: bool) -> None:
        """Tell gRPC's health service whether there is an API server for a guest."""
        status = Serving.SERVING if serving else Serving.NOT_SERVING
        await self._health.set("", status)
        await self._health.set(SERVICE, status)

    async def stop(self) -> None:
        """Answer no more calls; those that run have half a second to finish."""
        await self._server.stop(0.5)
