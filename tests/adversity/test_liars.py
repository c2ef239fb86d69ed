"""A guest that uses what it never made, says things twice or in the wrong order, and asks without end."""

from __future__ import annotations

import hashlib
import struct

import pytest

from tests.adversity.sessions import PAGE, Bystander, open_session, session
from tests.apiserver import kernels
from tests.apiserver.guest import PRIMARY, Guest, encode, handle
from tests.monitor import harness

INVALID_VALUE = 1
INVALID_HANDLE = 400
MIB = 1 << 20
MOST_MEMORY = 300 * MIB  # of an API server, whatever its guest does


def rss_of(monitor: harness.Monitor, guest: Guest) -> int:
    """Resident bytes of the API server that serves this guest."""
    return next(int(s.rss) for s in monitor.status().servers if s.session == guest.session)


def test_ids_of_another_session(monitor: harness.Monitor, bystander: Bystander) -> None:
    """They exist, next door: here they do not."""
    other = bystander.guest
    stream, event = handle("stream", 5), handle("event", 5)
    other.send("cuStreamCreateWithPriority", phStream=stream, flags=1, priority=0)
    other.send("cuEventCreate", phEvent=event, Flags=0)
    kernels.bind(other, "scale")
    with session(monitor) as guest:
        assert guest.call("cuStreamQuery", hStream=stream).status == INVALID_HANDLE
        assert guest.call("cuEventQuery", hEvent=event).status == INVALID_HANDLE
        guest.send("cuStreamDestroy_v2", hStream=stream)
        assert guest.sync().latched == INVALID_HANDLE
        guest.launch(handle("kernel", 0), struct.pack("<QI", bystander.address, 1))
        assert guest.sync().latched == INVALID_HANDLE
    assert other.call("cuStreamQuery", hStream=stream).status == 0
    assert other.call("cuEventQuery", hEvent=event).status == 0


def test_a_request_id_that_is_used_twice(monitor: harness.Monitor) -> None:
    """Each frame is answered: whom that confuses is the guest."""
    with session(monitor) as guest:
        guest.socket.sendall(encode("cuCtxSynchronize", 7, 1, b"", {}) * 3)
        for _ in range(3):
            op, _, request, status = guest._frame()
            assert (request, status) == (7, 0), op


def test_calls_after_the_end(monitor: harness.Monitor) -> None:
    guest = open_session(monitor)
    with guest.socket:
        # In one write: after the first call the server may hang up at any time.
        calls = [("sessionClose", {}), ("sessionMemMap", {"address": guest.window, "size": 4 * PAGE})]
        guest.socket.sendall(b"".join(encode(op, 0, 1, b"", values) for op, values in calls))
        assert not guest.expect_end().text


def test_calls_before_what_they_build_on(monitor: harness.Monitor, bystander: Bystander) -> None:
    """Each is an error of its own, and none takes effect later."""
    stream, library, kernel = handle("stream", 9), handle("library", 0), handle("kernel", 0)
    image, digest = kernels.PTX, hashlib.sha256(kernels.PTX).digest()
    with session(monitor) as guest:
        address = guest.window
        early = [
            ("sessionMemUnmap", {"address": address, "size": PAGE}),
            ("sessionGetFunction", {"function": kernel, "owner": library, "index": 0}),
            ("cuStreamDestroy_v2", {"hStream": stream}),
            ("cuEventDestroy_v2", {"hEvent": handle("event", 9)}),
        ]
        for op, values in early:
            guest.send(op, context=PRIMARY, payload=b"", **values)
            assert guest.sync().latched != 0, op
        guest.write(address, b"early")
        assert guest.sync().latched != 0
        guest.map()
        guest.send("cuStreamCreateWithPriority", phStream=stream, flags=1, priority=0)
        assert guest.load(image, library, digest)[0].status == 0
        assert guest.sync().latched == 0
        assert guest.read(address, 5) == bytes(5)
        guest.launch(kernel, struct.pack("<QI", address, 1))
        assert guest.sync().latched == INVALID_HANDLE
        guest.send("sessionMemUnmap", address=address, size=PAGE)
        assert guest.sync().latched == 0
        guest.send("sessionMemUnmap", address=address, size=PAGE)
        assert guest.sync().latched != 0


def test_pieces_of_an_image_in_the_wrong_order(monitor: harness.Monitor) -> None:
    """The image loads, or it does not: no piece lies elsewhere than its sender says."""
    image, digest = kernels.PTX, hashlib.sha256(kernels.PTX).digest()
    middle = len(image) // 2
    with session(monitor) as guest:
        for offset, piece in ((middle, image[middle:]), (0, image[:middle])):
            guest.send("sessionImageData", hash=digest, size=len(image), offset=offset, payload=piece)
        reply = guest.call("sessionLoadImage", hash=digest, handle=handle("library", 0), size=len(image))
        assert reply.status == 0 or reply.values.get("known") != 1
        assert guest.load(image, handle("library", 1), digest)[0].status == 0


@pytest.mark.parametrize(("size", "offset"), [(64, 1 << 60), (64, 60), (1, 0), (64, (1 << 64) - 8)])
def test_pieces_outside_their_image(monitor: harness.Monitor, size: int, offset: int) -> None:
    guest = open_session(monitor)
    with guest.socket:
        ended = guest.send_last(
            "sessionImageData", hash=bytes(32), size=size, offset=offset, payload=bytes(16)
        )
        assert "outside the image" in ended.text


def test_a_piece_of_an_image_of_no_bytes(monitor: harness.Monitor) -> None:
    """The spec's check of the size comes first: an error as any argument's, and the piece is passed over."""
    with session(monitor) as guest:
        guest.send("sessionImageData", hash=bytes(32), size=0, offset=0, payload=bytes(16))
        assert guest.sync().latched == INVALID_VALUE
        assert guest.sync().latched == 0


def test_an_image_larger_than_memory(monitor: harness.Monitor) -> None:
    with session(monitor) as guest:
        guest.send("sessionImageData", hash=bytes(32), size=1 << 60, offset=0, payload=bytes(16))
        assert guest.sync().latched != 0


def test_images_that_never_come(monitor: harness.Monitor) -> None:
    """Announced in full, a byte of each sent: they are not worth their memory."""
    with session(monitor) as guest:
        for number in range(2000):
            digest = number.to_bytes(32, "little")
            guest.send("sessionImageData", hash=digest, size=512 * MIB, offset=0, payload=b"x")
        guest.sync()
        assert rss_of(monitor, guest) < MOST_MEMORY


def test_a_flood_of_handles(monitor: harness.Monitor, bystander: Bystander) -> None:
    """Made and never destroyed; the end of the session takes them all."""
    with session(monitor) as guest:
        for slot in range(20_000):
            guest.send("cuEventCreate", phEvent=handle("event", slot), Flags=0)
            if slot % 5000 == 0:
                bystander.is_fine()
        assert guest.sync().status == 0
        assert rss_of(monitor, guest) < MOST_MEMORY


def test_handles_beyond_every_table(monitor: harness.Monitor) -> None:
    with session(monitor) as guest:
        for slot in (1 << 20, (1 << 24) - 1):
            guest.send("cuEventCreate", phEvent=handle("event", slot), Flags=0)
            assert guest.sync().latched != 0


def test_a_flood_of_calls_that_fail(monitor: harness.Monitor, bystander: Bystander) -> None:
    """One error is told, none costs memory, and nobody else waits."""
    with session(monitor, memory=4 * PAGE) as guest:
        before = rss_of(monitor, guest)
        for _ in range(20_000):
            guest.send("sessionMemMap", address=guest.window, size=5 * PAGE)
        bystander.is_fine()
        assert guest.sync().latched == 2  # CUDA_ERROR_OUT_OF_MEMORY
        assert guest.sync().latched == 0
        assert rss_of(monitor, guest) < before + 8 * MIB
