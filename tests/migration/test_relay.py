"""The keeper's relay: bytes pass unchanged, bounded, and the guest is told between two replies."""

from __future__ import annotations

import random
import select
import socket
import struct

import pytest
from gpuferry.apiserver.relay import LIMIT, Frames, Malformed, Relay
from gpuferry.specs._generated import frames
from hypothesis import given, settings
from hypothesis import strategies as st

MOVED = frames.frame(frames.Frame.MOVED, b"tell")


def frame(op: int, body: bytes) -> bytes:
    return frames.frame(op, body, request=1)


class Ends:
    """A relay between two socket pairs; the test is both ends."""

    def __init__(self, requests: Frames, replies: Frames, moved: bytes = MOVED) -> None:
        self.guest, guest = socket.socketpair()
        self.server, link = socket.socketpair()
        for each in (self.guest, self.server):
            each.setblocking(False)
        self._held = guest, link
        self.relay = Relay(guest, link, requests, replies, moved)
        self.alive = True

    def turn(self) -> None:
        """Lets the relay do what it can."""
        while self.alive:
            poller = select.poll()
            for fd, events in self.relay.events().items():
                poller.register(fd, events)
            if not poller.poll(0):
                return
            self.alive = self.relay.move()

    def __enter__(self) -> Ends:
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self.guest, self.server, *self._held):
            each.close()


def received(end: socket.socket) -> bytes:
    try:
        return end.recv(1 << 24)
    except BlockingIOError:
        return b""


@pytest.mark.system
@settings(deadline=None, max_examples=100)
@given(st.data())
def test_the_guest_is_told_between_two_replies(data: st.DataObject) -> None:
    """Wherever the stream is cut, and whatever of a reply the guest had already."""
    replies = [
        frame(op, bytes(size))
        for op, size in data.draw(st.lists(st.tuples(st.integers(1, 500), st.integers(0, 90))))
    ]
    stream = b"".join(replies)
    begun = data.draw(st.integers(0, 16 + 90))
    with Ends(Frames(), Frames(b"", begun)) as ends:
        sent = bytes(begun) + stream
        cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)))))
        got = b""
        for start, end in zip([0, *cuts], [*cuts, len(sent)], strict=True):
            if start < end:
                ends.server.send(sent[start:end])
            ends.turn()
            got += received(ends.guest)
        if sent or begun == 0:
            assert got.count(MOVED) == 1
            at = got.index(MOVED)
            assert got[:at] + got[at + len(MOVED) :] == sent
            assert at == begun  # at the first place where it may be


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_the_guest_s_last_frame_ends_the_requests(data: st.DataObject) -> None:
    requests = b"".join(frame(op, bytes(9)) for op in data.draw(st.lists(st.integers(1, 500), max_size=5)))
    stream = requests + MOVED
    begun = data.draw(st.integers(0, len(stream) - len(MOVED)))
    at = 0
    while len(stream[:begun]) - at >= 16:
        at += struct.unpack_from("<I", stream, at)[0]
    head, missing = (stream[at:begun], 0) if at < begun else (b"", at - begun)
    with Ends(Frames(head, missing), Frames(), b"") as ends:
        ends.guest.send(stream[begun:] + b"this is for the other connection")
        ends.turn()
        assert received(ends.server) == stream[begun:]
        assert ends.relay.followed
        assert ends.alive  # until the destination has said all that it had to say
        ends.server.send(frame(5, b"last"))
        ends.turn()
        ends.server.close()
        ends.turn()
        assert received(ends.guest) == frame(5, b"last")
        assert not ends.alive


def test_who_does_not_read_makes_the_other_wait() -> None:
    with Ends(Frames(), Frames(), b"") as ends:
        chunk = frame(11, random.randbytes(100_000))
        sent = 0
        for _ in range(1000):
            try:
                sent += ends.server.send(chunk[sent % len(chunk) :])
            except BlockingIOError:
                ends.turn()
                if select.select([], [ends.server], [], 0)[1]:
                    continue
                break
        assert sent < 2 * LIMIT + 4 * (1 << 20)
        got = b""
        while data := received(ends.guest):
            got += data
            ends.turn()
        assert len(got) == sent


@pytest.mark.parametrize("gone", ["guest", "server"])
def test_the_end_of_either_is_the_end(gone: str) -> None:
    with Ends(Frames(), Frames(), b"") as ends:
        getattr(ends, gone).close()
        ends.turn()
        assert not ends.alive


def test_what_the_destination_said_last_arrives() -> None:
    with Ends(Frames(), Frames(), b"") as ends:
        ends.server.send(frame(5, b"REFUSED because"))
        ends.server.close()
        ends.turn()
        assert received(ends.guest) == frame(5, b"REFUSED because")


def test_what_is_no_frame_is_not_passed_on() -> None:
    frames = Frames()
    with pytest.raises(Malformed):
        list(frames.feed(b"\xff" * 16))
