"""Programs do not notice that their connection breaks, wherever it does."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest

from tests.helpers.monitor import Monitor

from .cutter import Allowance, Cutter
from .running import remote, same

pytestmark = pytest.mark.timeout(240)

# Each says what moves in it; the second number is how many bytes a connection carries at most.
PROGRAMS = [
    ("count_exactly", 20_000),  # many small frames of several threads, each launch counted
    ("tiny_launches", 1_000_000),
    ("steady_loop", 1_000_000),
    ("shared_stream_threads", 50_000),
    ("pinned_pipeline", 500_000),  # async copies both ways
    ("full_duplex", 4_000_000),
    ("big_copy", 60_000_000),  # more than the guest keeps
    ("vector_add_runtime", 50_000),
    ("illegal_address", 10_000),  # errors come as they would
]
LEAST = 6000  # the handshake of a connection comes through, or there is no progress


def at_random(seed: int, most: int) -> Iterator[Allowance]:
    """Cuts somewhere, in either direction."""
    chance = random.Random(seed)
    while True:
        yield chance.randint(LEAST, LEAST + most), chance.randint(LEAST, LEAST + most)


@pytest.mark.parametrize(("name", "most"), PROGRAMS, ids=[name for name, _ in PROGRAMS])
def test_cut_at_random(name: str, most: int, shared: Monitor) -> None:
    """Many times in one program."""
    with Cutter(shared.tcp, at_random(1, most)) as cutter:
        same(remote(shared, name, cutter.address), name)
        assert cutter.cuts > 0 or name == "illegal_address"


def test_cut_before_a_unix_socket(shared: Monitor) -> None:
    """The proxy connects to the monitor's Unix socket: the session's second connection is one too."""
    with Cutter(shared.unix, at_random(2, 20_000)) as cutter:
        same(remote(shared, "count_exactly", cutter.address), "count_exactly")
        assert cutter.cuts > 0


HELLO_BYTES = 16 + 372 + 1
WELCOME_BYTES = 60 + 16 + 96 + 1380 + 1


def sweep(first: int, step: int, count: int, up: bool) -> list[Allowance]:
    """One cut each, step bytes apart: in headers, in structs, in payloads and between them."""
    cuts = range(first, first + step * count, step)
    return [(cut, None) if up else (None, cut) for cut in cuts]


@pytest.mark.parametrize(
    ("up", "step", "count"),
    [
        pytest.param(True, 13, 60, id="up"),
        pytest.param(False, 13, 60, id="down"),
        pytest.param(True, 1, 1200, id="up-every-byte", marks=pytest.mark.slow),
        pytest.param(False, 1, 1200, id="down-every-byte", marks=pytest.mark.slow),
    ],
)
def test_cut_at_each_place(up: bool, step: int, count: int, shared: Monitor) -> None:
    """Once per run, a little later each time."""
    first = HELLO_BYTES if up else WELCOME_BYTES
    for allowance in sweep(first, step, count, up):
        with Cutter(shared.tcp, itertools.chain([allowance])) as cutter:
            same(remote(shared, "shared_stream_threads", cutter.address), "shared_stream_threads")


def test_by_default_the_program_gets_an_error(shared: Monitor) -> None:
    """Who did not ask for it is told at once."""
    with Cutter(shared.tcp, iter([(5000, None)])) as cutter:
        outcome = remote(shared, "vector_add_driver", cutter.address, GPUFERRY_ON_LOSS="error")
        assert outcome.status != 0
        assert "lost the GPU server" in outcome.stderr
        assert cutter.connections == 1
