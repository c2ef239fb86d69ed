"""A GPU server whose session is elsewhere again and again; every other place is on the same socket."""

from __future__ import annotations

import hashlib
import hmac
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from gpuferry.migration import follow

from tests.guest.fake_server import GREETING, HELLO, NAMES, REFUSED, WELCOME, FakeServer, Frame, parse_hello

ACKNOWLEDGE = 0xFF09
RESUME_MS = 20_000


@dataclass
class MovingServer(FakeServer):
    """After each `moves(n)` frames, n counting connections, it says MOVED; None: no more."""

    moves: Callable[[int], int | None] = lambda _: None
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
        welcome = bytearray(super()._welcome())
        offset = 32 + 4 * 8 + 5 * 4
        welcome[offset : offset + 4] = struct.pack("<I", RESUME_MS if self.resumable else 0)
        assert self.hello
        label = b"gpuferry resume key 1" + self.nonce + self.hello.nonce
        self.key = hmac.digest(self.token, label, hashlib.sha256)
        return bytes(welcome)

    def send(self, op: int, body: bytes, request: int = 0, flags: int = 0, status: int = 0) -> None:
        super().send(op, body, request, flags, status)
        if op < 0xFF00:
            self.sent += 16 + len(body)

    def _moved(self) -> bytes:
        """The frame; from here on the session has another key and number."""
        new = hashlib.sha256(self.key).digest()
        old = bytes(32) if self.forged else self.key
        self.key, self.number = new, self.number + 1
        return follow.moved_frame(old, new, self.number, f"unix:{self.path}")

    def _session(self) -> None:
        self.send(GREETING, struct.pack("<8sHH32s", b"GPUFERRY", 1, 0, self.nonce))
        size, op, *_ = follow.HEADER.unpack(self._read(16))
        body = self._read(size - 16)
        if op == HELLO:
            self.hello = parse_hello(body)
            self.send(WELCOME, self._welcome())
        else:
            assert op == follow.OP_RESUME
            if not self._resume(body):
                return
        self.connections += 1
        self._converse(self.moves(self.connections))

    def _resume(self, body: bytes) -> bool:
        version, flags, _, number, received, proof = follow.RESUME.unpack(body)
        assert (version, flags) == (1, 0)
        assert self.connection
        if self.refuses:
            self.send(REFUSED, struct.pack("<II", 9, 46) + b"nobody has it")
            return False
        if number != self.number:
            # It comes to where the session was: that server knows where it went.
            assert self.cut is not None
            old = self.old_key
            self.connection.sendall(follow.moved_frame(old, self.key, self.number, f"unix:{self.path}"))
            return False
        expected = hmac.digest(self.key, b"gpuferry resume 1" + self.nonce + body[:-32], hashlib.sha256)
        assert proof == expected
        assert received == (self.sent if self.resumable else 0)
        answer = hmac.digest(self.key, b"gpuferry resumed 1" + self.nonce + body, hashlib.sha256)
        count = self.received if self.resumable else 0
        super().send(follow.OP_RESUMED, follow.RESUMED.pack(answer, count))
        return True

    def _converse(self, until: int | None) -> None:
        """Serves, and says MOVED after so many frames; returns when the guest said it too."""
        assert self.connection
        served, told = 0, False
        while True:
            if served == until and not told:
                told = True
                self.old_key = self.key
                moved = self._moved()
                self.connection.sendall(moved[: self.cut])
                if self.cut is not None:
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
            size, op, flags, request, context = follow.HEADER.unpack(self._read(16))
            assert flags == 0
            body = self._read(size - 16)
            if op == follow.OP_MOVED:
                assert told
                assert not body
                self.answered.append(served)
                if not self.resumable and self.farewell:
                    super().send(follow.OP_MOVED, b"")
                return
            self.received += size
            if op == ACKNOWLEDGE:
                assert struct.unpack("<Q", body)[0] <= self.sent
                continue
            served += 1
            frame = Frame(NAMES[op], request, context, body)
            self.frames.append(frame)
            if request != 0:
                answer = self.answer(frame)
                if answer is not None:
                    self.reply(frame, answer)
            elif frame.name == "sessionClose":
                return
