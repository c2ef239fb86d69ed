"""What is still to be told the GPU server, of each program in as few notes as say it. No I/O."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from gpuferry.specs._generated import control_pb2

Note = control_pb2.InvocationNote
What = control_pb2.InvocationNote.What


@dataclass
class _News:
    """Of one program, since it was told of last."""

    more: int = 0  # invocations that run now and did not then; negative: fewer
    latest: tuple[What, int] | None = None  # of all else, and its GPU


class Notes:
    """In the order of programs. However slowly they are heard, a program's are as many as it has invocations:
    of one that began and ended meanwhile there is nothing to tell.
    """

    def __init__(self) -> None:
        self._news: dict[bytes, _News] = {}
        self._stirred = asyncio.Event()

    def put(self, what: What, program: bytes, gpu: int = 0) -> None:
        """Let this be told."""
        news = self._news.setdefault(program, _News())
        if what == Note.OVER:
            news.more, news.latest = 0, (what, gpu)
        elif what == Note.BEGINS:
            news.more += 1
        elif what == Note.ENDS:
            news.more -= 1
        else:
            news.latest = what, gpu
        self._stirred.set()

    async def next(self) -> list[control_pb2.InvocationNote]:
        """All of the program of which there has been something to tell for longest, once there is one."""
        while not self._news:
            self._stirred.clear()
            await self._stirred.wait()
        program = next(iter(self._news))
        news = self._news.pop(program)
        notes = [Note(program=program, what=Note.ENDS)] * -news.more
        if news.latest:
            what, gpu = news.latest
            notes.append(Note(program=program, what=what, gpu=gpu))
        return notes + [Note(program=program, what=Note.BEGINS)] * news.more

    def __len__(self) -> int:
        return len(self._news)
