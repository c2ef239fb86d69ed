"""Frames over the stream to the destination: answers are checked as they come, nobody waits for one."""

from __future__ import annotations

import array
import contextlib
import itertools
import select
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gpuferry.specs._generated import frames as layouts
from gpuferry.specs._generated.frames import FRAME_MAX, Frame, FrameFlag, ReplyPrefix

from . import frames
from .errors import Cancelled, LinkBroken, Refused
from .frames import HEADER, Kept

BATCH = 64 << 10
RECEIVE = 256 << 10
OUT_OF_MEMORY = 2
LOAD = frames.OPERATIONS["sessionLoadImage"]
IMAGE_DATA = frames.OPERATIONS["sessionImageData"]
# Seconds in which something must move.
REBUILD_PATIENCE = 300.0  # the destination may have to compile
RUN_PATIENCE = 60.0
PAUSE_PATIENCE = 10.0  # the program waits
SLOWEST = 128 << 20  # bytes that a destination copies in a second, at least

Answer = Callable[[int, memoryview], None]  # takes status and what follows the prefix


@dataclass(frozen=True)
class Expected:
    """An answer that is still to come, and who takes it."""

    op: int
    take: Answer


class Stream(Protocol):
    """A connected socket, in clear or with TLS: as much of socket.socket as a link needs."""

    def fileno(self) -> int: ...
    def recv(self, size: int, flags: int = 0, /) -> bytes: ...
    def sendmsg(self, parts: Any, beside: Any, flags: int = 0, /) -> int: ...


class Link:
    """One end of the connection between source and destination, for one thread. Raises LinkBroken, and
    Cancelled once it is woken.
    """

    def __init__(self, connection: Stream, wake: int | None = None) -> None:
        """`wake` becomes readable when everything shall be dropped."""
        self._socket = connection
        self._wake = wake
        self._out = bytearray()
        self._in = bytearray()
        self._requests = itertools.count(1)
        self._expected: dict[int, Expected] = {}
        self._loading: set[int] = set()  # requests that make something on a thread of their own
        self._welcome: bytes | None = None
        self.patience = RUN_PATIENCE
        self.sent = 0

    @contextlib.contextmanager
    def patient(self, seconds: float) -> Iterator[None]:
        """Let the other side be silent for so many seconds within this context."""
        before, self.patience = self.patience, seconds
        try:
            yield
        finally:
            self.patience = before

    def welcome(self) -> bytes:
        """The body of the WELCOME with which the destination begins; waits for it."""
        while self._welcome is None:
            self._wait(select.POLLIN)
            self._read()
        return self._welcome

    def replay(self, kept: Kept, what: str) -> None:
        """Send a kept frame. Its answer must have the digest that the source remembers, else Refused is
        raised when it comes.
        """
        frame = bytearray(kept.frame)
        op, expected = frames.header(kept.frame).op, kept.answer
        self._let_load(op)

        def check(status: int, body: memoryview) -> None:
            if expected == 0:
                require(status, what)
            elif frames.digest(op, status, body) != expected:
                raise Refused(f"the destination answers differently from here: {what} (status {status})")

        HEADER.pack_into(frame, 0, *HEADER.unpack_from(frame)[:3], self._expect(op, check), context_of(frame))
        self._send(frame)

    def tell(self, op: str, body: bytes = b"", payload: bytes | memoryview = b"", context: int = 0) -> None:
        """Send a frame that must succeed."""
        self.ask(op, body, lambda status, _: require(status, op), payload, context)

    def ask(
        self,
        op: str,
        body: bytes,
        take: Answer,
        payload: bytes | memoryview = b"",
        context: int = 0,
        descriptors: Sequence[int] = (),
    ) -> None:
        """Send a frame; `take` gets the status of its answer and what follows the prefix."""
        self._let_load(frames.OPERATIONS[op])
        request = self._expect(frames.OPERATIONS[op], take)
        head = frames.pack(op, body, len(payload), context, request)
        if descriptors:
            self._flush()  # they belong to the first byte that goes with them
            self._push([memoryview(head), memoryview(payload)], descriptors)
        elif len(payload) >= BATCH:
            self._out += head
            self._flush(payload)
        else:
            self._send(head, payload)

    def settle(self) -> None:
        """Wait until everything that was sent has its answer."""
        self._flush()
        while self._expected:
            self._wait(select.POLLIN)
            self._read()

    def commit(self) -> None:
        """Let nobody stop the migration from here on."""
        self._wake = None

    def _expect(self, op: int, take: Answer) -> int:
        request = next(self._requests)
        self._expected[request] = Expected(op, take)
        if op == LOAD:
            self._loading.add(request)
        return request

    def _let_load(self, op: int) -> None:
        """What comes after an image may need it; and images loaded in another order get other addresses."""
        if op == IMAGE_DATA or not self._loading:
            return
        self._flush()
        while self._loading:
            self._wait(select.POLLIN)
            self._read()

    def _send(self, head: bytes | bytearray, payload: bytes | memoryview = b"") -> None:
        self._out += head
        self._out += payload
        if len(self._out) >= BATCH:
            self._flush()

    def _flush(self, payload: bytes | memoryview = b"") -> None:
        out, self._out = self._out, bytearray()
        if out or payload:
            self._push([memoryview(out), memoryview(payload)], ())

    def _push(self, parts: list[memoryview], descriptors: Sequence[int]) -> None:
        """Writes all of it, and reads when it cannot: the other side may wait for that."""
        beside = array.array("i", descriptors)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, beside)] if descriptors else []
        flags = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
        while parts := [part for part in parts if part]:
            try:
                sent = self._socket.sendmsg(parts, rights, flags)
            except BlockingIOError:
                if self._wait(select.POLLIN | select.POLLOUT) & select.POLLIN:
                    self._read()
                continue
            except OSError as error:
                self._explain(error)
            rights = []
            self.sent += sent
            for i, part in enumerate(parts):
                parts[i] = part[min(sent, len(part)) :]
                sent -= min(sent, len(part))

    def _explain(self, error: OSError) -> None:
        """The other side may have said why it hung up."""
        with contextlib.suppress(OSError):
            while True:
                self._read(socket.MSG_DONTWAIT)
        raise LinkBroken(f"the link to the destination broke: {error.strerror}") from None

    def _wait(self, events: int) -> int:
        poller = select.poll()
        poller.register(self._socket, events)
        if self._wake is not None:
            poller.register(self._wake, select.POLLIN)
        until = time.monotonic() + self.patience
        while True:
            left = until - time.monotonic()
            found = dict(poller.poll(max(left, 0) * 1000 + 1))
            if self._wake is not None and self._wake in found:
                raise Cancelled("stopped")
            if found:
                return found[self._socket.fileno()]
            if left <= 0:
                raise LinkBroken(f"the destination has been silent for {self.patience:g} s")

    def _read(self, flags: int = 0) -> None:
        """Takes what has come, and every answer that is complete."""
        try:
            data = self._socket.recv(RECEIVE, flags)
        except BlockingIOError:
            raise
        except ConnectionResetError:
            data = b""
        except OSError as error:  # the network is gone, say, or what came over TLS is not what was sent
            raise LinkBroken(f"the link to the destination broke: {error.strerror}") from None
        if not data:
            raise LinkBroken("the destination closed the link")
        self._in += data
        at = 0
        with memoryview(self._in) as view:
            while (size := self._arrived(at)) is not None:
                with view[at : at + size] as frame:
                    at += size
                    self._understand(frames.header(frame).op, frame)
        del self._in[:at]

    def _arrived(self, at: int = 0) -> int | None:
        """The size of the frame that lies there, if all of it does."""
        if len(self._in) - at < HEADER.size:
            return None
        size = int.from_bytes(self._in[at : at + 4], "little")
        if not HEADER.size <= size <= FRAME_MAX:
            raise LinkBroken("the destination sent a frame of an impossible size")
        return size if len(self._in) - at >= size else None

    def _understand(self, op: int, frame: memoryview) -> None:
        if op == Frame.REFUSED:
            text = bytes(frame[HEADER.size + layouts.Refused.SIZE :]).decode(errors="replace")
            raise LinkBroken(f"the destination ended the session: {text}")
        if op == Frame.WELCOME and self._welcome is None and not self._expected:
            self._welcome = bytes(frame[HEADER.size :])
            return
        head = frames.header(frame)
        expected = self._expected.pop(head.request, None)
        self._loading.discard(head.request)
        if head.flags != FrameFlag.REPLY or expected is None or expected.op != op:
            raise LinkBroken(f"the destination sent what it was not asked for (operation {op})")
        if head.size < HEADER.size + ReplyPrefix.SIZE:
            raise LinkBroken(f"the destination's answer to operation {op} is cut short")
        expected.take(head.status, frame[HEADER.size + ReplyPrefix.SIZE :])


def context_of(frame: bytes | bytearray) -> int:
    return frames.header(frame).context


def require(status: int, what: str) -> None:
    """Raise Refused unless the destination did what it was asked, which `what` names."""
    if status == OUT_OF_MEMORY:
        raise Refused("the destination has not enough free memory")
    if status != 0:
        raise Refused(f"the destination cannot do what was done here: {what} failed with status {status}")
