"""Writes down what processes in jails say: each has a pipe of its own, whose other end comes over a socket.

    python -IS clerk.py <&SOCKET

It writes whole lines to its standard error, which is the monitor's, without what would steer a terminal, and
of each process, and of all, no more in a time than anybody would read. It outlives its monitor for as long as
one of them lives.
The standard library only; it is executed by its path.
"""

from __future__ import annotations

import array
import contextlib
import os
import re
import select
import signal
import socket
import time

READ_ONCE = 64 << 10
LINE_MOST = 256 << 10  # bytes; a longer line is several
RATE, BURST = 64 << 10, 1 << 20  # bytes a second, of one process
FEW_RATE, FEW_BURST = 1 << 10, 16 << 10  # the same, whatever others say
ALL_RATE, ALL_BURST = 1 << 20, 16 << 20  # of all processes together beyond that: one may follow another
REST_SECONDS = 0.05  # between two looks at one that says more
STEERING = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]")
LEFT_OUT = b'{"level": "warning", "event": "%d bytes that an API server said are left out"}\n'


class Allowance:
    """How many bytes may be written: `most` at once, and `rate` a second from then on."""

    def __init__(self, rate: int, most: int, now: float) -> None:
        self._rate, self._most = rate, most
        self._left, self._since = float(most), now

    def left(self, now: float) -> float:
        """As many as may be written now."""
        self._left = min(self._most, self._left + (now - self._since) * self._rate)
        self._since = now
        return self._left

    def rested(self, now: float) -> bool:
        """Whether it is full by half again."""
        return self.left(now) > self._most / 2

    def take(self, size: int) -> None:
        """Count so many bytes as written, whether or not as many were left."""
        self._left -= size


class Voice:
    """The output of one process: whole lines of it, no faster than RATE bytes a second after BURST. But for
    few bytes it is `everybody`'s, who may say no more together.
    """

    def __init__(self, now: float, everybody: Allowance | None = None) -> None:
        self._held = b""  # a line that is not whole
        self._left_out = 0
        self._own, self._few = Allowance(RATE, BURST, now), Allowance(FEW_RATE, FEW_BURST, now)
        self._everybody = everybody or Allowance(ALL_RATE, ALL_BURST, now)

    def said(self, data: bytes, now: float) -> bytes:
        """What is to be written of this, and of what came before; nothing more came: it has ended."""
        whole, newline, rest = (self._held + data).rpartition(b"\n")
        self._held = rest
        if not data or len(rest) > LINE_MOST:
            whole, newline, self._held = whole + newline + rest, b"\n" if rest else b"", b""
        return self._allowed(whole + newline, now, last=not data)

    def _allowed(self, lines: bytes, now: float, last: bool) -> bytes:
        told = b""
        rested = self._own.rested(now) and (self._few.rested(now) or self._everybody.rested(now))
        if self._left_out and (last or rested):
            told, self._left_out = LEFT_OUT % self._left_out, 0
        shared = self._few if self._few.left(now) >= len(lines) else self._everybody
        fits = min(self._own.left(now), shared.left(now)) >= len(lines)
        if not lines or (fits and not self._left_out):
            self._own.take(len(lines))
            shared.take(len(lines))
            return told + STEERING.sub(b"?", lines)
        self._left_out += len(lines)
        return told

    @property
    def rests(self) -> bool:
        """Whether it says more than it may, so that it need not be heard at once."""
        return self._left_out > 0


class Clerk:
    """Reads the pipes that the monitor hands over the control socket, each with a Voice of its own."""

    def __init__(self, control: socket.socket) -> None:
        self._control: socket.socket | None = control
        self._poller = select.epoll()
        self._poller.register(control, select.EPOLLIN)
        self._voices: dict[int, Voice] = {}  # by descriptor
        self._resting: dict[int, float] = {}  # until when they are not heard
        self._everybody = Allowance(ALL_RATE, ALL_BURST, time.monotonic())

    def run(self) -> None:
        """Serve until the monitor is gone, and all who speak."""
        while self._control or self._voices:
            for descriptor, _ in self._poller.poll(self._patience()):
                if self._control and descriptor == self._control.fileno():
                    self._take(self._control)
                else:
                    self._hear(descriptor)
            self._wake()

    def _patience(self) -> float | None:
        if not self._resting:
            return None
        return max(min(self._resting.values()) - time.monotonic(), 0.001)

    def _take(self, control: socket.socket) -> None:
        data, beside, _, _ = control.recvmsg(1, socket.CMSG_LEN(array.array("i").itemsize))
        if not data:
            self._poller.unregister(control)
            control.close()
            self._control = None
            return
        for _, _, numbers in beside:
            (descriptor,) = array.array("i", numbers)
            os.set_blocking(descriptor, False)
            self._voices[descriptor] = Voice(time.monotonic(), self._everybody)
            self._poller.register(descriptor, select.EPOLLIN)

    def _hear(self, descriptor: int) -> None:
        voice = self._voices[descriptor]
        try:
            data = os.read(descriptor, READ_ONCE)
        except BlockingIOError:  # whoever has the same user may open its own pipe, and read it first
            return
        write(voice.said(data, time.monotonic()))
        if not data:
            del self._voices[descriptor]
            os.close(descriptor)
        elif voice.rests:
            self._poller.unregister(descriptor)
            self._resting[descriptor] = time.monotonic() + REST_SECONDS

    def _wake(self) -> None:
        """Hear those again who have rested."""
        now = time.monotonic()
        for descriptor in [one for one, until in self._resting.items() if until <= now]:
            del self._resting[descriptor]
            self._poller.register(descriptor, select.EPOLLIN)


def write(text: bytes) -> None:
    """Write it, if anybody takes it."""
    with contextlib.suppress(OSError):
        while text:
            text = text[os.write(2, text) :]


def main() -> None:
    """Serve on the socket that is our standard input."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends with the last who speaks
    Clerk(socket.socket(fileno=0)).run()


if __name__ == "__main__":
    main()
