"""On a GPU: a session leaves, returns and moves, against page-locked copies of a program on the same GPU."""

from __future__ import annotations

import math

from gpuferry.specs._generated import control_pb2, migration_pb2

from tests.helpers.monitor import Monitor, monitor
from tests.helpers.running import native_environment, run
from tests.helpers.tokens import token_of
from tests.residency.lodgers import MIB, Operator, lodgers

from .migration import resident, stood_still
from .probe import measured, probe
from .rows import Row, cost, rate

SIZE = 4096 * MIB
ROUNDS = 5
OPTIONS = ("--pool", "1", "--log-level", "warning")
AWAY = ("--oversubscribe", "1", "--away-memory", "16GiB")
TOKEN = {"GPUFERRY_TOKEN": token_of("both monitors")}
GIB = 2**30


def rows() -> list[Row]:
    """Bandwidths of leaving and returning, leaving with copies that are true, and the pause of a move."""
    down, up = _copies()
    leave, back, valid = _residency()
    return [
        rate("gpu_leave", SIZE / GIB / leave, SIZE / GIB / (SIZE * down), "GiB/s"),
        cost("gpu_return", 1000 * back, 1000 * SIZE * up, "ms"),
        cost("gpu_leave_valid", 1000 * valid, 1000 * SIZE * down, "ms"),
        cost("gpu_move", 1000 * _pause(), 1000 * SIZE * (down + up), "ms"),
    ]


def _copies() -> tuple[float, float]:
    """Seconds for a byte from the device to page-locked memory, and back, in a program on the GPU itself."""
    said = measured(run(probe("d2h", "h2d"), native_environment()))
    return said["d2h"] / said["copy_bytes"], said["h2d"] / said["copy_bytes"]


def _residency() -> tuple[float, float, float]:
    """Seconds to leave, to return, and to leave when nothing was written since; the best of some rounds."""
    leave = back = valid = math.inf
    with monitor(*OPTIONS, *AWAY) as server, lodgers(server, [SIZE]) as (one,):
        operator = Operator(server)
        one.ready()
        number = operator.session().id
        for _ in range(ROUNDS):
            one.work()
            leave = min(leave, operator.evict(number).seconds)
            back = min(back, one.work("r"))
            valid = min(valid, operator.evict(number).seconds)
            operator.recall(number)
        one.finish()
        operator.close()
    return leave, back, valid


def _pause() -> float:
    """Seconds that a program stands still when it moves between two GPU servers that have the same GPU."""
    with (
        monitor(*OPTIONS, environment=TOKEN) as here,
        monitor(*OPTIONS, environment=TOKEN) as there,
        resident(here, SIZE, 0) as program,
    ):
        stood_still(program)
        pauses, nodes = [], (here, there)
        for turn in range(ROUNDS):
            _move(nodes[turn % 2], nodes[1 - turn % 2])
            pauses.append(stood_still(program))
    return min(pauses)


def _move(here: Monitor, there: Monitor) -> None:
    operator = Operator(here)
    done = operator.migrate(operator.session().id, server=there.tcp, strategy=migration_pb2.STRATEGY_STOP)
    operator.close()
    if done.state != control_pb2.MIGRATION_STATE_DONE:
        raise RuntimeError(f"the session did not move: {done.reason}")
