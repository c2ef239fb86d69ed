"""Memory that a monitor never grants: whatever its sessions ask for and use, it is left on the device."""

from __future__ import annotations

import pytest

from tests.adversity.sessions import PAGE, open_session, session
from tests.monitor import harness
from tests.monitor.fake_guest import Refused, connect, hello_frame, outcome, read_greeting

MIB = 1 << 20
TOTAL, HEADROOM, SHARE = 1024 * MIB, 256 * MIB, 384 * MIB  # an equal share of what is left, for two
OUT_OF_MEMORY = 2


def test_headroom_is_left() -> None:
    options = ("--pool", "2", "--headroom", "256MiB", "--max-wait", "0.5", "--sample", "0.05")
    with harness.monitor(*options, server=None, GPUFERRY_SIM_MEMORY=str(TOTAL)) as monitor:
        device = monitor.wait_idle(2).devices[0]
        assert (device.memory_total, device.memory_grantable) == (TOTAL, TOTAL - HEADROOM)
        with connect(monitor.address) as greedy:
            hello = hello_frame(read_greeting(greedy), monitor.token, memory=TOTAL - HEADROOM + 1)
            greedy.sendall(hello)
            with pytest.raises(Refused) as refused:
                outcome(greedy)
        assert str(TOTAL - HEADROOM) in refused.value.text
        guests = [open_session(monitor) for _ in range(2)]
        try:
            for guest in guests:
                assert guest.quota == SHARE
                for page in range(SHARE // PAGE):
                    guest.map(at=page)
                assert guest.sync().latched == 0
                guest.map(at=SHARE // PAGE)
                assert guest.sync().latched == OUT_OF_MEMORY
            full = monitor.wait_for(
                lambda status: status.devices[0].memory_used >= 2 * SHARE, "NVML sees what is used"
            ).devices[0]
            assert full.memory_granted == full.memory_grantable
            assert full.memory_total - full.memory_used >= HEADROOM
        finally:
            for guest in guests:
                guest.close()
        monitor.wait_idle(2)
        with session(monitor, memory=TOTAL - HEADROOM) as everything:
            assert everything.quota == TOTAL - HEADROOM
