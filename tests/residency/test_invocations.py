"""Who speaks for which programs, and what is heard of it. Without a monitor."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gpuferry.monitor.residency import invocations as tried
from gpuferry.monitor.residency.books import Entry
from gpuferry.monitor.residency.invocations import Invocations, Speaker, TooMany, Where
from gpuferry.monitor.residency.steward import Steward
from gpuferry.specs._generated import node_pb2

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
    monkeypatch.setattr(steward, "_send_away", send)
    asyncio.run(steward.dismiss(A))
    assert sent == []
    speaker.ends(A)
    monkeypatch.setattr(speaker, "begins", lambda _: None)
    asyncio.run(steward.dismiss(A))
    assert sent == [7]
