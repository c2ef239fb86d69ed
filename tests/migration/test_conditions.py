"""Values of conditional nodes, however the driver numbers them: they are the same after a move."""

from __future__ import annotations

import pytest

from tests.apiserver.guest import Guest, handle
from tests.apiserver.server import Server
from tests.migration.conftest import Shelf
from tests.migration.moving import MEMORY, close, devices, move, settled, stayed

# A driver that gives the lowest free value, and one (a seed that chooses so) that gives none again.
LOWEST, COUNTING = "0", "8"


def graph(guest: Guest, slot: int) -> int:
    made = handle("graph_exec", slot)
    guest.send("sessionGraphBegin", exec=made)
    return made


def value(guest: Guest, exec_: int) -> int:
    reply = guest.call("sessionGraphCondition", exec=exec_, wanted=0, graph=0, initial=0, flags=0)
    assert reply.status == 0, reply
    return int(reply.values["value"])


def takes(guest: Guest, exec_: int, value: int) -> None:
    """The value is still one of this graph: a conditional node may go by it."""
    node = {"graph": 0, "type": 0, "size": 1}
    assert guest.call("sessionGraphConditional", exec=exec_, value=value, **node).status == 0


@pytest.mark.parametrize(("seed", "moves"), [(LOWEST, 3), (COUNTING, 1)], ids=["lowest", "counting on"])
def test_values_are_the_same(shelf: Shelf, seed: str, moves: int) -> None:
    """With gaps between them. There and back again where values that were given up come again."""
    settings = {**devices(MEMORY), "GPUFERRY_SIM_VARIANCE": seed}
    here = shelf.take(f"one{seed}", lambda folder: Server(folder / "log", 0, **settings))
    there = shelf.take(f"other{seed}", lambda folder: Server(folder / "log", 1, **settings))
    guest = here.connect()
    first, gone, last = (graph(guest, slot) for slot in range(3))
    values = [value(guest, first), value(guest, gone), value(guest, gone), value(guest, last)]
    guest.send("cuGraphExecDestroy", hGraphExec=gone)
    for _ in range(moves):
        settled(here, there, move(here, there, guest.session))
        here, there = there, here
    takes(guest, first, values[0])
    takes(guest, last, values[3])
    close(guest, here)


def test_a_value_that_has_passed_is_refused(shelf: Shelf) -> None:
    """By a driver that counts on, in a process that has had a session before."""
    settings = {**devices(MEMORY), "GPUFERRY_SIM_VARIANCE": COUNTING}
    here = shelf.take("fresh", lambda folder: Server(folder / "log", 0, **settings))
    there = shelf.take("worn", lambda folder: Server(folder / "log", 1, **settings))
    earlier = there.connect()
    for slot in range(8):
        value(earlier, graph(earlier, slot))
    close(earlier, there)
    guest = here.connect()
    kept = graph(guest, 0)
    mine = value(guest, kept)
    moved = move(here, there, guest.session)
    stayed(here, there, moved)
    assert "sessionGraphCondition" in moved.reason
    takes(guest, kept, mine)
    close(guest, here)
