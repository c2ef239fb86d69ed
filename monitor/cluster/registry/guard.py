"""The registry's gRPC server lets in signed calls only, and seals what it answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from .signing import CHALLENGE, SEAL, Call, Guard, NotSigned


class _Sealing:
    """A call's context, as far as the service uses it."""

    def __init__(self, context: Any, call: Call) -> None:
        self._context = context
        self._call = call

    async def abort(self, code: grpc.StatusCode, text: str) -> None:
        """End the call with an error that the caller can believe."""
        await self._context.abort(code, text, ((SEAL, self._call.seal_of_error(code.name, text)),))


class RequireSignature(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Calls of our own service are signed; health and reflection tell nothing worth it."""

    def __init__(self, guard: Guard, service: str, prove: Callable[[str], object]) -> None:
        """`prove` is told the connection of each call that is signed."""
        self._guard = guard
        self._service = service
        self._prove = prove

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        details: grpc.HandlerCallDetails,
    ) -> Any:
        """Runs in front of every call; signature and seal are over the bytes as they travel."""
        handler = await continuation(details)
        method = details.method
        if handler is None or not method.startswith(f"/{self._service}/"):
            return handler

        async def admit(raw: bytes, context: Any) -> Call:
            try:
                call = self._guard.admit(method, context.invocation_metadata(), raw)
            except NotSigned as error:
                hint = ((CHALLENGE, error.challenge),) if error.challenge else ()
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error), hint)
                raise
            self._prove(context.peer())
            return call

        if handler.response_streaming:

            async def stream(raw: bytes, context: Any) -> Any:
                call = await admit(raw, context)
                request = handler.request_deserializer(raw)
                async for reply in handler.unary_stream(request, _Sealing(context, call)):
                    yield call.seal(handler.response_serializer(reply))

            return grpc.unary_stream_rpc_method_handler(stream)

        async def unary(raw: bytes, context: Any) -> Any:
            call = await admit(raw, context)
            reply = await handler.unary_unary(handler.request_deserializer(raw), _Sealing(context, call))
            return call.seal(handler.response_serializer(reply))

        return grpc.unary_unary_rpc_method_handler(unary)
