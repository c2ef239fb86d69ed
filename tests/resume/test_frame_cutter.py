"""The cutter itself: it knows where frames begin, wherever a connection ended."""

from __future__ import annotations

import socket
import threading

from gpuferry.specs._generated.frames import Frame, Resume, Resumed, frame

from tests.helpers.door import Pair
from tests.monitor.fake_guest import read_exactly

from .cutter import Cutter
from .frame_cutter import HEADER, Cut, FrameCutter

SECONDS = 30.0
CALL = 7  # any operation that is none of the handshake's


def resume(received: int) -> bytes:
    """The guest has so much of what the server said."""
    return frame(Frame.RESUME, Resume(0, 0, b"", 0, received, b"").pack())


def resumed(received: int) -> bytes:
    return frame(Frame.RESUMED, Resumed(b"", received).pack())


def meet(server: socket.socket, cutter: Cutter) -> tuple[socket.socket, socket.socket]:
    """Another connection of the guest: its end, and the server's."""
    host, port = cutter.address.split(":")
    guest = socket.create_connection((host, int(port)), SECONDS)
    there, _ = server.accept()
    there.settimeout(SECONDS)
    return guest, there


def says(source: socket.socket, sink: socket.socket, data: bytes) -> None:
    """And all of it arrives."""
    source.sendall(data)
    assert read_exactly(sink, len(data)) == data


def test_a_connection_that_ends_behind_resumed_and_within_the_next_frame() -> None:
    call, next_call = frame(CALL, bytes(8)), frame(CALL, b"1234")
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        FrameCutter(f"127.0.0.1:{server.getsockname()[1]}") as cutter,
    ):
        guest, there = meet(server, cutter)
        with guest, there:
            says(there, guest, frame(Frame.WELCOME, b""))
            cutter.cut()
        guest, there = meet(server, cutter)
        with guest, there:
            says(guest, there, resume(0))
            with cutter.on_hold(Cut(Frame.RESUMED, False, len(resumed(0)))):
                says(there, guest, resumed(0))
                says(guest, there, call[:HEADER])
        guest, there = meet(server, cutter)
        with guest, there:
            says(guest, there, resume(0))
            says(there, guest, resumed(HEADER))
            says(guest, there, call[HEADER:] + next_call)


def test_what_answers_a_frame_that_is_cut_at_its_end_does_not_come() -> None:
    call = frame(CALL, b"1234")
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        FrameCutter(f"127.0.0.1:{server.getsockname()[1]}") as cutter,
    ):
        guest, there = meet(server, cutter)
        with guest, there:
            says(there, guest, frame(Frame.WELCOME, b""))
            with cutter.on_hold(Cut(CALL, True, len(call))):
                says(guest, there, call)
                there.sendall(frame(CALL, b"an answer"))
            assert guest.recv(1) == b""


def test_what_a_guest_said_before_it_ended_arrives() -> None:
    """Also if nobody has passed it on when the cutter is to go."""
    going = threading.Event()

    class Late(Cutter):
        """It begins to listen to guests when it is to go."""

        def _pump(
            self, source: socket.socket, sink: socket.socket, pair: Pair, allowance: int | None
        ) -> None:
            if source is pair[0]:
                assert going.wait(SECONDS)
            super()._pump(source, sink, pair, allowance)

        def cut(self) -> None:
            going.set()
            super().cut()

        def _hear_last(self) -> None:
            going.set()
            super()._hear_last()

    with socket.create_server(("127.0.0.1", 0)) as server:
        with Late(f"127.0.0.1:{server.getsockname()[1]}") as cutter:
            guest, there = meet(server, cutter)
            guest.sendall(b"closed")
            guest.close()
        with there:
            assert read_exactly(there, 6) == b"closed"
