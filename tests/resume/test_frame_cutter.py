"""The cutter itself: it knows where frames begin, wherever a connection ended."""

from __future__ import annotations

import socket

from gpuferry.specs._generated.frames import Frame, Resume, Resumed, frame

from tests.monitor.fake_guest import read_exactly

from .frame_cutter import HEADER, Cut, FrameCutter

SECONDS = 30.0
CALL = 7  # any operation that is none of the handshake's


def resume(received: int) -> bytes:
    """The guest has so much of what the server said."""
    return frame(Frame.RESUME, Resume(0, 0, b"", 0, received, b"").pack())


def resumed(received: int) -> bytes:
    return frame(Frame.RESUMED, Resumed(b"", received).pack())


def meet(server: socket.socket, cutter: FrameCutter) -> tuple[socket.socket, socket.socket]:
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
