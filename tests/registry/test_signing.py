"""Signatures of calls and seals of answers, by themselves."""

from __future__ import annotations

from types import SimpleNamespace

import grpc
import pytest
from gpuferry.monitor.cluster.registry.client import failure
from gpuferry.monitor.cluster.registry.signing import (
    CHALLENGE,
    CHALLENGE_SECONDS,
    SEAL_SIZE,
    Call,
    Caller,
    Forged,
    Guard,
    Metadata,
    NotSigned,
)
from gpuferry.specs._generated import registry_pb2
from hypothesis import given
from hypothesis import strategies as st

KEY, METHOD, REQUEST = b"k" * 64, "/package.Service/Drain", b"request"


class Replica:
    """One replica, and the clock that it looks at."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.guard = Guard(KEY, lambda: self.now)

    def challenge(self) -> str:
        with pytest.raises(NotSigned) as caught:
            self.guard.admit(METHOD, Call(KEY, METHOD, "").metadata(REQUEST), REQUEST)
        return caught.value.challenge

    def admits(self, metadata: Metadata, method: str = METHOD, request: bytes = REQUEST) -> bool:
        try:
            return bool(self.guard.admit(method, metadata, request))
        except NotSigned:
            return False


def test_a_call_is_good_once() -> None:
    replica = Replica()
    metadata = Call(KEY, METHOD, replica.challenge()).metadata(REQUEST)
    assert not replica.admits(metadata, request=b"other")
    assert not replica.admits(metadata, method="/package.Service/Undrain")
    assert replica.admits(metadata)
    assert not replica.admits(metadata)


def test_a_call_is_good_at_one_replica_and_until_it_restarts() -> None:
    one, other = Replica(), Replica()
    metadata = Call(KEY, METHOD, one.challenge()).metadata(REQUEST)
    assert not other.admits(metadata)
    one.guard = Guard(KEY, lambda: one.now)
    assert not one.admits(metadata)


def test_a_call_is_good_for_a_short_time_by_the_replicas_own_clock() -> None:
    replica = Replica()
    name = replica.challenge()
    used, first, second = (Call(KEY, METHOD, name).metadata(REQUEST) for _ in range(3))
    assert replica.admits(used)
    replica.now += CHALLENGE_SECONDS
    assert replica.admits(first)  # who was told the challenge of before is not late yet
    assert not replica.admits(used)
    replica.now += CHALLENGE_SECONDS
    assert not replica.admits(second)
    assert not replica.admits(used)


def test_a_replica_that_was_not_called_for_long_forgets_both() -> None:
    replica = Replica()
    metadata = Call(KEY, METHOD, replica.challenge()).metadata(REQUEST)
    replica.now += 2 * CHALLENGE_SECONDS
    assert not replica.admits(metadata)


@pytest.mark.parametrize(
    "given",
    [None, (), (("authorization", ""),), (("authorization", "gpuferry-1 1 2 3"),), (("authorization", "x"),)],
)
def test_what_is_not_signed(given: Metadata) -> None:
    assert not Replica().admits(given)


def test_another_key_is_told_no_challenge_to_try() -> None:
    replica = Replica()
    metadata = Call(b"x" * 64, METHOD, replica.challenge()).metadata(REQUEST)
    with pytest.raises(NotSigned) as caught:
        replica.guard.admit(METHOD, metadata, REQUEST)
    assert not caught.value.challenge


def test_a_caller_takes_another_challenge_and_remembers_it() -> None:
    caller = Caller(KEY)
    call = caller.begin("a:1", METHOD)
    assert not caller.learns("a:1", call, None)
    assert caller.learns("a:1", call, ((CHALLENGE, "first"),))
    again = caller.begin("a:1", METHOD)
    assert again.challenge == "first"
    assert not caller.learns("a:1", again, ((CHALLENGE, "first"),))
    assert caller.begin("b:1", METHOD).challenge == ""


def ends() -> tuple[Call, Call]:
    """The caller's and the replica's idea of one call."""
    asked = Call(KEY, METHOD, "challenge")
    return asked, Call(KEY, METHOD, "challenge", asked.nonce)


def test_answers_come_in_order_and_belong_to_their_call() -> None:
    asked, answered = ends()
    first, second = answered.seal(b"one"), answered.seal(b"two")
    with pytest.raises(Forged):
        Call(KEY, METHOD, "challenge", asked.nonce).open(second)
    for stranger in (
        Call(KEY, METHOD, "challenge"),
        Call(KEY, METHOD, "another", asked.nonce),
        Call(KEY, "/package.Service/List", "challenge", asked.nonce),
        Call(b"x" * 64, METHOD, "challenge", asked.nonce),
    ):
        with pytest.raises(Forged):
            stranger.open(first)
    assert (asked.open(first), asked.open(second)) == (b"one", b"two")


@given(position=st.integers(0, 40), bit=st.integers(0, 7), size=st.integers(0, 40))
def test_a_changed_answer_is_none(position: int, bit: int, size: int) -> None:
    asked, answered = ends()
    sealed = bytearray(answered.seal(b"answer"))
    sealed[position] ^= 1 << bit
    with pytest.raises(Forged):
        asked.open(bytes(sealed))
    with pytest.raises(Forged):
        Call(KEY, METHOD, "challenge", asked.nonce).open(answered.seal(b"answer")[:size])


def test_an_error_is_sealed_with_its_words() -> None:
    asked, answered = ends()
    seal = answered.seal_of_error("NOT_FOUND", "no such server")
    assert asked.seal_of_error("NOT_FOUND", "no such server") == seal
    assert asked.seal_of_error("NOT_FOUND", "another") != seal
    assert asked.seal_of_error("INVALID_ARGUMENT", "no such server") != seal


def test_a_seal_is_a_field_that_nothing_else_uses() -> None:
    reply = registry_pb2.HeartbeatReply(interval_seconds=2.0, drained=True)
    _, answered = ends()
    sealed = answered.seal(reply.SerializeToString())
    read = registry_pb2.HeartbeatReply.FromString(sealed)
    assert (read.interval_seconds, read.drained) == (2.0, True)
    assert len(sealed) == len(reply.SerializeToString()) + SEAL_SIZE
    messages = registry_pb2.DESCRIPTOR.services_by_name["Registry"].methods
    assert all(90 not in method.output_type.fields_by_number for method in messages)


def test_another_release_is_told_apart_from_another_key() -> None:
    """Both sides say so: the operator would look for a wrong key."""
    replica = Replica()
    with pytest.raises(NotSigned, match="upgraded together"):
        replica.guard.admit(METHOD, (("authorization", "gpuferry-1 1 2 3"),), REQUEST)
    older = SimpleNamespace(
        code=lambda: grpc.StatusCode.UNAUTHENTICATED,
        details=lambda: "wrong cluster key",
        trailing_metadata=lambda: (),
    )
    assert "upgraded together" in str(failure(Call(KEY, METHOD, ""), older))
    assert "this cluster key" in str(failure(Call(KEY, METHOD, replica.challenge()), older))
