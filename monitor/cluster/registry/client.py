"""Calls to a registry: signed, and believed only if the answer is sealed."""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from typing import Any

import grpc
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from gpuferry.specs._generated import registry_pb2

from ...service.dial import why_unreachable
from .signing import CHALLENGE, SEAL, TOGETHER, Call, Caller, Forged

_SERVICE = registry_pb2.DESCRIPTOR.services_by_name["Registry"]
SERVICE = _SERVICE.full_name
UNREACHABLE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
IMPOSTOR = "what answers there does not hold the cluster key"


class CallFailed(Exception):
    """Why a registry did not do what it was asked. `genuine`: it says so itself, and no other replica would
    say anything else.
    """

    def __init__(self, code: grpc.StatusCode, text: str, genuine: bool) -> None:
        super().__init__(text)
        self.code = code
        self.genuine = genuine


def path_of(method: str) -> str:
    """What gRPC calls a method of the registry."""
    return f"/{SERVICE}/{method}"


def read_answer(call: Call, sealed: bytes) -> Any:
    """The message in the call's next answer. Raises CallFailed."""
    try:
        answer = call.open(sealed)
    except Forged:
        raise CallFailed(grpc.StatusCode.UNAUTHENTICATED, IMPOSTOR, False) from None
    method = _SERVICE.methods_by_name[call.method.rpartition("/")[2]]
    return GetMessageClass(method.output_type).FromString(answer)


def failure(call: Call, error: Any) -> CallFailed:
    """What an error means. Its words count if they are sealed; an impostor's are not passed on."""
    code, text = error.code(), error.details() or ""
    trailing = dict(error.trailing_metadata() or ())
    seal = str(trailing.get(SEAL, ""))
    if hmac.compare_digest(seal.encode(), call.seal_of_error(code.name, text).encode()):
        return CallFailed(code, text, code not in UNREACHABLE)
    if code is grpc.StatusCode.UNAUTHENTICATED:
        if not call.challenge and CHALLENGE not in trailing:  # which ours tells whoever comes first
            return CallFailed(code, f"it is of another release: {TOGETHER}", False)
        return CallFailed(code, "it does not accept this cluster key", False)
    if code in UNREACHABLE:
        return CallFailed(code, why_unreachable(code, text), False)
    return CallFailed(grpc.StatusCode.UNAUTHENTICATED, IMPOSTOR, False)


async def ask(
    channel: grpc.aio.Channel, caller: Caller, replica: str, method: str, request: Message, timeout: float
) -> Any:
    """The answer of one replica, which the channel leads to, within `timeout` seconds. Raises CallFailed."""
    raw, path = request.SerializeToString(), path_of(method)
    for again in (True, False):
        call = caller.begin(replica, path)
        asking = channel.unary_unary(path, None, None)(raw, timeout=timeout, metadata=call.metadata(raw))
        try:
            return read_answer(call, await asking)
        except grpc.aio.AioRpcError as error:
            if not (again and caller.learns(replica, call, error.trailing_metadata())):
                raise failure(call, error) from None
    raise AssertionError


def answers(
    channel: grpc.Channel, caller: Caller, replica: str, method: str, request: Message, timeout: float | None
) -> Iterator[Any]:
    """As `ask`, for who may wait: the one answer, or all those of a method that goes on."""
    raw, path = request.SerializeToString(), path_of(method)
    streams = _SERVICE.methods_by_name[method].server_streaming
    for again in (True, False):
        call = caller.begin(replica, path)
        asking: Any = (channel.unary_stream if streams else channel.unary_unary)(path, None, None)
        try:
            found = asking(raw, timeout=timeout, metadata=call.metadata(raw))
            for sealed in found if streams else [found]:
                yield read_answer(call, sealed)
            return
        except grpc.RpcError as error:
            if not (again and caller.learns(replica, call, error.trailing_metadata())):
                raise failure(call, error) from None
