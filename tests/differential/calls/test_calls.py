"""Random programs of driver calls do the same natively and remotely."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from tests.helpers.monitor import Monitor
from tests.helpers.running import guest_environment, native_environment, real_gpu, skip_environment

from .comparing import Pair, Player, shown
from .programs import program

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(real_gpu(), reason="NVIDIA's driver does not survive handles that name nothing"),
]
FIRST = random.randrange(1 << 32) if os.environ.get("GPUFERRY_FUZZ") else 0


@pytest.fixture(scope="module")
def pair(shared_monitor: Monitor) -> Iterator[Pair]:
    with (
        Player(native_environment()) as here,
        Player(guest_environment(shared_monitor.settings())) as there,
    ):
        yield Pair(here, there)


def agree(pair: Pair, first: int, count: int) -> None:
    for seed in range(first, first + count):
        whole = program(seed)
        if difference := pair.difference(whole):
            least, what = pair.shrunk(whole, difference[1])
            pytest.fail(f"seed {seed}: {what}\n{shown(least)}")


@pytest.mark.system
def test_programs_do_the_same(pair: Pair) -> None:
    agree(pair, 0, 100)


@pytest.mark.slow
def test_many_programs_do_the_same(pair: Pair) -> None:
    agree(pair, FIRST, 3000)


@pytest.mark.system
def test_a_driver_that_does_no_work_is_found() -> None:
    with Player(native_environment()) as here, Player(skip_environment()) as there:
        found = [Pair(here, there).difference(program(seed)) for seed in range(10)]
    assert any(found)
    with Player(native_environment()) as here, Player(native_environment()) as there:
        assert not any(Pair(here, there).difference(program(seed)) for seed in range(10))
