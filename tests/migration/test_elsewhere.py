"""Module variables that lie elsewhere at the destination: moved if nothing knows where they were."""

from __future__ import annotations

import contextlib
import hashlib
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from gpuferry.migration.elsewhere import LOOKS, Free, Variable, merged
from gpuferry.specs._generated import control_pb2, migration_pb2

from tests.apiserver.guest import Guest, handle
from tests.apiserver.server import Server
from tests.helpers.tokens import token_of
from tests.migration.conftest import Shelf
from tests.migration.moving import (
    MEMORY,
    PAGE,
    PRECOPY,
    STOP,
    Keeper,
    close,
    devices,
    move,
    settled,
    stayed,
    suspend,
    suspended,
)
from tests.migration.rounds import migrate, native, program, same_pointers, session_of
from tests.monitor import harness

LIBRARY = handle("library", 0)
APART = {**devices(MEMORY), "GPUFERRY_SIM_VARIABLES": "process"}
PTX = b""".version 7.5
.target sm_80
.address_size 64
.global .align 8 .u64 counter[2] = {5, 0};
.global .align 8 .u64 pocket;
.const .align 8 .u64 step = 3;

// counter[0] += step; *p = counter[0]
.visible .entry count(.param .u64 p)
{
    .reg .u64 %rd<5>;
    ld.param.u64 %rd1, [p];
    ld.global.u64 %rd2, [counter];
    ld.const.u64 %rd3, [step];
    add.u64 %rd2, %rd2, %rd3;
    st.global.u64 [counter], %rd2;
    st.global.u64 [%rd1], %rd2;
    ret;
}

// *p = counter + by
.visible .entry keep(.param .u64 p, .param .u64 by)
{
    .reg .u64 %rd<5>;
    ld.param.u64 %rd1, [p];
    ld.param.u64 %rd3, [by];
    mov.u64 %rd2, counter;
    cvta.global.u64 %rd2, %rd2;
    add.u64 %rd2, %rd2, %rd3;
    st.global.u64 [%rd1], %rd2;
    ret;
}

// pocket = counter
.visible .entry pocketed()
{
    .reg .u64 %rd<3>;
    mov.u64 %rd1, counter;
    cvta.global.u64 %rd1, %rd1;
    st.global.u64 [pocket], %rd1;
    ret;
}
\0"""
INDIRECT = (
    PTX[:-1]
    + b"""
.visible .entry call(.param .u64 what)
{
    .reg .u64 %rd<3>;
    ld.param.u64 %rd1, [what];
    shape: .callprototype _ ();
    call %rd1, (), shape;
    ret;
}
\0"""
)


@pytest.fixture
def here(shelf: Shelf) -> Server:
    """An API server in which variables lie where they lie in no other process."""
    return shelf.take("here", lambda folder: Server(folder / "log", 0, **APART))


@pytest.fixture
def there(shelf: Shelf) -> Server:
    """Another one, on another device."""
    return shelf.take("there", lambda folder: Server(folder / "log", 1, **APART))


class Counting:
    """A guest with a library whose variables it never asks for."""

    def __init__(self, guest: Guest, image: bytes = PTX) -> None:
        self.guest = guest
        self.memory = guest.map(2)
        reply, kernels, log = guest.load(image, LIBRARY, hashlib.sha256(image).digest())
        assert reply.status == 0, log.decode()
        self.names = [kernel.name for kernel in kernels]
        for index in range(len(self.names)):
            guest.send("sessionGetFunction", function=handle("kernel", index), owner=LIBRARY, index=index)
        self.value = 5

    def launch(self, name: str, *arguments: int) -> None:
        function = handle("kernel", self.names.index(name))
        self.guest.launch(function, struct.pack(f"<{len(arguments)}Q", *arguments), block=(1, 1, 1))
        assert self.guest.sync().latched == 0

    def word(self, address: int) -> int:
        return int.from_bytes(self.guest.read(address, 8), "little")

    def count(self) -> None:
        """Whether its variables hold what they held."""
        self.launch("count", self.memory)
        self.value += 3
        assert self.word(self.memory) == self.value

    def address(self) -> int:
        """Where `counter` lies, as a kernel says; nothing remembers it."""
        self.launch("keep", self.memory, 0)
        found = self.word(self.memory)
        self.guest.write(self.memory, bytes(8))
        return found


@pytest.fixture
def counting(here: Server) -> Counting:
    return Counting(here.connect())


@pytest.mark.parametrize("strategy", [STOP, PRECOPY], ids=["stop", "precopy"])
def test_nobody_knows_where_they_were(
    here: Server, there: Server, counting: Counting, strategy: migration_pb2.Strategy
) -> None:
    """There and back again: being found by a move is not being told."""
    source, destination = here, there
    for _ in range(3):
        counting.count()
        before = counting.address()
        moved = move(source, destination, counting.guest.session, strategy)
        settled(source, destination, moved)
        assert moved.report.variables_elsewhere == 3
        assert counting.address() != before
        counting.count()
        source, destination = destination, source
    close(counting.guest, source)


def test_where_they_lie_at_the_same_addresses(source: Server, destination: Server) -> None:
    """Then nothing is looked for, and what the program knows stays true."""
    counting = Counting(source.connect())
    counting.launch("keep", counting.memory, 0)
    moved = move(source, destination, counting.guest.session)
    settled(source, destination, moved)
    assert moved.report.variables_elsewhere == 0
    counting.count()
    close(counting.guest, destination)


def refused(here: Server, there: Server, counting: Counting, *words: str) -> None:
    counting.count()
    moved = move(here, there, counting.guest.session)
    stayed(here, there, moved)
    for word in words:
        assert word in moved.reason
    counting.count()


def test_the_program_was_told(here: Server, there: Server, counting: Counting) -> None:
    reply = counting.guest.call("sessionGetGlobal", owner=LIBRARY, payload=b"counter")
    assert reply.status == 0
    refused(here, there, counting, "the variable counter", "program was told")
    close(counting.guest, here)


def test_a_kernel_told_the_program(here: Server, there: Server, counting: Counting) -> None:
    reply = counting.guest.call("sessionFindMemory", address=counting.address() + 8)
    assert reply.status == 0
    refused(here, there, counting, "in its code, which its program was told")
    close(counting.guest, here)


@pytest.mark.parametrize("by", [0, 8, 16], ids=["to its begin", "into it", "to its end"])
@pytest.mark.parametrize("strategy", [STOP, PRECOPY], ids=["stop", "precopy"])
def test_a_kernel_has_kept_its_address(
    here: Server, there: Server, counting: Counting, by: int, strategy: migration_pb2.Strategy
) -> None:
    """For as long as it is there."""
    place = counting.memory + 2 * PAGE - 8
    counting.launch("keep", place, by)
    moved = move(here, there, counting.guest.session, strategy)
    stayed(here, there, moved)
    assert "the variable counter lies elsewhere there, and its memory holds its address" in moved.reason
    counting.count()
    counting.guest.write(place, bytes(8))
    settled(here, there, move(here, there, counting.guest.session, strategy))
    counting.count()
    close(counting.guest, there)


def test_another_variable_holds_its_address(here: Server, there: Server, counting: Counting) -> None:
    counting.launch("pocketed")
    refused(here, there, counting, "the variable counter", "the variable pocket holds its address")
    close(counting.guest, here)


def test_a_graph_was_given_its_address(here: Server, there: Server, counting: Counting) -> None:
    """A program may have read what a kernel stored, and given it to another one."""
    address, graph, guest = counting.address(), handle("graph_exec", 0), counting.guest
    guest.send("sessionGraphBegin", exec=graph)
    function = handle("kernel", counting.names.index("count"))
    shape: dict[str, Any] = {"grid": (1, 1, 1), "block": (1, 1, 1), "shared": 0, "attributes": 0, "params": 8}
    guest.send(
        "sessionGraphKernel", exec=graph, function=function, **shape, payload=struct.pack("<Q", address)
    )
    assert guest.call("sessionGraphReady", exec=graph, flags=0).status == 0
    refused(here, there, counting, "the variable counter", "sessionGraphKernel holds its address")
    close(guest, here)


def test_code_that_calls_by_address(here: Server, there: Server) -> None:
    """Where functions lie nobody can ask."""
    counting = Counting(here.connect(), INDIRECT)
    refused(here, there, counting, "the variable", "may call functions by their addresses")
    close(counting.guest, here)


@pytest.mark.system
@pytest.mark.parametrize("by", [None, 0], ids=["nobody knows", "a kernel has kept it"])
def test_out_of_a_file(here: Server, there: Server, tmp_path: Path, by: int | None) -> None:
    """It has variables by name, and says of which something knows where they lie: those must lie there. The
    session stays suspended until it finds such a place.
    """
    counting = Counting(here.connect())
    counting.count()
    if by is not None:
        counting.launch("keep", counting.memory + PAGE, by)
    session, path = counting.guest.session, tmp_path / "session"
    with Keeper(tmp_path / "keeper.log") as keeper:
        suspended(here, keeper, suspend(here, keeper, session, path))
        moved = keeper.play(session, path, there)
        assert moved.moved == (by is None)
        if moved.moved:
            assert moved.report.variables_elsewhere == 3
        else:
            assert "address of the variable counter" in moved.reason
            assert keeper.play(session, path, here).moved
    counting.count()


@pytest.mark.parametrize(("known", "free"), [(0, 40), (3, 37), (LOOKS, 0)])
def test_who_looks_for_many_does_not_look_for_ever(known: int, free: int) -> None:
    """Each that is found to be known takes another look through all of memory."""
    variables = [Variable(LIBRARY, 1, f"v{i}", 4096 * (i + 1), 8, told=False) for i in range(40)]
    memory = [each.address for each in variables[:known]]
    core = Mock(pointing=lambda _, ranges: next((w for w in memory for a, b in ranges if a <= w <= b), 0))
    found = Free(core, variables, "")
    found.look_at_pages([0])
    assert len(found.left()) == free
    assert not Free(core, variables, "it shares memory")


def test_ranges_become_few() -> None:
    assert merged([(40, 48), (8, 16), (17, 20), (10, 12), (30, 31)]) == [(8, 20), (30, 31), (40, 48)]


ROUNDS = 4
TOKEN = token_of("both monitors")


@pytest.fixture(scope="module")
def monitors() -> Iterator[list[harness.Monitor]]:
    """Two GPU servers."""
    settings: dict[str, Any] = {**APART, "GPUFERRY_TOKEN": TOKEN}
    with (
        harness.monitor("--pool", "1", server=None, **settings) as one,
        harness.monitor("--pool", "1", server=None, **settings) as other,
    ):
        yield [one, other]


@pytest.mark.system
def test_a_program_that_never_asks_moves_between_servers(monitors: list[harness.Monitor]) -> None:
    here, there = monitors
    with program("moving_unasked", here, ROUNDS, GPUFERRY_ON_LOSS="reconnect") as running:
        for number in range(1, ROUNDS + 1):
            running.to_round(number)
            mine = session_of(here, running.pid)
            done = migrate(here, mine.id, server=there.tcp, strategy=1 + number % 3)
            assert done.state == control_pb2.MIGRATION_STATE_DONE, done.reason
            assert (done.report.variables_elsewhere > 0) == (number > 1)  # before, it has used none
            running.go()
            here, there = there, here
        status, stdout, stderr = running.finish()
    assert (status, stdout.splitlines()) == (0, native("moving_unasked", ROUNDS).splitlines()), stderr
    same_pointers(stderr)


@pytest.mark.system
def test_a_program_that_asks_stays(monitors: list[harness.Monitor]) -> None:
    here, there = monitors
    with program("moving_symbols", here, ROUNDS) as running:
        for number in range(1, ROUNDS + 1):
            running.to_round(number)
            done = migrate(here, session_of(here, running.pid).id, server=there.tcp)
            assert "which its program was told" in done.reason
            running.go()
        status, stdout, stderr = running.finish()
    assert (status, stdout.splitlines()) == (0, native("moving_symbols", ROUNDS).splitlines()), stderr


@contextlib.contextmanager
def one_monitor(*options: str, **settings: Any) -> Iterator[harness.Monitor]:
    """With an idle API server on each of its two devices."""
    with harness.monitor("--pool", "1", *options, server=None, GPUFERRY_TOKEN=TOKEN, **settings) as running:
        running.wait_for(lambda s: [one.pool_idle for one in s.devices] == [1, 1], "two API servers")
        yield running


def test_an_operator_wants_them_at_the_same_addresses() -> None:
    with (
        one_monitor("--move-variables", "same", **APART) as here,
        program("moving_unasked", here, 2) as running,
    ):
        for number in (1, 2):
            running.to_round(number)
            mine = session_of(here, running.pid)
            done = migrate(here, mine.id, device=1 - mine.device)
            assert ("--move-variables same" in done.reason) == (number > 1)
            running.go()
        assert running.finish()[0] == 0


@pytest.mark.system
@pytest.mark.parametrize(("space", "moves"), [("fixed", True), ("random", False)])
def test_api_servers_with_the_same_address_space(space: str, moves: bool) -> None:
    """Where a driver places variables by the process's own layout, programs may even know where they are."""
    with (
        one_monitor("--address-space", space, **{**APART, "GPUFERRY_SIM_VARIABLES": "layout"}) as here,
        program("moving_symbols", here, 2) as running,
    ):
        for number in (1, 2):
            running.to_round(number)
            mine = session_of(here, running.pid)
            done = migrate(here, mine.id, device=1 - mine.device)
            assert (done.state == control_pb2.MIGRATION_STATE_DONE) == moves, done.reason
            running.go()
        assert running.finish()[0] == 0
