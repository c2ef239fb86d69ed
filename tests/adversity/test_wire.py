"""What no guest should send after WELCOME: it loses its session, or its call; nobody else notices."""

from __future__ import annotations

import random
import struct

import pytest
from gpuferry.specs._generated.frames import FRAME_MAX, Frame, Header, Reason
from gpuferry.specs._generated.frames import frame as whole

from tests.adversity.sessions import PAGE, Bystander, open_session, session
from tests.apiserver.guest import Guest, handle
from tests.monitor import harness

pytestmark = pytest.mark.usefixtures("bystander")


def frame(size: int, op: int, flags: int = 0, request: int = 0, context: int = 1) -> bytes:
    return Header(size, op, flags, request, context).pack()


def ended_by(monitor: harness.Monitor, data: bytes) -> str:
    """Sends it in a session of its own; the text with which the session ends."""
    guest = open_session(monitor, program=b"offender")
    with guest.socket:
        guest.map()
        guest.socket.sendall(data)
        ended = guest.expect_end()
    assert ended.reason == Reason.MALFORMED, ended
    return ended.text


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(frame(0, 1), id="size 0"),
        pytest.param(frame(15, 1), id="smaller than its header"),
        pytest.param(frame(FRAME_MAX + 1, 1), id="larger than allowed"),
        pytest.param(frame(0xFFFFFFFF, 1), id="4 GiB"),
        pytest.param(frame(16, 0xFEED), id="unknown operation"),
        pytest.param(frame(16, Frame.HELLO), id="HELLO again"),
        pytest.param(frame(16, 0), id="operation 0"),
        pytest.param(frame(16, 1, flags=0x8000) + bytes(64), id="unknown flag"),
        pytest.param(whole(Frame.WELCOME, bytes(8)), id="WELCOME from a guest"),
        pytest.param(
            frame(16 + 8, Frame.ACKNOWLEDGE) + bytes(8), id="ACKNOWLEDGE in a session that does not resume"
        ),
        pytest.param(
            frame(16 + 84, Frame.RESUME) + bytes(84), id="RESUME on a connection that did not break"
        ),
        pytest.param(frame(16 + 8, 1, flags=1) + bytes(8), id="a reply to nothing"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n" * 8, id="another protocol"),
    ],
)
def test_malformed_frames(monitor: harness.Monitor, data: bytes) -> None:
    assert ended_by(monitor, data)


def test_random_bytes(monitor: harness.Monitor) -> None:
    """The first frame is as good as surely malformed; whatever it is, the session ends."""
    chance = random.Random(20)
    for _ in range(20):
        data = bytearray(chance.randbytes(chance.randrange(16, 4096)))
        data[0:4] = struct.pack("<I", chance.choice([0, 7, 17, 100, FRAME_MAX + 1]))
        guest = open_session(monitor)
        with guest.socket:
            guest.socket.sendall(data)
            guest.socket.shutdown(1)
            guest.expect_end()


def test_every_operation_with_a_body_of_noise(monitor: harness.Monitor, bystander: Bystander) -> None:
    """Right framing, nonsense inside: an error of the call, or the end of this session, and of no other."""
    from tests.apiserver.guest import operations

    chance = random.Random(7)
    for name, message in sorted(operations().items()):
        guest = open_session(monitor, program=b"noise")
        with guest.socket:
            for _ in range(3):
                body = chance.randbytes(chance.choice([0, 8, 24, 64, 200]))
                try:
                    guest.socket.sendall(frame(16 + len(body), message.variant.id) + body)
                except OSError:
                    break
            guest.socket.shutdown(1)
            guest.expect_end()
        assert name
    bystander.is_fine()


def test_half_a_frame_then_nothing(monitor: harness.Monitor) -> None:
    guest = open_session(monitor)
    guest.map()
    guest.socket.sendall(frame(1 << 20, 1)[:9])
    guest.socket.close()


def test_an_address_outside_the_window(monitor: harness.Monitor, bystander: Bystander) -> None:
    with session(monitor) as guest:
        mine = guest.map()
        outside = [0, 1, guest.window - PAGE, guest.window + guest.window_size, (1 << 64) - 4096, id(guest)]
        for address in [*outside, mine + PAGE, mine + PAGE - 8]:
            request = guest.ask_read(address, 64)
            assert guest.answer(request).status != 0, hex(address)
            guest.write(address, bytes(64))
            assert guest.sync().latched != 0, hex(address)
        guest.write(mine, b"still mine")
        assert guest.read(mine, 10) == b"still mine"
    bystander.is_fine()


def test_more_memory_than_granted(monitor: harness.Monitor) -> None:
    with session(monitor, memory=4 * PAGE) as guest:
        assert guest.quota == 4 * PAGE
        guest.map(4)
        guest.map(1, at=100)
        assert guest.sync().latched == 2  # CUDA_ERROR_OUT_OF_MEMORY


def test_handles_that_do_not_exist(monitor: harness.Monitor) -> None:
    with session(monitor) as guest:
        for stream in (handle("stream", 77), handle("event", 3), 0xDEAD, (1 << 64) - 1):
            assert guest.call("cuStreamSynchronize", hStream=stream).status != 0, hex(stream)
        assert guest.sync().status == 0


def test_memory_of_another_session_is_not_there(monitor: harness.Monitor, bystander: Bystander) -> None:
    """All sessions see the same window, each its own memory in it."""
    with session(monitor) as guest:
        address = bystander.address
        assert guest.window == bystander.guest.window
        assert guest.answer(guest.ask_read(address, 16)).status != 0
        mine = guest.map(2, at=(address - guest.window) // PAGE)
        assert mine == address
        assert guest.read(mine, 1 << 16) == bytes(1 << 16)
        guest.write(mine, b"\xff" * 4096)
        guest.sync()
        bystander.is_fine()


def fill_and_leave(guest: Guest, pages: int) -> None:
    address = guest.map(pages)
    for offset in range(0, pages * PAGE, PAGE):
        guest.write(address + offset, b"\xa5" * PAGE)
    assert guest.read(address + pages * PAGE - 8, 8) == b"\xa5" * 8
    assert guest.sync().latched == 0


@pytest.mark.system
@pytest.mark.parametrize("clean", [True, False])
def test_device_memory_is_zero_in_a_new_session(monitor: harness.Monitor, clean: bool) -> None:
    """Whether the last one closed or just vanished, and whether the process is the same or another."""
    pages = 16
    for _ in range(3):
        guest = open_session(monitor)
        with guest.socket:
            fill_and_leave(guest, pages)
            if clean:
                guest.close()
        monitor.wait_idle(1)
        with session(monitor) as next_guest:
            address = next_guest.map(pages)
            for offset in range(0, pages * PAGE, PAGE):
                assert next_guest.read(address + offset, PAGE) == bytes(PAGE)
        monitor.wait_idle(1)
