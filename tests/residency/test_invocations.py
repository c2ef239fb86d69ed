"""Who speaks for which programs, and what is heard of it. Without a monitor."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gpuferry.monitor.door.handshake import program_digest
from gpuferry.monitor.residency import invocations as tried
from gpuferry.monitor.residency.books import Entry
from gpuferry.monitor.residency.invocations import Invocations, Speaker, TooMany, Where
from gpuferry.monitor.residency.steward import Steward
from gpuferry.monitor.views import invocations as views
from gpuferry.monitor.views.invocations import Listening
from gpuferry.specs._generated import node_pb2
from gpuferry.specs._generated.control_pb2 import InvocationNote as Note

GIB = 1 << 30

A, B = b"a", b"b"


class Heard:
    """What one speaker is told."""

    def __init__(self, invocations: Invocations) -> None:
        self.moves: list[tuple[bytes, Where | None]] = []
        self.gpus = 0
        self.speaker: Speaker = invocations.speaker(lambda *move: self.moves.append(move), self._changed)

    def _changed(self) -> None:
        self.gpus += 1


def test_nobody_speaks_for_a_program_that_was_not_named() -> None:
    books = Invocations()
    one = Heard(books).speaker
    assert books.runs(A) is None
    one.begins(A)
    assert (books.runs(A), books.runs(B)) == (True, None)
    one.begins(A)
    one.ends(A)
    assert books.runs(A)
    one.ends(A)
    assert books.runs(A) is False
    one.ends(A)  # once too often
    one.begins(A)
    assert books.runs(A)
    one.over(A)
    assert books.runs(A) is None


def test_who_hangs_up_leaves_nothing_running() -> None:
    books = Invocations()
    one, other = Heard(books).speaker, Heard(books).speaker
    one.begins(A)
    one.begins(B)
    other.begins(B)
    one.close()
    assert (books.runs(A), books.runs(B)) == (None, True)
    other.close()
    assert books.runs(B) is None


def test_moves_are_told_to_who_speaks_for_the_program() -> None:
    books = Invocations()
    one, other = Heard(books), Heard(books)
    books.is_at(A, Where(1, True))
    one.speaker.know(A)  # what is so already is told at once
    books.is_at(A, Where(1, True))
    books.is_at(A, Where(1, False))
    books.is_gone(A)
    books.is_at(A, Where(1, False))
    assert one.moves == [(A, Where(1, True)), (A, Where(1, False)), (A, Where(1, False))]
    books.is_gone(A, lost=True)
    books.is_gone(A, lost=True)
    assert one.moves[3:] == [(A, None)]
    assert other.moves == []
    books.gpus_changed()
    assert (one.gpus, other.gpus) == (1, 1)


def test_programs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tried, "PROGRAMS_MOST", 1)
    one = Heard(Invocations()).speaker
    one.begins(A)
    with pytest.raises(TooMany):
        one.begins(B)
    one.over(A)
    one.begins(B)


async def said(*notes: Note) -> AsyncIterator[Note]:
    for note in notes:
        yield note


def test_what_is_said_of_programs_that_were_not_named_takes_no_memory(tmp_path: Path) -> None:
    async def main() -> None:
        listening = Listening(Steward(1.0, 0, 0, tmp_path), "a", lambda *_: None)
        for what in (Note.ENDS, Note.OVER):
            await listening.hear(said(*(Note(program=bytes([n] * 32), what=what) for n in range(100))))
        assert not listening._words
        stands = Note(program=bytes(32), what=Note.STANDS)
        await listening.hear(said(*[stands] * 100))
        assert len(listening._looking) == len(listening._words) == 1
        await listening.hear(said(Note(program=bytes(32), what=Note.OVER)))
        assert not listening._looking
        assert not listening._words
        listening.close()

    asyncio.run(main())


def test_nobody_is_told_of_a_loss_while_api_servers_may_yet_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replicas were ended after 30 s, whose API servers had two minutes to come back to the next monitor."""
    back: list[bool] = []
    monkeypatch.setattr(views, "LATEST_RETURN_SECONDS", 0.001)

    async def main() -> None:
        steward, looks = Steward(1.0, 0, 0, tmp_path), 0

        def all_back() -> bool:
            nonlocal looks
            looks += 1
            back.append(bool(listening._news))
            return looks == 3

        listening = Listening(steward, "a", lambda *_: None, all_back=all_back)
        await listening.hear(said(Note(program=bytes(32), what=Note.STANDS)))
        while not listening._news:
            await asyncio.sleep(0.001)
        listening.close()

    asyncio.run(asyncio.wait_for(main(), 30))
    assert back == [False] * 3


def test_a_tenant_speaks_of_its_own_programs(tmp_path: Path) -> None:
    """Whatever it knows of another's, and whatever it says."""

    async def main() -> None:
        steward = Steward(1.0, 0, 0, tmp_path)
        word, begun = bytes(32), list[str]()
        other, operators = program_digest(word, "b", True), program_digest(word, "", False)
        mine = program_digest(word, "a", True)
        steward.invocations.is_at(other, Where(0, True))
        listening = Listening(steward, "a", lambda *_: begun.append("moved"))
        for what in (Note.BEGINS, Note.BRING, Note.SEND, Note.MOVE, Note.STANDS):
            await listening.hear(said(Note(program=word, what=what, gpu=1)))
        assert steward.invocations.runs(mine)
        assert steward.invocations.runs(other) is steward.invocations.runs(operators) is None
        assert steward.invocations.has(other)
        assert not begun
        assert not listening._news
        listening.close()
        assert steward.invocations.runs(mine) is None

    asyncio.run(main())


def test_who_says_too_much_is_heard_later(tmp_path: Path) -> None:
    async def main() -> None:
        steward, may = Steward(1.0, 0, 0, tmp_path), [True, False, False, True]
        listening = Listening(steward, "a", lambda *_: None, lambda: may.pop(0))
        notes = [Note(program=bytes([n] * 32), what=Note.BEGINS) for n in range(2)]
        hearing = asyncio.ensure_future(listening.hear(said(*notes)))
        await asyncio.sleep(0)
        assert len(listening._words) == 1
        await hearing
        assert len(listening._words) == 2
        assert not may
        listening.close()

    asyncio.run(main())


def test_who_begins_while_it_is_about_to_be_sent_away_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A policy sent it away between two invocations; the next began before that was carried out."""
    steward = Steward(2.0, GIB, 0, tmp_path)
    steward.grantable(0, GIB)
    speaker = Heard(steward.invocations).speaker
    sent = []

    async def begins(_: float) -> None:
        speaker.begins(A)

    async def send(entry: Entry) -> None:
        sent.append(entry.session)

    server: Any = SimpleNamespace(key=1, devices=(0,), refresh_stats=begins)
    steward.begin(server, node_pb2.Grant(session=7, memory_quota=GIB, program_id=A))
    monkeypatch.setattr(steward.transit, "send_away", send)
    asyncio.run(steward.dismiss(A))
    assert sent == []
    speaker.ends(A)
    monkeypatch.setattr(speaker, "begins", lambda _: None)
    asyncio.run(steward.dismiss(A))
    assert sent == [7]
