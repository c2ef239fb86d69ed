"""A GPU server whose session is elsewhere again and again; every other place is on the same socket."""

from __future__ import annotations

import hashlib
import hmac
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from gpuferry.migration import follow
from gpuferry.specs._generated import frames
from gpuferry.specs._generated.frames import Frame as Op

from tests.guest.fake_server import NAMES, FakeServer, Frame, greeting, parse_hello

RESUME_MS = 20_000


@dataclass
class MovingServer(FakeServer):
    """After each `moves(n)` frames, n counting connections, it says MOVED; None: no more."""

    moves: Callable[[int], int | None] = lambda _: None
    early: bool = False  # says it before it answers the last of these frames, not after
    resumable: bool = False
    forged: bool = False  # MOVED comes from somebody who does not know the session's key
    cut: int | None = None  # the connection breaks after so many bytes of MOVED, which then answers RESUME
    farewell: bool = True  # says that it has said everything; without it the connection has broken
    refuses: bool = False  # nobody has the session where it should be
    key: bytes = b""
    number: int = 7
    received: int = 0  # bytes of the stream
    sent: int = 0
    connections: int = 0
    answered: list[int] = field(default_factory=list)  # frames of each connection before the guest's MOVED

    def _welcome(self) -> bytes:
        welcome = super()._welcome()
        told = frames.Welcome.unpack(welcome)._replace(resume_ms=RESUME_MS if self.resumable else 0)
        assert self.hello
        label = frames.KEY_RESUME + self.nonce + self.hello.nonce
        self.key = hmac.digest(self.token, label, hashlib.sha256)
        return told.pack() + welcome[told.SIZE :]

    def send(self, op: int, body: bytes, request: int = 0, flags: int = 0, status: int = 0) -> None:
        super().send(op, body, request, flags, status)
        if op in NAMES:
            self.sent += 16 + len(body)

    def _moved(self) -> bytes:
        """The frame; from here on the session has another key and number."""
        new = hashlib.sha256(self.key).digest()
        old = bytes(32) if self.forged else self.key
        self.key, self.number = new, self.number + 1
        return follow.moved_frame(old, new, self.number, f"unix:{self.path}")

    def _tell(self) -> None:
        assert self.connection
        self.old_key = self.key
        with suppress(ConnectionError):  # the guest has ended meanwhile, and its last is still to be read
            self.connection.sendall(self._moved()[: self.cut])

    def _session(self) -> None:
        self.send(Op.GREETING, greeting(self.nonce))
        size, op, *_ = frames.Header.unpack(self._read(frames.Header.SIZE))
        body = self._read(size - 16)
        if op == Op.HELLO:
            self.hello = parse_hello(body)
            self.send(Op.WELCOME, self._welcome())
        else:
            assert op == Op.RESUME
            if not self._resume(body):
                return
        self.connections += 1
        self._converse(self.moves(self.connections))

    def _resume(self, body: bytes) -> bool:
        version, flags, _, number, received, proof = frames.Resume.unpack(body)
        assert (version, flags) == (1, 0)
        assert self.connection
        if self.refuses:
            self.send(Op.REFUSED, frames.Refused(9, 46).pack() + b"nobody has it")
            return False
        if number != self.number:
            # It comes to where the session was: that server knows where it went.
            assert self.cut is not None
            old = self.old_key
            self.connection.sendall(follow.moved_frame(old, self.key, self.number, f"unix:{self.path}"))
            return False
        expected = hmac.digest(self.key, frames.PROOF_RESUME + self.nonce + body[:-32], hashlib.sha256)
        assert proof == expected
        assert received == (self.sent if self.resumable else 0)
        answer = hmac.digest(self.key, frames.PROOF_RESUMED + self.nonce + body, hashlib.sha256)
        count = self.received if self.resumable else 0
        super().send(Op.RESUMED, frames.Resumed(answer, count).pack())
        return True

    def _converse(self, until: int | None) -> None:
        """Serves, and says MOVED after so many frames; returns when the guest said it too."""
        assert self.connection
        served, told = 0, False
        while True:
            if served == until and not told:
                told = True
                self._tell()
                if self.cut is not None:
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
            size, op, flags, request, context = frames.Header.unpack(self._read(frames.Header.SIZE))
            assert flags == 0
            body = self._read(size - 16)
            if op == Op.MOVED:
                assert told
                assert not body
                self.answered.append(served)
                if not self.resumable and self.farewell:
                    super().send(Op.MOVED, b"")
                return
            self.received += size
            if op == Op.ACKNOWLEDGE:
                assert frames.Acknowledge.unpack(body).received <= self.sent
                continue
            served += 1
            frame = Frame(NAMES[op], request, context, body)
            self.frames.append(frame)
            if self.early and served == until:
                told = True
                self._tell()
            if request != 0:
                answer = self.answer(frame)
                if answer is not None:
                    self.reply(frame, answer)
            elif frame.name == "sessionClose":
                if self.resumable:
                    super().send(Op.ACKNOWLEDGE, frames.Acknowledge(self.received).pack())
                return
