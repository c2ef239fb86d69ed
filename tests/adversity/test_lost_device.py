"""A device that falls off the bus: its sessions are told, and nobody else notices."""

from __future__ import annotations

import mmap
from pathlib import Path

from tests.adversity.sessions import Bystander, open_session, session
from tests.monitor import harness

FIRST_DEVICE, DEVICE_SIZE, LOST = 8, 16, 8  # native/simdevice/nvml/live_file.h


def set_lost(figures: Path, device: int, lost: bool) -> None:
    """What the simulated NVML says of a device."""
    with figures.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        offset = FIRST_DEVICE + DEVICE_SIZE * device + LOST
        memory[offset : offset + 8] = int(lost).to_bytes(8, "little")


def test_a_device_that_is_lost(tmp_path: Path) -> None:
    figures = tmp_path / "figures"
    options = ("--pool", "1", "--policy", "first-fit", "--sample", "0.1")
    with harness.monitor(
        *options, server=None, GPUFERRY_SIM_DEVICES="2", GPUFERRY_SIM_STATS=str(figures)
    ) as monitor:
        monitor.wait_for(
            lambda status: all(d.pool_idle == 1 and d.HasField("utilization") for d in status.devices),
            "two devices",
        )
        lost = open_session(monitor)
        with lost.socket, session(monitor) as other:
            lost.map()
            assert lost.sync().status == 0
            set_lost(figures, 0, True)
            assert "lost" in lost.expect_end().text
            Bystander(other).is_fine()
            status = monitor.wait_for(lambda status: len(status.sessions) == 1, "end of the session")
            assert status.sessions[0].device == 1
            monitor.wait_for_log('"event": "device taken out", "gpu": 0')
