"""Programs do not notice that their connection breaks, wherever it does."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from _pytest.mark import ParameterSet
from gpuferry.specs._generated import frames

from tests.helpers.monitor import Monitor
from tests.helpers.running import guest_environment, run
from tests.monitor import harness

from .cutter import Allowance, Cutter
from .running import RECONNECT, built, remote, same

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


# Over the driver API only: sanitizers do not see how NVIDIA's own code orders its threads.
SANITIZED = ("count_exactly", "shared_stream_threads", "pinned_pipeline", "full_duplex", "illegal_address")


def case(name: str, most: int) -> object:
    return pytest.param(name, most, id=name, marks=[pytest.mark.sanitize] if name in SANITIZED else [])


@pytest.mark.system
@pytest.mark.some(1)
@pytest.mark.some(1)
@pytest.mark.parametrize(("name", "most"), [case(*program) for program in PROGRAMS])
def test_cut_at_random(name: str, most: int, shared: Monitor) -> None:
    """Many times in one program."""
    with Cutter(shared.tcp, at_random(1, most)) as cutter:
        same(remote(shared, name, cutter.address), name)
        assert cutter.cuts > 0 or name == "illegal_address"


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(10, 30))
def test_cut_at_random_again_and_again(seed: int, shared: Monitor) -> None:
    """As above, from hardly any progress between two cuts to few cuts."""
    for name, most in PROGRAMS:
        scale = 2.0 ** random.Random(seed).randint(-2, 2)
        with Cutter(shared.tcp, at_random(seed, int(most * scale))) as cutter:
            same(remote(shared, name, cutter.address), name)


def test_cut_before_a_unix_socket(shared: Monitor) -> None:
    """The proxy connects to the monitor's Unix socket: the session's second connection is one too."""
    with Cutter(shared.unix, at_random(2, 20_000)) as cutter:
        same(remote(shared, "count_exactly", cutter.address), "count_exactly")
        assert cutter.cuts > 0


HELLO_BYTES = 16 + 372 + frames.ExtensionHead.SIZE + frames.PROGRAM_SIZE
WELCOME_BYTES = 16 + 44 + 16 + 88 + 1384 + frames.Membership.SIZE  # with GREETING before it
RESUME_BYTES = 16 + 84
RESUMED_BYTES = 16 + 44 + 16 + 40
SHORT = "shared_stream_threads"  # moves less than 3000 bytes either way


@pytest.fixture(scope="module")
def idle() -> Iterator[harness.Monitor]:
    """A monitor that says quickly when its API server is idle."""
    with harness.monitor("--pool", "1", server=None) as running:
        yield running


def cut_once(idle: harness.Monitor, *allowances: Allowance) -> None:
    """Each connection after so many bytes, the last one not at all."""
    idle.wait_idle(1)  # there are more bytes before WELCOME for those who have to wait
    with Cutter(idle.tcp, allowances) as cutter:
        settings = {"GPUFERRY_TOKEN": idle.token, "GPUFERRY_MONITOR": cutter.address, **RECONNECT}
        same(run([built(SHORT)], guest_environment(settings)), SHORT)
        assert (cutter.cuts, cutter.connections) == (len(allowances), len(allowances) + 1)


def every(step: int, count: int, up: bool) -> ParameterSet:
    """One in `count` places that are `step` bytes apart."""
    name = f"{'up' if up else 'down'}-every-{step}"
    slow = [pytest.mark.slow, pytest.mark.timeout(1800)] if step == 1 else []
    return pytest.param(step, count, up, id=name, marks=slow)


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("step", "count", "up"),
    [every(37, 21, True), every(37, 21, False), every(1, 1200, True), every(1, 1200, False)],
)
def test_cut_at_each_place(step: int, count: int, up: bool, idle: harness.Monitor) -> None:
    """In headers, in structs, in payloads and between them."""
    first = 1 + (HELLO_BYTES if up else WELCOME_BYTES)
    for cut in range(first, first + step * count, step):
        cut_once(idle, (cut, None) if up else (None, cut))


@pytest.mark.some(1)
@pytest.mark.parametrize("up", [True, False], ids=["up", "down"])
def test_cut_while_it_is_resumed(up: bool, idle: harness.Monitor) -> None:
    """The server may think that it has a guest again, or the guest that it has none."""
    for cut in range(1, 8 + (RESUME_BYTES if up else RESUMED_BYTES), 7):
        cut_once(idle, (HELLO_BYTES + 700, None), (cut, None) if up else (None, cut))


def test_by_default_the_program_gets_an_error(shared: Monitor) -> None:
    """Who did not ask for it is told at once."""
    with Cutter(shared.tcp, [(5000, None)]) as cutter:
        outcome = remote(shared, "vector_add_driver", cutter.address, GPUFERRY_ON_LOSS="error")
        assert outcome.status != 0
        assert "lost the GPU server" in outcome.stderr
        assert cutter.connections == 1
