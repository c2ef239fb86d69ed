"""What is still to be told the GPU server, of each program in as few notes as say it. No I/O."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from gpuferry.specs._generated import control_pb2

Note = control_pb2.InvocationNote
What = control_pb2.InvocationNote.What


@dataclass
class _News:
    """What the GPU server was not told yet of one program."""

    more: int = 0  # invocations that run now and did not then; negative: fewer
    stands: bool = False
    gpu: int | None = None  # to which its memory is to move,
    latest: What | None = None  # and what else was said last


class Notes:
    """Notes for the GPU server, program by program. However slowly they are read, they do not pile up: of an
    invocation that began and ended meanwhile there is nothing to tell.
    """

    def __init__(self) -> None:
        self._news: dict[bytes, _News] = {}
        self._stirred = asyncio.Event()

    def put(self, what: What, program: bytes, gpu: int = 0) -> None:
        """Add a note about a program; it joins, or replaces, those that were not read yet."""
        news = self._news.setdefault(program, _News())
        if what == Note.OVER:
            self._news[program] = _News(latest=what)
        elif what == Note.BEGINS:
            news.more += 1
        elif what == Note.ENDS:
            news.more -= 1
        elif what == Note.STANDS:
            news.stands = True
        elif what == Note.MOVE:
            news.gpu, news.latest = gpu, None
        else:
            news.latest = what
        self._stirred.set()

    async def next(self) -> list[control_pb2.InvocationNote]:
        """Wait for notes. Returns all of one program, the one that has waited longest."""
        while not self._news:
            self._stirred.clear()
            await self._stirred.wait()
        program = next(iter(self._news))
        news = self._news.pop(program)
        notes = [Note(program=program, what=Note.ENDS)] * -news.more
        if news.stands:
            notes.append(Note(program=program, what=Note.STANDS))
        if news.gpu is not None:
            notes.append(Note(program=program, what=Note.MOVE, gpu=news.gpu))
        if news.latest:
            notes.append(Note(program=program, what=news.latest))
        return notes + [Note(program=program, what=Note.BEGINS)] * news.more

    def __len__(self) -> int:
        return len(self._news)
