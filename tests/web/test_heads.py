"""Heads of requests pass as fast as what speaks HTTP takes them, and those that wait are bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from gpuferry.monitor.views.web import heads
from gpuferry.monitor.views.web.heads import HEADS_ONCE, HELD_MOST, Heads

HEAD = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


class Line(asyncio.Transport):
    """A connection, as far as it can be paused and cut."""

    def __init__(self) -> None:
        super().__init__()
        self.reading, self.cut = True, False

    def is_reading(self) -> bool:
        return self.reading

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.cut

    def abort(self) -> None:
        self.cut = True


class Speaker(asyncio.Protocol):
    """Takes so many requests, and pauses reading, as aiohttp does."""

    def __init__(self, room: int) -> None:
        self.room, self.taken = room, 0
        self.line: Line

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, Line)
        self.line = transport

    def data_received(self, data: bytes) -> None:
        assert data == HEAD
        self.taken += 1
        if self.taken >= self.room:
            self.line.pause_reading()


def run(room: int, test: Callable[[Heads, Speaker], Awaitable[None]]) -> None:
    async def main() -> None:
        speaker = Speaker(room)
        passing = Heads(speaker)
        passing.connection_made(Line())
        await test(passing, speaker)
        passing.connection_lost(None)

    asyncio.run(main())


async def rounds(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def _looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "BUSY_SECONDS", 0.0)


def test_none_is_passed_on_while_what_speaks_http_has_enough() -> None:
    """What it did not want it kept all the same, without bound, and copied all of it for each more."""

    async def test(passing: Heads, speaker: Speaker) -> None:
        passing.data_received(HEAD * 100)
        await rounds(100)
        assert speaker.taken == 2
        speaker.room = 7
        speaker.line.resume_reading()
        while speaker.taken < 7:
            await asyncio.sleep(0)
        await rounds(100)
        assert speaker.taken == 7
        assert not speaker.line.cut

    run(2, test)


def test_a_few_are_passed_on_in_each_round() -> None:
    async def test(passing: Heads, speaker: Speaker) -> None:
        passing.data_received(HEAD * 10)
        assert speaker.taken == HEADS_ONCE
        while speaker.taken < 10:
            await asyncio.sleep(0)

    run(1000, test)


def test_who_sends_more_than_anybody_needs_is_cut_off() -> None:
    async def test(passing: Heads, speaker: Speaker) -> None:
        passing.data_received(HEAD * 100)
        passing.data_received(HEAD * (HELD_MOST // len(HEAD)))
        assert speaker.line.cut
        await rounds(10)
        assert speaker.taken <= 2 * HEADS_ONCE

    run(1000, test)
