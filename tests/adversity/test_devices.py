"""A guest that names devices which it does not have, and memory of one as if it were another's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apiserver.engine import Engine
from tests.apiserver.guest import Guest

PAGE = 2 << 20
INVALID_VALUE, OUT_OF_MEMORY, INVALID_DEVICE, INVALID_CONTEXT = 1, 2, 101, 201


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    two = {"GPUFERRY_SIM_DEVICES": "2", "GPUFERRY_SIM_MEMORY": "64MiB"}
    with Engine(tmp_path / "engine.log", device=(0, 1), **two) as running:
        yield running


def call(guest: Guest, op: str, context: int = 1, **values: int | bytes) -> int:
    """The call's result, where it is answered; else what was latched of it."""
    reply = guest.call(op, context=context, **values)
    status: int = reply.status or reply.latched
    return status


def test_devices_that_are_not_there(engine: Engine) -> None:
    """Each operation that takes a device refuses one that the session does not have, and goes on."""
    guest = engine.session()
    for device in (2, -1, 31, 1 << 30):
        wrong = call(guest, "sessionMemMapOn", address=guest.window, size=PAGE, device=device)
        assert wrong == INVALID_DEVICE
        assert call(guest, "sessionReach", device=device, owner=0) == INVALID_DEVICE
        assert call(guest, "sessionReach", device=0, owner=device) == INVALID_DEVICE
        assert call(guest, "cuDevicePrimaryCtxReset_v2", dev=device) == INVALID_DEVICE
    for context in (3, 7):  # only two primary contexts are there
        assert call(guest, "cuCtxSynchronize", context=context) == INVALID_CONTEXT
    assert call(guest, "sessionMemMapOn", address=guest.window, size=PAGE, device=1) == 0
    assert call(guest, "cuCtxSynchronize", context=2) == 0
    guest.socket.close()
    assert engine.ended()[1]


def test_a_quota_is_each_devices_own(engine: Engine) -> None:
    """What one device gives counts there, and no more than the quota is to be had of it."""
    guest = engine.session(quota=4 * PAGE)
    for device in (0, 1):
        base = guest.window + device * 16 * PAGE
        assert call(guest, "sessionMemMapOn", address=base, size=4 * PAGE, device=device) == 0
        more = call(guest, "sessionMemMapOn", address=base + 4 * PAGE, size=PAGE, device=device)
        assert more == OUT_OF_MEMORY
    # a range of both cannot be ended at once, nor mapped again as the other's
    assert call(guest, "sessionMemMapOn", address=guest.window, size=PAGE, device=1) != 0
    assert call(guest, "sessionMemUnmap", address=guest.window, size=4 * PAGE) == 0
    assert call(guest, "sessionMemMapOn", address=guest.window, size=PAGE, device=1) == OUT_OF_MEMORY
    assert call(guest, "sessionMemMapOn", address=guest.window, size=PAGE, device=0) == 0
    guest.socket.close()
    assert engine.ended()[1]


def test_orders_that_are_none(engine: Engine) -> None:
    """Devices are chosen once, each at most once, and only of those that are there."""
    guest = engine.session()
    for order, count in (([0, 0], 2), ([2], 1), ([1, 255], 2), ([0, 1, 2], 3)):
        wrong = bytes(order).ljust(32, b"\0")
        assert call(guest, "sessionDevices", order=wrong, count=count) == INVALID_VALUE
    assert call(guest, "sessionDevices", order=bytes([1]).ljust(32, b"\0"), count=1) == 0
    assert call(guest, "sessionDevices", order=bytes([0, 1]).ljust(32, b"\0"), count=2) == INVALID_VALUE
    assert call(guest, "sessionMemMapOn", address=guest.window, size=PAGE, device=1) == INVALID_DEVICE
    assert call(guest, "cuCtxSynchronize", context=2) == INVALID_CONTEXT
    guest.socket.close()
    assert engine.ended()[1]
