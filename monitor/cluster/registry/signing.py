"""Signed calls: who holds the cluster key may control the registry, and the key itself stays where it is.

The signature covers method, time, a nonce and the bytes of the request. It does not hide anything.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.message import Message

SCHEME = "gpuferry-1"
CLOCKS_DIFFER = 60.0  # seconds at most between caller and registry

Metadata = tuple[tuple[str, str], ...]


def _signature(key: bytes, method: str, moment: str, nonce: str, request: bytes) -> str:
    head = f"gpuferry call 1\0{method}\0{moment}\0{nonce}\0".encode()
    return hmac.digest(key, head + request, hashlib.sha256).hex()


def sign(key: bytes, method: str, request: Message) -> Metadata:
    """The metadata of a call of `/package.Service/Method`. Messages without maps have one encoding."""
    moment, nonce = f"{time.time():.3f}", secrets.token_hex(16)
    signature = _signature(key, method, moment, nonce, request.SerializeToString())
    return (("authorization", f"{SCHEME} {moment} {nonce} {signature}"),)


class Guard:
    """The registry's side: refuses what is not signed, too old, or was seen before."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._seen: dict[str, float] = {}

    def admits(self, method: str, metadata: Any, request: bytes) -> bool:
        """Whether this call may be served."""
        now = time.time()
        parts = str(dict(metadata or ()).get("authorization", "")).split(" ")
        if len(parts) != 4 or parts[0] != SCHEME:
            return False
        _, moment, nonce, signature = parts
        expected = _signature(self._key, method, moment, nonce, request)
        if not hmac.compare_digest(signature.encode(), expected.encode()):
            return False
        self._seen = {old: then for old, then in self._seen.items() if now - then < 2 * CLOCKS_DIFFER}
        if abs(now - float(moment)) > CLOCKS_DIFFER or nonce in self._seen:
            return False
        self._seen[nonce] = now
        return True


class RequireSignature(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Calls of our own service are signed; health and reflection tell nothing worth it."""

    def __init__(self, guard: Guard, service: str) -> None:
        self._guard = guard
        self._service = service

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        details: grpc.HandlerCallDetails,
    ) -> Any:
        """Runs in front of every call; the signature is over the bytes as they came."""
        handler = await continuation(details)
        method = details.method
        if handler is None or not method.startswith(f"/{self._service}/"):
            return handler

        async def check(raw: bytes, context: Any) -> Any:
            if not self._guard.admits(method, context.invocation_metadata(), raw):
                await context.abort(
                    grpc.StatusCode.UNAUTHENTICATED,
                    "wrong cluster key, or the clocks of the two machines differ by more than a minute",
                )
            return handler.request_deserializer(raw)

        if handler.response_streaming:

            async def stream(raw: bytes, context: Any) -> Any:
                async for reply in handler.unary_stream(await check(raw, context), context):
                    yield reply

            return grpc.unary_stream_rpc_method_handler(
                stream, response_serializer=handler.response_serializer
            )

        async def unary(raw: bytes, context: Any) -> Any:
            return await handler.unary_unary(await check(raw, context), context)

        return grpc.unary_unary_rpc_method_handler(unary, response_serializer=handler.response_serializer)
