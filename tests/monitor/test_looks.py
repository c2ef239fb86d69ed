"""Who only looks is answered, whatever becomes of what it looks at."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from gpuferry.monitor.door.handshake import Hello
from gpuferry.monitor.pool.descriptions import PLACE, Descriptions
from gpuferry.monitor.views.looks import Looks
from gpuferry.specs._generated import frames
from gpuferry.specs._generated.frames import Frame

from tests.helpers.points import DEADLINE
from tests.monitor.fake_guest import read_frame


class Broker:
    """One session runs, which is over when its API server has said what it uses."""

    def __init__(self) -> None:
        hello = Hello(b"", 1, 0, "acme", "", "p")
        server = SimpleNamespace(refresh_stats=self._end, is_keeper=False, devices=[0])
        self.sessions: dict[int, Any] = {7: SimpleNamespace(id=7, hello=hello, peer="unix", server=server)}

    async def _end(self, _: float) -> None:
        self.sessions.clear()

    def running(self) -> list[Any]:
        return list(self.sessions.values())

    def rooms(self) -> list[Any]:
        return []


def guest(connection: socket.socket, devices: int = 1) -> Any:
    hello = Hello(b"", 1, 0, "acme", "", "p", looks=True, devices=devices)
    return SimpleNamespace(hello=hello, peer="unix", connection=connection, welcome_proof=bytes(32))


def test_a_session_that_ends_while_it_is_asked_for() -> None:
    """Its looker was hung up on, and a traceback was in the log."""

    async def main() -> int:
        broker, (ours, theirs) = Broker(), socket.socketpair()
        pool: Any = SimpleNamespace(devices=0, problems=dict)
        gpus: Any = SimpleNamespace(driver="")
        tenancy: Any = SimpleNamespace(why_no_call=lambda tenant: None)
        told: list[list[int]] = []

        class Told(Looks):
            def _frame(self, guest: Any, mine: Any) -> bytes:
                told.append([session.id for session in mine])
                return super()._frame(guest, mine)

        looks = Told(broker, pool, Descriptions(pool), gpus, tenancy)  # type: ignore[arg-type]
        looks.arrive([guest(ours)])
        with theirs:
            op, _ = await asyncio.to_thread(read_frame, theirs)
            theirs.shutdown(socket.SHUT_RDWR)
            await looks._farewells.finish()
        assert told == [[]]
        return op

    assert asyncio.run(main()) == Frame.DEVICES


def server(device: int) -> Any:
    """An API server that has described its device."""
    told = frames.Device(bytes(256), bytes([device] * 16), 0, 0, 0, 256, (0,) * 256, (0,) * 8)
    return SimpleNamespace(device=device, welcome=bytes(PLACE) + told.pack())


class Pool:
    """Two devices, on which API servers live but for those with problems."""

    devices = 2

    def __init__(self, problems: Sequence[int] = ()) -> None:
        self.problems = lambda: dict.fromkeys(problems, "gone")

    def is_instance(self, _: int) -> bool:
        return False


async def seen(pool: Pool, ready: Sequence[int], devices: int) -> list[int]:
    """What is shown to a guest of so many devices that looks before any API server is ready, by UUID."""
    broker, (ours, theirs) = Broker(), socket.socketpair()
    broker.sessions.clear()
    gpus: Any = SimpleNamespace(driver="", get=lambda _: None, reaches=lambda *_: False)
    tenancy: Any = SimpleNamespace(why_no_call=lambda _: None)
    descriptions = Descriptions(pool)  # type: ignore[arg-type]
    looks = Looks(broker, pool, descriptions, gpus, tenancy)  # type: ignore[arg-type]
    looks.arrive([guest(ours, devices)])
    for device in ready:
        for _ in range(10):  # whatever the look does before it waits
            await asyncio.sleep(0)
        descriptions.server_ready(server(device))
    with theirs:
        theirs.settimeout(DEADLINE)
        op, body = await asyncio.to_thread(read_frame, theirs)
        theirs.shutdown(socket.SHUT_RDWR)
        await looks._farewells.finish()
    assert op == Frame.DEVICES
    head = frames.Devices.unpack(body)
    sizes = range(frames.Devices.SIZE, len(body), frames.LookDevice.SIZE)
    found = [frames.LookDevice.unpack(body, at).uuid[0] for at in sizes]
    assert len(found) == head.device_count
    return found


@pytest.mark.parametrize(
    ("ready", "devices", "shown"), [([1, 0], 2, [0, 1]), ([1], 1, [1]), ([0, 1], 64, [0, 1])]
)
def test_who_looks_before_devices_are_known_waits_for_them(
    ready: list[int], devices: int, shown: list[int]
) -> None:
    """It was told of one, and its program found no second GPU."""
    assert asyncio.run(seen(Pool(), ready, devices)) == shown


def test_who_looks_waits_for_no_device_on_which_nobody_lives() -> None:
    assert asyncio.run(seen(Pool([1]), [0], 2)) == [0]


def test_a_device_is_there_while_its_api_servers_are_replaced() -> None:
    assert asyncio.run(seen(Pool([0]), [0, 1], 2)) == [1, 0]
