"""How long a program waits while its session moves to another device: by its own clock, against what the
machine's memory allows."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
from gpuferry.specs._generated import control_pb2, control_pb2_grpc, migration_pb2

from tests.helpers import toolchain
from tests.helpers.monitor import Monitor, monitor
from tests.helpers.paths import ROOT
from tests.helpers.running import guest_environment

from .rows import Row, cost

MIB = 1 << 20
CHUNK = 16 * MIB  # of the destination's copies
THREADS = os.cpu_count() or 1
LARGE = 4096 * MIB
HOT = 64 * MIB  # of them, written by the loop
CAUGHT_UP = 96 * MIB  # copied in the pause at most
MOVES = 5  # the best one counts: the machine is shared, and what disturbs only ever adds
SECONDS = 60.0  # for anything
DEVICES = {"GPUFERRY_DEVICE": "sim", "GPUFERRY_SIM_DEVICES": "2", "GPUFERRY_SIM_MEMORY": "6GiB"}
STOP = migration_pb2.STRATEGY_STOP
PRECOPY = migration_pb2.STRATEGY_PRECOPY

Metadata = tuple[tuple[str, str], ...]


def rows() -> list[Row]:
    """Rows of the pause of a move: of `stop`, which is linear in bytes, and of `precopy`, which hardly
    grows with them.
    """
    with monitor("--pool", "1", "--log-level", "warning", environment=DEVICES) as server:
        return [
            cost("migrate_stop_256m", *pause(server, 256 * MIB), "ms"),
            cost("migrate_stop_1g", *pause(server, 1024 * MIB), "ms"),
            cost("migrate_stop_4g", *pause(server, LARGE), "ms"),
            cost("migrate_precopy", *pause(server, LARGE, HOT), "ms"),
        ]


def pause(server: Monitor, size: int, hot: int = 0) -> tuple[float, float]:
    """Milliseconds that a program's loop stands still when it moves, by its own clock, and the floor in
    milliseconds.

    Each move comes right after its floor: a virtual machine's host may take free memory back, and to give it
    anew takes longer than copying.
    """
    floors, pauses = [], []
    metadata = (("authorization", f"Bearer {server.token}"),)
    with grpc.insecure_channel(server.control) as channel, resident(server, size, hot) as program:
        stub = control_pb2_grpc.MonitorStub(channel)
        stood_still(program)
        for _ in range(MOVES):
            move = prepared(stub, metadata, PRECOPY if hot else STOP)
            floors.append(floor("read", size) + floor("copy", CAUGHT_UP) if hot else floor("copy", size))
            *_, last = stub.Migrate(move, metadata=metadata, timeout=SECONDS)
            if last.state != control_pb2.MIGRATION_STATE_DONE:
                raise RuntimeError(f"the session did not move: {last.reason}")
            pauses.append(stood_still(program))
    return 1000 * min(pauses), 1000 * min(floors)


def floor(what: str, size: int) -> float:
    """Seconds to read so many bytes once, or to copy them to new memory in chunks as large, with all
    cores.
    """
    program = toolchain.program(ROOT / "bench" / "micro" / "memory.c", ["-O3", "-march=native"])
    command = [str(program), what, str(size), str(CHUNK), str(THREADS)]
    return float(subprocess.check_output(command, text=True))


def prepared(stub: Any, metadata: Metadata, strategy: migration_pb2.Strategy) -> control_pb2.MigrateRequest:
    """The command that moves the only session to the other device, once that has an idle API server."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        status = stub.Status(control_pb2.StatusRequest(), metadata=metadata)
        (session,) = status.sessions
        device = 1 - session.device
        if status.devices[device].pool_idle:
            return control_pb2.MigrateRequest(session=session.id, device=device, strategy=strategy)
        time.sleep(0.1)
    raise RuntimeError(f"no idle API server within {SECONDS:g} s")


@contextmanager
def resident(server: Monitor, size: int, hot: int) -> Iterator[subprocess.Popen[str]]:
    """Within this context, the program whose memory moves; it must find that memory right at the end."""
    command = [str(toolchain.program(ROOT / "bench" / "micro" / "resident.c")), str(size), str(hot)]
    environment = guest_environment(server.settings())
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as program:
        try:
            yield program
            output, _ = program.communicate()
        except BaseException:
            program.kill()
            raise
    if program.returncode != 0:
        raise RuntimeError(f"the program that moved failed:\n{output}")


def stood_still(program: subprocess.Popen[str]) -> float:
    """Seconds that the program stood still since this was asked last."""
    assert program.stdin
    assert program.stdout
    program.stdin.write("\n")
    program.stdin.flush()
    for line in program.stdout:
        if line.startswith("measured pause "):
            return float(line.split()[-1])
    raise RuntimeError("the program that moved ended early")
