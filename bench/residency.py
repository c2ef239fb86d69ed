"""How fast a session's memory leaves its device and returns, against the same copies by themselves."""

from __future__ import annotations

import mmap
import os
import time

from tests.helpers.monitor import Monitor, monitor
from tests.residency.lodgers import MIB, Operator, lodgers

from .migration import floor
from .rows import Row, cost, rate

SIZE = 1024 * MIB
SMALL = 256 * MIB
ROUNDS = 5
DEVICE = {"GPUFERRY_DEVICE": "sim", "GPUFERRY_SIM_MEMORY": "3GiB"}
CHUNK = 16 * MIB


def rows() -> list[Row]:
    """Leaving and returning: bandwidths, the time of a return, and of leaving with copies that are true."""
    options = ("--pool", "1", "--oversubscribe", "1", "--log-level", "warning", "--away-memory", "4GiB")
    with monitor(*options, environment=DEVICE) as server:
        operator = Operator(server)
        try:
            large = _measure(server, operator, SIZE)
            small = _measure(server, operator, SMALL)
        finally:
            operator.close()
    gib = SIZE / 2**30
    return [
        rate("residency_leave", gib / large.leave, gib / large.leave_floor, "GiB/s"),
        rate("residency_return", gib / large.back, gib / large.back_floor, "GiB/s"),
        cost("residency_return_1g", 1000 * large.back, 1000 * large.back_floor, "ms"),
        cost("residency_leave_valid_256m", 1000 * small.valid, 1000 * small.leave_floor, "ms"),
        cost("residency_leave_valid_1g", 1000 * large.valid, 1000 * large.leave_floor, "ms"),
    ]


class _Times:
    """Seconds, each the best of some rounds: the machine is shared, and what disturbs only ever adds."""

    leave = back = valid = leave_floor = back_floor = float("inf")


def _measure(server: Monitor, operator: Operator, size: int) -> _Times:
    found = _Times()
    with lodgers(server, [size]) as (one,):
        one.ready()
        number = operator.session().id
        for _ in range(ROUNDS):
            one.work()
            found.leave_floor = min(found.leave_floor, copy_seconds(size))
            one.work("s")  # its last call is over when its API server waits for the next
            told = operator.evict(number)
            if told.copied_bytes < size:
                raise RuntimeError(f"only {told.copied_bytes} of {size} bytes were copied")
            found.leave = min(found.leave, told.seconds)
            found.back_floor = min(found.back_floor, floor("copy", size))
            found.back = min(found.back, one.work("r"))
            told = operator.evict(number)
            if told.copied_bytes:
                raise RuntimeError("copies that were true were made again")
            found.valid = min(found.valid, told.seconds)
            operator.recall(number)
        one.finish()
    return found


def copy_seconds(size: int) -> float:
    """Seconds to copy so many bytes in chunks between files in memory that have their pages."""
    source, target = _Memory(size), _Memory(size)
    with source, target:
        source.touch()
        target.touch()
        began = time.perf_counter()
        for at in range(0, size, CHUNK):
            target.view[at : at + CHUNK] = source.view[at : at + CHUNK]
        return time.perf_counter() - began


class _Memory:
    """A file in memory, mapped. Use as a context manager."""

    def __init__(self, size: int) -> None:
        descriptor = os.memfd_create("floor")
        os.ftruncate(descriptor, size)
        self._map = mmap.mmap(descriptor, size)
        os.close(descriptor)
        self.view = memoryview(self._map)

    def __enter__(self) -> _Memory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def touch(self) -> None:
        """Write into every page, so that the kernel gives it memory."""
        for at in range(0, len(self.view), CHUNK):
            self.view[at : at + CHUNK] = bytes(CHUNK)

    def close(self) -> None:
        """Unmap the memory."""
        self.view.release()
        self._map.close()


if __name__ == "__main__":
    for row in rows():
        print(row)
