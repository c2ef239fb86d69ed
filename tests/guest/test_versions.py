"""A guest before servers of other builds: what both lay out alike works, the rest fails without an effect."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from gpuferry.specs._generated import frames, operations, wire
from gpuferry.specs._generated.frames import Extension, Reason

from codegen.load import load
from tests.guest.conftest import Guest
from tests.guest.fake_server import OPS, FakeServer, Hello

IDS = {variant.symbol: variant.id for variant in load().driver.variants}
OTHER = operations.BUILD ^ 0x5555 or 1
FIRST = operations.RELEASES[0]
THEIRS = "gpuferry 9.9 (cafecafe)"
NOT_SUPPORTED = 801
USE = """
start()
stream = u64()
print([cu("cuStreamCreateWithPriority", byref(stream), 1, 0) for _ in range(4)], stream.value)
print(cu("cuCtxSynchronize"))
"""


def offered(hello: Hello) -> list[frames.Spoken]:
    said = hello.extensions[Extension.OPERATIONS]
    return [frames.Spoken.unpack(said, at) for at in range(0, len(said), frames.Spoken.SIZE)]


def knows(
    differs: Callable[[frames.Spoken], bool], last: int = operations.FUNCTIONS[1]
) -> Callable[[Hello], bytes]:
    """A server that lays out everything as the guest does, but for some."""

    def agreed(hello: Hello) -> bytes:
        listed = offered(hello)
        bits = bytearray((len(listed) + 7) // 8)
        for place, each in enumerate(listed):
            bits[place // 8] |= (not differs(each)) << place % 8
        return frames.Agreement(last, len(bits), len(THEIRS)).pack() + bytes(bits) + THEIRS.encode()

    return agreed


def lacks(*names: str) -> Callable[[Hello], bytes]:
    return knows(lambda spoken: spoken.id in [OPS[name] for name in names])


def told(server: FakeServer) -> list[tuple[int, int]]:
    return [struct.unpack("<II", f.body) for f in server.frames if f.name == "sessionUnsupported"]


def test_nothing_is_said_to_the_same_build(server: FakeServer, guest: Guest) -> None:
    assert guest("start()").stderr == ""
    assert server.hello
    assert server.hello.spec_hash == wire.SPEC_HASH
    assert server.hello.extensions == {}


def test_another_build_is_told_every_operation(server: FakeServer, guest: Guest) -> None:
    server.build, server.agreed = OTHER, knows(lambda _: False)
    outcome = guest(USE)
    assert (outcome.stdout.splitlines()[1], outcome.stderr) == ("0", "")
    assert server.hello
    assert server.hello.spec_hash == wire.SPEC_HASH
    assert dict(offered(server.hello)) == operations.SPOKEN
    assert server.hello.extensions[Extension.VERSION] == operations.VERSION.encode()
    assert "cuStreamCreateWithPriority" in server.names


@pytest.mark.sanitize
def test_what_the_server_lacks(server: FakeServer, guest: Guest) -> None:
    """At its first use, before any local effect; named once, with both versions; counted."""
    server.build, server.agreed = OTHER, lacks("cuStreamCreateWithPriority")
    outcome = guest(USE)
    assert outcome.stdout == f"{[NOT_SUPPORTED] * 4} 0\n0\n"
    (line,) = outcome.stderr.splitlines()
    assert "cuStreamCreateWithPriority is not supported" in line
    assert operations.VERSION in line
    assert THEIRS in line
    assert "cuStreamCreateWithPriority" not in server.names
    assert told(server) == [(IDS["cuStreamCreateWithPriority"], calls) for calls in (1, 1, 2)]


def test_what_goes_by_an_operation_that_is_lacking(server: FakeServer, guest: Guest) -> None:
    server.build, server.agreed = OTHER, lacks("sessionMemMap")
    code = 'start(); print(cu("cuMemAlloc_v2", byref(u64()), 1 << 20), cu("cuCtxSynchronize"))'
    assert guest(code).stdout == f"{NOT_SUPPORTED} 0\n"
    assert "sessionMemMap" not in server.names


def test_a_function_that_the_server_does_not_know_is_not_counted(server: FakeServer, guest: Guest) -> None:
    """It would be an error there."""
    last = IDS["cuStreamCreateWithPriority"] - 1
    server.build = OTHER
    server.agreed = knows(lambda spoken: spoken.id == OPS["cuStreamCreateWithPriority"], last)
    assert guest(USE).stdout.endswith("\n0\n")
    assert told(server) == []


def test_the_first_release_is_known_without_being_told(server: FakeServer, guest: Guest) -> None:
    """It greets with 0, and takes nothing but its own spec hash and extensions."""
    server.build = 0
    outcome = guest(USE)
    assert (outcome.stdout.splitlines()[1], outcome.stderr) == ("0", "")
    assert server.hello
    assert server.hello.spec_hash == FIRST.spec_hash
    assert server.hello.extensions == {}


def test_the_same_greeting_from_another_build(server: FakeServer, guest: Guest) -> None:
    """16 bits may be the same by chance: the refusal leads to a second attempt, and that tells everything."""
    hellos: list[Hello] = server.hellos
    server.agreed = lambda hello: knows(lambda _: False)(hello) if hello.extensions else b""
    server.refuses_first = (Reason.SPEC, 803, "another spec")
    assert guest(USE).stderr == ""
    assert [sorted(hello.extensions) for hello in hellos] == [[], [Extension.OPERATIONS, Extension.VERSION]]


def test_a_refusal_that_stays_is_told(server: FakeServer, guest: Guest) -> None:
    server.refusal = (Reason.SPEC, 803, "another spec altogether")
    outcome = guest('print(cu("cuInit", 0))')
    assert outcome.stdout == "803\n"
    assert "another spec altogether" in outcome.stderr
    assert len(server.hellos) == 2


@pytest.mark.parametrize(
    "nonsense",
    [
        lambda whole: b"",
        lambda whole: whole[:3],
        lambda whole: whole[:-1],
        lambda whole: whole + b"x",
        lambda whole: frames.Agreement(800, 1, 0).pack() + b"\xff",
        lambda whole: frames.Agreement(800, 0xFFFF, 0xFFFF).pack(),
    ],
    ids=["nothing", "cut short", "a byte less", "a byte more", "too few bits", "more than is there"],
)
@pytest.mark.sanitize
def test_nonsense_is_no_agreement(
    server: FakeServer, guest: Guest, nonsense: Callable[[bytes], bytes]
) -> None:
    server.build = OTHER
    server.agreed = lambda hello: nonsense(knows(lambda _: False)(hello))
    outcome = guest('print(cu("cuInit", 0))')
    assert outcome.stdout == "46\n"
    assert "malformed" in outcome.stderr


def test_an_agreement_that_nobody_asked_for(server: FakeServer, guest: Guest) -> None:
    server.agreed = lambda _: frames.Agreement(800, 0, 0).pack()
    assert "malformed" in guest('cu("cuInit", 0)').stderr
