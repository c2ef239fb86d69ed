"""The last lines that a function's replicas have written."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import count

LINES_MOST = 2000  # of one function,
LETTERS_MOST = 2 << 20  # and so much of text
LINE_MOST = 8 << 10  # bytes; a longer line is several
FOLLOWERS_MOST = 16  # of one function


@dataclass(frozen=True)
class Line:
    """One line of a replica's output."""

    number: int  # counts up, per function
    replica: int
    stream: str  # "out", "err", or "server" for what the server says of the replica
    text: str


class LogBook:
    """The lines of one function, the last ones, for as many followers as there are."""

    def __init__(self) -> None:
        self._lines: deque[Line] = deque()
        self._letters = 0
        self._numbers = count(1)
        self._more = asyncio.Event()
        self._followers = 0
        self._closed = False

    def write(self, replica: int, stream: str, text: str) -> None:
        """Add a line."""
        self._lines.append(Line(next(self._numbers), replica, stream, text))
        self._letters += len(text)
        while len(self._lines) > LINES_MOST or self._letters > LETTERS_MOST:
            self._letters -= len(self._lines.popleft().text)
        self._wake()

    def close(self) -> None:
        """No more lines will come: followers end."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        self._more.set()
        self._more = asyncio.Event()

    def tail(self, most: int = LINES_MOST) -> list[Line]:
        """The last lines."""
        return list(self._lines)[-most:] if most else []

    def room(self) -> bool:
        """Whether one more may follow."""
        return self._followers < FOLLOWERS_MOST

    async def follow(self, most: int) -> AsyncIterator[list[Line]]:
        """The last lines, then those that come, until the function is gone. A follower that is too slow
        misses what is no longer kept.
        """
        self._followers += 1
        try:
            lines = self.tail(most)
            seen = self._lines[-1].number if self._lines else 0
            if lines:
                yield lines
            while True:
                # What came while the last ones were being written is there: nothing tells of it again.
                if lines := [line for line in self._lines if line.number > seen]:
                    seen = lines[-1].number
                    yield lines
                elif self._closed:
                    break
                else:
                    await self._more.wait()
        finally:
            self._followers -= 1


class Lines:
    """Cuts a stream of bytes into lines."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> list[str]:
        """The lines that are whole by now."""
        *whole, self._held = (self._held + data).split(b"\n")
        while len(self._held) >= LINE_MOST:
            whole.append(self._held[:LINE_MOST])
            self._held = self._held[LINE_MOST:]
        return [text for line in whole for text in _pieces(line)]

    def rest(self) -> list[str]:
        """What is left when the stream has ended."""
        held, self._held = self._held, b""
        return _pieces(held) if held else []


def plain(text: str) -> str:
    """The text with a sign in place of whatever would steer a terminal, or is no character."""
    if text.isprintable():  # as nearly all is, and a flood of it should cost little
        return text
    return "".join(letter if letter.isprintable() or letter == "\t" else "\ufffd" for letter in text)


def _pieces(line: bytes) -> list[str]:
    """A line as texts of bounded length, without what would steer a terminal."""
    text = plain(line.decode(errors="replace").rstrip("\r"))
    return [text[start : start + LINE_MOST] for start in range(0, max(len(text), 1), LINE_MOST)]
