"""One who invokes functions, over the control plane: what it says, and what it is told."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterable

import grpc
from gpuferry.specs._generated import control_pb2, frames

from ..door.handshake import program_digest
from ..policy.holdings import EVERYTHING, Share
from ..pool.adoption import LATEST_RETURN_SECONDS
from ..residency.invocations import TooMany, Where
from ..residency.steward import Steward
from ..sessions.placement import DeviceRoom

PAUSE_SECONDS = 0.02  # until who has said too much is heard again

Note = control_pb2.InvocationNote


def _bounded(limit: float) -> int | None:
    return None if math.isinf(limit) else int(limit)


def _not_yours(session: int, gpu: int) -> str:
    return "moves are the operator's"


class Listening:
    """One call of Invocations. The latest about each program is told, however slowly it is read."""

    def __init__(
        self,
        steward: Steward,
        tenant: str | None,
        move: Callable[[int, int], str | None],
        may_speak: Callable[[], bool] = lambda: True,
        all_back: Callable[[], bool] = lambda: True,
        rooms: Callable[[], Iterable[DeviceRoom]] = tuple,
        share: Callable[[], Share] = lambda: EVERYTHING,
    ) -> None:
        """`tenant`: whose programs it may speak of; None: those without one, as is the operator's. `move`:
        moves a session to a GPU, or says why not. `may_speak`: whether one more note is heard now.
        `all_back`: whether no session of an earlier monitor is unknown any more. `rooms`: what may be granted
        of each device. `share`: what the caller's sessions may have together.
        """
        self._move = move
        self._may_speak = may_speak
        self._all_back = all_back
        self._rooms = rooms
        self._share = share
        self._steward = steward
        self._tenant = tenant
        self._words: dict[bytes, bytes] = {}  # what the caller calls a program, by its digest
        self._news: dict[bytes, Where | None] = {}
        self._gpus = True  # are to be told
        self._stirred = asyncio.Event()
        self._stirred.set()
        self._sending: dict[bytes, asyncio.Task[None]] = {}
        self._looking: dict[bytes, asyncio.TimerHandle] = {}
        self._speaker = steward.invocations.speaker(self._moved, self._gpus_changed)
        self._over = False
        self.refusal: tuple[grpc.StatusCode, str] | None = None  # why it is not listened to any more

    def _moved(self, program: bytes, where: Where | None) -> None:
        self._news[program] = where
        self._stirred.set()

    def _gpus_changed(self) -> None:
        self._gpus = True
        self._stirred.set()

    async def hear(self, notes: AsyncIterator[control_pb2.InvocationNote]) -> None:
        """Until the caller has said all."""
        try:
            async for note in notes:
                while not self._may_speak():
                    await asyncio.sleep(PAUSE_SECONDS)
                self._hear(note)
        except TooMany as error:
            self.refuse(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        finally:
            self._over = True
            self._stirred.set()

    def refuse(self, code: grpc.StatusCode, text: str) -> None:
        """End the call with this status, and hear nothing more of its caller."""
        self.refusal, self._over = (code, text), True
        self._stirred.set()

    def _hear(self, note: control_pb2.InvocationNote) -> None:
        if len(note.program) != frames.PROGRAM_SIZE:
            raise TooMany(f"program: {frames.PROGRAM_SIZE} bytes are wanted")
        program = program_digest(note.program, self._tenant or "", self._tenant is not None)
        if note.what == Note.ENDS:
            self._speaker.ends(program)
        elif note.what == Note.OVER:
            self._forget(program)
        else:
            self._words[program] = note.program  # which it hears of at once
            self._begin(program, note)

    def _begin(self, program: bytes, note: control_pb2.InvocationNote) -> None:
        """It is invoked here, or is going to be."""
        self._speaker.know(program)
        if note.what == Note.BEGINS:
            self._speaker.begins(program)
            self._steward.expect(program)
        elif note.what == Note.BRING:
            self._steward.expect(program)
        elif note.what == Note.MOVE:
            self._steward.move(program, note.gpu, self._move if self._tenant is None else _not_yours)
        elif note.what == Note.STANDS:
            self._look_later(program)
        elif note.what == Note.SEND:
            self._send(program)

    def _forget(self, program: bytes) -> None:
        self._speaker.over(program)
        self._words.pop(program, None)
        self._news.pop(program, None)
        if timer := self._looking.pop(program, None):
            timer.cancel()

    def _send(self, program: bytes) -> None:
        if program not in self._sending:
            task = asyncio.ensure_future(self._steward.dismiss(program))
            self._sending[program] = task
            task.add_done_callback(lambda _: self._sending.pop(program, None))

    def _look_later(self, program: bytes) -> None:
        """Once all API servers of an earlier monitor have come back that are going to."""
        if program not in self._looking:
            loop = asyncio.get_running_loop()
            self._looking[program] = loop.call_later(LATEST_RETURN_SECONDS, self._look, program)

    def _look(self, program: bytes) -> None:
        del self._looking[program]
        if not self._all_back():
            self._look_later(program)
        elif not self._steward.invocations.has(program):
            self._moved(program, None)

    async def replies(self) -> AsyncIterator[control_pb2.InvocationReply]:
        """What the caller is told, until it has said all, or is not listened to."""
        while not self._over:
            await self._stirred.wait()
            self._stirred.clear()
            if self._gpus:
                self._gpus = False
                share = self._share()
                yield control_pb2.InvocationReply(
                    gpus=self._told_of_gpus(),
                    elastic=self._steward.elastic,
                    more=self._steward.expects_more,
                    allowed=_bounded(share.memory),
                    sessions=_bounded(share.sessions),
                    gpus_at_once=_bounded(share.gpus),
                )
            news, self._news = self._news, {}
            for program, where in news.items():
                if not (word := self._words.get(program)):
                    continue
                if where:
                    yield control_pb2.InvocationReply(
                        program=word, gpu=where.gpu, resident=where.resident, also=where.also
                    )
                else:
                    yield control_pb2.InvocationReply(program=word, lost=True)

    def _told_of_gpus(self) -> list[control_pb2.InvocationGpu]:
        rooms = {room.ordinal: room for room in self._rooms()}
        gpus = []
        for ordinal, memory in sorted(self._steward.gpus().items()):
            gpu = control_pb2.InvocationGpu(ordinal=ordinal, memory=memory)
            if room := rooms.get(ordinal):
                gpu.promised, gpu.usual = room.grantable, room.default_quota
            gpus.append(gpu)
        return gpus

    def close(self) -> None:
        """The call is over: nobody speaks for its programs."""
        self._speaker.close()
        for timer in self._looking.values():
            timer.cancel()
