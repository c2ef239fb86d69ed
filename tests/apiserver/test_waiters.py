"""Threads that wait for the device, on a system that lets them down."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gpuferry.guest import paths

from tests.apiserver.engine import Engine
from tests.helpers import toolchain
from tests.monitor.harness import wait_until

FAULTY_THREADS = Path(__file__).with_name("faulty_threads.c")


def all_sleep(pid: int) -> bool:
    """Whether no thread of the process runs, or is about to."""
    stats = [file.read_bytes() for file in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(stat.rpartition(b")")[2].split()[0] == b"S" for stat in stats)


# Before its release 2.41 glibc may wake nobody (its bug 25847); processes may be as many as they may be.
@pytest.mark.parametrize("fault", ["SIGNALS", "CREATION"])
def test_what_waits_for_the_device_is_answered(tmp_path: Path, fault: str) -> None:
    library = toolchain.program(FAULTY_THREADS, ("-shared", "-fPIC", f"-D{fault}"))
    preload = f"{os.environ.get('LD_PRELOAD', '')}:{library}:{paths.simulated_driver()}".lstrip(":")
    with Engine(tmp_path / "log", LD_PRELOAD=preload) as engine:
        guest = engine.session()
        address = guest.map(1)
        assert guest.read(address, 8) == bytes(8)
        for _ in range(2):  # the first one's thread serves the second, too
            assert guest.sync().status == 0
            wait_until(lambda: all_sleep(engine.process.pid), "that thread waits for more")
        guest.close()
        engine.ended()
