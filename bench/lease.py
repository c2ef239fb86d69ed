"""How long guests wait for a lease when many arrive at once; without a device, on the null driver."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.helpers import toolchain
from tests.helpers.monitor import Monitor, monitor
from tests.helpers.paths import ROOT

from .rows import Row, cost

CROWD = ROOT / "bench" / "micro" / "crowd.c"
LENDER = ROOT / "bench" / "micro" / "lender.c"
GUESTS = 100  # at once, on as many idle API servers
ROUNDS = 25  # the best one counts: the machine is shared, and what disturbs only ever adds
READY_SECONDS = 120.0


def rows() -> list[Row]:
    """Rows of the time until guests have their lease, when many arrive at once: median, 99th percentile, and
    the last.

    Guests and servers share this machine, so the last is compared with a C server that does only what it
    must. That one keeps up with the crowd, so that nobody waits in line there: its median would say how fast
    guests come, not how fast it is.
    """
    program = built(CROWD)
    null = {"GPUFERRY_DEVICE": "sim", "GPUFERRY_SIM_CODE": "skip"}
    floors, twins, leases = [], [], []
    with (
        monitor("--pool", str(GUESTS), "--log-level", "warning", environment=null) as server,
        lender(server.token) as twin,
    ):
        for _ in range(ROUNDS):
            wait_until_idle(server, GUESTS)
            floors.append(measure(program, "plain"))
            twins.append(measure(program, twin, server.token))
            leases.append(measure(program, server.tcp, server.token))
    floor, twin_best, lease = best(floors), best(twins), best(leases)
    return [
        cost("lease_median", lease.median, floor.median, "µs"),
        cost("lease_p99", lease.p99, floor.p99, "µs"),
        cost("lease_all", lease.all, twin_best.all, "µs"),
    ]


class Times(NamedTuple):
    """What crowd.c prints, in microseconds."""

    median: float
    p99: float
    all: float


def best(rounds: list[Times]) -> Times:
    """The smallest of each figure over some runs."""
    return Times(*map(min, zip(*rounds, strict=True)))


def built(source: Path) -> Path:
    """Compile a C program that speaks the handshake."""
    generated = ROOT / "native" / "_generated"
    hashes = [ROOT / "native" / "wire" / name for name in ("sha256.c", "sha256_block.c", "sha256_x86.c")]
    inputs = [*hashes, generated / "gpuferry" / "messages.h"]
    return toolchain.program(source, [*map(str, hashes), f"-I{generated}", "-O2"], inputs=inputs)


@contextmanager
def lender(token: str) -> Iterator[str]:
    """The address of the C twin, which runs within this context."""
    with subprocess.Popen(
        [built(LENDER), str(GUESTS)],
        env={"GPUFERRY_TOKEN": token},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        yield process.stdout.readline().strip()


def measure(program: Path, *where: str) -> Times:
    """Times of one crowd. `where`: an address and a token, or `plain` for mere connects."""
    address, *token = where
    output = subprocess.check_output(
        [program, address, str(GUESTS)], env={"GPUFERRY_TOKEN": token[0]} if token else {}, text=True
    )
    return Times(*(float(line.split()[-1]) for line in output.splitlines()))


def wait_until_idle(server: Monitor, count: int) -> None:
    """Wait until so many API servers wait for guests."""
    deadline = time.monotonic() + READY_SECONDS
    while sum(device["pool_idle"] for device in server.status()["devices"]) < count:
        if time.monotonic() > deadline:
            raise RuntimeError(f"no {count} idle API servers within {READY_SECONDS:g} s")
        time.sleep(0.2)
