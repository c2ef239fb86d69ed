"""The link, against a destination that the test plays."""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from gpuferry.migration import frames
from gpuferry.migration.errors import Cancelled, LinkBroken, Lost, MigrationError, Refused
from gpuferry.migration.frames import HEADER, Kept
from gpuferry.migration.link import Link
from gpuferry.migration.targets import take_over
from gpuferry.specs._generated import frames as layouts

LOAD, EVENT, IMAGE = (
    frames.OPERATIONS[name] for name in ("sessionLoadImage", "cuEventCreate", "sessionImageData")
)


def reply(op: int, request: int, status: int = 0, body: bytes = b"", flags: int = 1) -> bytes:
    said = layouts.ReplyPrefix(0, 0, 0).pack() + body
    return layouts.frame(op, said, request, status, flags)


@dataclass
class Destination:
    """Answers every frame as told, on a thread; says in which order they came."""

    connection: socket.socket
    answer: Callable[[layouts.Header, bytes], bytes]
    seen: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        with self.connection, self.connection.makefile("rb") as stream:
            try:
                while data := stream.read(HEADER.size):
                    head = frames.header(data)
                    body = stream.read(head.size - HEADER.size)
                    self.seen.append(head.op)
                    self.connection.sendall(self.answer(head, body))
            except OSError:
                pass


@pytest.fixture
def connect() -> Iterator[Callable[..., tuple[Link, Destination]]]:
    made: list[tuple[socket.socket, Destination]] = []

    def make(
        answer: Callable[[layouts.Header, bytes], bytes], wake: int | None = None
    ) -> tuple[Link, Destination]:
        ours, theirs = socket.socketpair()
        destination = Destination(theirs, answer)
        made.append((ours, destination))
        link = Link(ours, wake)
        link.patience = 120
        return link, destination

    yield make
    for ours, destination in made:
        ours.close()
        destination.thread.join()


def fine(head: layouts.Header, _: bytes) -> bytes:
    return reply(head.op, head.request)


def kept(op: str, answer: int = 0, body: bytes = bytes(12)) -> Kept:
    return Kept(frames.pack(op, body, 0, 1), answer)


def tell_two(link: Link, payload: bytes = b"") -> None:
    for _ in range(2):
        link.tell("sessionCopyIn", bytes(40), payload)
        link.settle()


def test_nobody_waits_for_each_answer(connect: Callable[..., tuple[Link, Destination]]) -> None:
    """The first answer comes when the last request is there."""
    waiting: list[bytes] = []

    def late(head: layouts.Header, _: bytes) -> bytes:
        waiting.append(reply(head.op, head.request))
        return b"".join(waiting) if len(waiting) == 500 else b""

    link, destination = connect(late)
    for _ in range(500):
        link.replay(kept("cuEventCreate"), "an event")
    link.settle()
    assert destination.seen == [EVENT] * 500


def test_much_in_both_directions(connect: Callable[..., tuple[Link, Destination]]) -> None:
    """Who cannot write reads: a destination that writes before it reads on stops nobody."""
    link, _ = connect(lambda head, body: reply(head.op, head.request, 0, body[:60000]))
    sizes = []
    for _ in range(300):
        link.ask("sessionRestoreHash", b"", lambda _, body: sizes.append(len(body)), bytes(100_000))
    link.settle()
    assert sizes == [60000] * 300


def test_what_comes_after_an_image_waits_for_it(connect: Callable[..., tuple[Link, Destination]]) -> None:
    """Images load on threads of their own: functions must find them, and their order decides on addresses."""
    loading: list[bytes] = []

    def slow(head: layouts.Header, body: bytes) -> bytes:
        if head.op in (LOAD, IMAGE):
            loading.append(reply(head.op, head.request, 0, bytes(16) if head.op == LOAD else b""))
            return b""
        return reply(head.op, head.request)

    link, destination = connect(slow)
    digest = frames.digest(LOAD, 0, bytes(16))

    def send() -> None:
        for _ in range(2):
            link.replay(kept("sessionLoadImage", digest, bytes(48)), "an image")
            link.tell("sessionImageData", bytes(48), b"last piece")
        link.replay(kept("cuEventCreate"), "an event")
        link.settle()

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    for images in (1, 2):
        while len(loading) < 2:
            assert sender.is_alive()
            time.sleep(0.001)
        time.sleep(0.1)
        assert destination.seen == [LOAD, IMAGE] * images
        answers = b"".join(loading)
        loading.clear()
        destination.connection.sendall(answers)
    sender.join()
    assert destination.seen == [LOAD, IMAGE, LOAD, IMAGE, EVENT]


@pytest.mark.parametrize("body", [b"another!", b"", b"the sam"])
def test_another_answer_is_refused(connect: Callable[..., tuple[Link, Destination]], body: bytes) -> None:
    link, _ = connect(lambda head, _: reply(head.op, head.request, 0, body))
    link.replay(kept("sessionGetGlobal", frames.digest(9, 0, b"the same")), "the address of x")
    with pytest.raises(Refused, match="differently from here: the address of x"):
        link.settle()


def test_another_status_is_refused(connect: Callable[..., tuple[Link, Destination]]) -> None:
    link, _ = connect(lambda head, _: reply(head.op, head.request, 700))
    link.replay(kept("cuEventCreate"), "an event")
    with pytest.raises(Refused, match="an event failed with status 700"):
        link.settle()


def test_no_memory_is_said_as_such(connect: Callable[..., tuple[Link, Destination]]) -> None:
    link, _ = connect(lambda head, _: reply(head.op, head.request, 2))
    link.tell("sessionMemMap", bytes(16))
    with pytest.raises(Refused, match="not enough free memory"):
        link.settle()


@pytest.mark.parametrize(
    "answer",
    [
        lambda head: b"\0" * 16,
        lambda head: b"\xff" * 16,
        lambda head: reply(head.op, head.request + 1),
        lambda head: reply(head.op + 1, head.request),
        lambda head: reply(head.op, head.request, flags=0),
        lambda head: reply(head.op, head.request) * 2,
        lambda head: layouts.frame(head.op, b"", head.request, flags=1),
        lambda head: reply(layouts.Frame.OUTPUT, 0, flags=0),
    ],
    ids=["size 0", "too large", "request", "operation", "no reply", "twice", "cut short", "output"],
)
def test_nonsense_is_refused(
    connect: Callable[..., tuple[Link, Destination]], answer: Callable[[layouts.Header], bytes]
) -> None:
    link, _ = connect(lambda head, _: answer(head))
    with pytest.raises(LinkBroken, match="the destination"):
        tell_two(link)


def test_a_refusal_is_told(connect: Callable[..., tuple[Link, Destination]]) -> None:
    text = b"malformed: operation 471: no such thing"
    link, _ = connect(
        lambda head, _: layouts.frame(layouts.Frame.REFUSED, layouts.Refused(7, 999).pack() + text)
    )
    link.tell("cuEventCreate", bytes(12))
    with pytest.raises(LinkBroken, match="malformed: operation 471"):
        link.settle()


def test_silence(connect: Callable[..., tuple[Link, Destination]]) -> None:
    link, _ = connect(lambda head, _: b"")
    link.tell("cuEventCreate", bytes(12))
    with link.patient(0.05), pytest.raises(LinkBroken, match=r"silent for 0\.05 s"):
        link.settle()
    assert link.patience == 120


def test_the_welcome(connect: Callable[..., tuple[Link, Destination]]) -> None:
    link, destination = connect(fine)
    destination.connection.send(layouts.frame(layouts.Frame.WELCOME, b"body"))
    assert link.welcome() == b"body"


def test_somebody_stops_it(connect: Callable[..., tuple[Link, Destination]]) -> None:
    wake = os.eventfd(0)
    try:
        link, _ = connect(lambda head, _: b"", wake)
        link.tell("cuEventCreate", bytes(12))
        os.eventfd_write(wake, 1)
        with pytest.raises(Cancelled):
            link.settle()
        link.commit()
        with link.patient(0.05), pytest.raises(LinkBroken):
            link.settle()
    finally:
        os.close(wake)


def test_nobody_stops_a_take_over(connect: Callable[..., tuple[Link, Destination]]) -> None:
    """It may have happened: who gave up now would serve a session that another has."""
    wake = os.eventfd(1)
    link, destination = connect(fine, wake)
    take_over(link, [])
    assert destination.seen == [frames.OPERATIONS["sessionRestoreTakeOver"]]
    os.close(wake)


def test_the_destination_goes_away(connect: Callable[..., tuple[Link, Destination]]) -> None:
    def leave(head: layouts.Header, _: bytes) -> bytes:
        raise OSError

    link, _ = connect(leave)
    with pytest.raises(MigrationError, match="link"):
        tell_two(link, bytes(100_000))


@dataclass
class Unreachable:
    """A connection on which nothing comes any more, as the system says when it has waited long enough."""

    connection: socket.socket
    error: OSError

    def fileno(self) -> int:
        return self.connection.fileno()

    def recv(self, size: int, flags: int = 0) -> bytes:
        raise self.error

    def sendmsg(self, parts: Any, beside: Any, flags: int = 0) -> int:
        return self.connection.sendmsg(parts, beside, flags)


@pytest.mark.parametrize("number", [errno.ETIMEDOUT, errno.EHOSTUNREACH])
def test_the_network_ends_a_take_over(number: int) -> None:
    """It may have come, and whoever sent it asks. A keeper ended of this, and the session with it."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.send(b"\0")  # the connection is readable, as with an error
        link = Link(Unreachable(ours, OSError(number, os.strerror(number))))
        with pytest.raises(Lost, match=os.strerror(number)):
            take_over(link, [])
