"""The program that a process is part of: who says the same, and memory that others have too."""

from __future__ import annotations

from typing import Any

import pytest
from gpuferry.specs._generated import frames

from .conftest import Guest
from .fake_server import MIB, Answer, FakeServer, Frame

GIVEN = bytes(range(frames.PROGRAM_SIZE))
# Starts Python again, which says HELLO, and waits for its end.
AGAIN = """
import subprocess, sys
command = [sys.executable, "-c", "import ctypes; assert ctypes.CDLL('libcuda.so.1').cuInit(0) == 0"]
def again(**settings):
    subprocess.run(command, check=True, **settings)
"""


def programs(server: FakeServer) -> list[bytes]:
    return [hello.program_id for hello in server.hellos]


def test_what_is_started_belongs_to_it(server: FakeServer, guest: Guest) -> None:
    found = guest(f"{AGAIN}\nagain()\nagain(env=dict(os.environ))\nstart()")
    assert found.status == 0, found.stderr
    ours, *others = programs(server)
    assert len(ours) == frames.PROGRAM_SIZE
    assert others == [ours, ours]


def test_it_is_known_where_the_environment_was_cleared(server: FakeServer, guest: Guest) -> None:
    """To the process itself, and to a child that it forks."""
    lines = """
if os.fork() == 0:
    os.environ.pop("GPUFERRY_PROGRAM")
    start()
    os._exit(0)
os.wait()
again()
"""
    found = guest(AGAIN + lines)
    assert found.status == 0, found.stderr
    forked, executed = programs(server)
    assert forked == executed


def test_two_programs_are_two(server: FakeServer, guest: Guest) -> None:
    for _ in range(2):
        assert guest("start()").status == 0
    one, other = programs(server)
    assert one != other


def test_a_program_that_is_given_is_said(server: FakeServer, guest: Guest) -> None:
    assert guest("start()", GPUFERRY_PROGRAM=GIVEN.hex()).status == 0
    assert programs(server) == [GIVEN]


@pytest.mark.parametrize("wrong", ["", "no", GIVEN.hex()[:-1], GIVEN.hex() + "0", GIVEN.hex()[:-1] + "G"])
def test_what_is_no_program_is_replaced(server: FakeServer, guest: Guest, wrong: str) -> None:
    lines = "print(os.environ['GPUFERRY_PROGRAM'])\nstart()"
    found = guest(lines, GPUFERRY_PROGRAM=wrong)
    (said,) = programs(server)
    assert (found.stdout.strip(), len(said)) == (said.hex(), frames.PROGRAM_SIZE)


class Ledger:
    """A lease of 64 MiB of which others have some."""

    def __init__(self, others: int) -> None:
        self.others = others
        self.claims: list[int] = []

    def __call__(self, frame: Frame) -> Any:
        if frame.name != "sessionMemoryClaim":
            return Answer()
        wanted = int.from_bytes(frame.body, "little")
        self.claims.append(wanted // MIB)
        left = 64 * MIB - self.others - wanted
        if left < 0:
            return Answer(status=2)
        return Answer(body=wanted.to_bytes(8, "little") + left.to_bytes(8, "little"))


def test_memory_that_is_shared_is_claimed_first(server: FakeServer, guest: Guest) -> None:
    server.quota = 64 * MIB
    server.answer = ledger = Ledger(others=32 * MIB)
    server.agreed = lambda _: frames.Membership(3, 1).pack()
    found = guest(
        """
start()
one = made("cuMemAlloc_v2", 16 << 20)
print(cu("cuMemAlloc_v2", byref(u64()), 24 << 20))
ok("cuMemFree_v2", one)
two = made("cuMemAlloc_v2", 24 << 20)
"""
    )
    assert (found.status, found.stdout) == (0, "2\n"), found.stderr
    refused = ledger.claims[1:-1]
    assert (ledger.claims[0], set(refused), ledger.claims[-1]) == (16, {40}, 24)
    assert len(refused) > 1, "another process may just have ended"
    kept = [frame for frame in server.frames if frame.name == "sessionMemoryKeep"]
    assert [int.from_bytes(frame.body, "little") for frame in kept] == [0]


@pytest.mark.parametrize(
    "lines",
    [
        'ok("cuMemFreeHost", made("cuMemHostAlloc", 32 << 20, 2))',
        """
memory = ctypes.create_string_buffer(33 << 20)
own = ctypes.addressof(memory) + 4095 & ~4095
ok("cuMemHostRegister_v2", own, 32 << 20, 2)
made("cuMemHostGetDevicePointer_v2", own, 0)
ok("cuMemHostUnregister", own)
""",
    ],
    ids=["allocated", "registered"],
)
def test_what_was_page_locked_is_the_others_when_the_call_returns(
    server: FakeServer, guest: Guest, lines: str
) -> None:
    server.quota = 64 * MIB
    server.answer = Ledger(others=0)
    server.agreed = lambda _: frames.Membership(3, 1).pack()
    found = guest(f"start()\n{lines}")
    assert found.status == 0, found.stderr
    assert server.names[-3:] == ["sessionMemoryKeep", "sessionMemoryReturned", "sessionClose"]


def test_what_an_ended_process_had_yet(server: FakeServer, guest: Guest) -> None:
    """It is claimed when it is free, and what is too much in any case is refused at once."""
    server.quota = 64 * MIB
    server.agreed = lambda _: frames.Membership(3, 1).pack()
    ledger = Ledger(others=32 * MIB)

    def answer(frame: Frame) -> Any:
        if len(ledger.claims) == 2:
            ledger.others = 0
        return ledger(frame)

    server.answer = answer
    found = guest(
        """
start()
one = made("cuMemAlloc_v2", 48 << 20)
print(cu("cuMemAlloc_v2", byref(u64()), 24 << 20))
"""
    )
    assert (found.status, found.stdout) == (0, "2\n"), found.stderr
    assert ledger.claims == [48, 48, 48, 72]


def test_alone_nothing_is_claimed(server: FakeServer, guest: Guest) -> None:
    server.agreed = lambda _: frames.Membership(3, 0).pack()
    found = guest("start()\nok('cuMemFree_v2', made('cuMemAlloc_v2', 16 << 20))")
    assert found.status == 0, found.stderr
    assert not {"sessionMemoryClaim", "sessionMemoryKeep"} & set(server.names)


def test_a_membership_of_another_size_is_malformed(server: FakeServer, guest: Guest) -> None:
    server.agreed = lambda _: frames.Membership(3, 0).pack() + b"?"
    assert "malformed" in guest("print(cu('cuInit', 0))").stderr
