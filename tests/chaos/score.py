"""What goes wrong, and when: drawn from the seed alone, whatever comes of it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

# How often each is done, to the others.
DEEDS = {
    "kill_a_guest": 4,
    "stop_a_guest": 2,
    "kill_an_api_server": 4,
    "stop_an_api_server": 3,
    "kill_an_arbiter": 2,
    "stop_an_arbiter": 2,
    "cut_a_connection": 6,
    "stall_all_connections": 3,
    "kill_the_monitor": 2,
    "stop_the_monitor": 2,
    "kill_a_registry": 2,
    "stop_a_registry": 2,
    "kill_an_etcd_member": 2,
    "stop_an_etcd_member": 2,
}


@dataclass(frozen=True)
class Deed:
    """One of them. Both numbers are in [0, 1)."""

    name: str
    pause: float  # before it, in seconds
    which: float  # of those that there are
    length: float  # of what it may last


def score(seed: int) -> Iterator[Deed]:
    """For ever; the same for the same seed."""
    chance = random.Random(f"deeds of {seed}")
    while True:
        (name,) = chance.choices(list(DEEDS), list(DEEDS.values()))
        yield Deed(name, chance.uniform(0.05, 0.8), chance.random(), chance.random())
