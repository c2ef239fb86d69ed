"""What every replica is, and a Python file's: frames on a socket to its wrapper."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qsl

from gpuferry.guest.units import exact_size

from ..service.waiting import within
from .deployment import Deployment
from .invocation import Answer, Call, Code, Failed, Lost, NotBegun, Ran
from .logbook import plain
from .process import Process
from .stream import Stream
from .wrapper import HEAD, HEAD_MOST, pack

ENDING_SECONDS = 1.0  # between the end of its socket and that of a process
AT_A_MONITOR = "if it waits for a GPU, `gpuferry session list --waiting` says why"
LITTLE_MEMORY = 64 << 20  # what does not start with less may want more, and its last words rarely say so
_numbers = count(1)
Heard = Callable[[int, str, str], None]
Begins = Callable[[Answer], Stream]


class StartFailed(Exception):
    """A replica did not become ready; the text says why."""


class _Nonsense(EOFError):
    """The process said what nobody understands."""


class Replica(ABC):
    """A process that answers invocations of one revision of a function."""

    LATE: ClassVar[str] = "it was not ready"

    def __init__(self, deployment: Deployment, heard: Heard) -> None:
        self.number = next(_numbers)
        self.deployment = deployment
        self.retiring = False  # it gets no more invocations
        self.ending = False  # the server ends its process
        self.process: Process | None = None
        self.reason: Failed | None = None  # why the server has ended it
        self.program = b""  # by which the GPU server knows its sessions; empty: it uses none
        self._heard = heard
        self._last = ""  # line of its errors

    def hear(self, stream: str, text: str) -> None:
        """A line of its output, or of what the server says of it."""
        if stream == "err" and text.strip():
            self._last = text
        self._heard(self.number, stream, text)

    def never_ready(self, what: str) -> StartFailed:
        """The error of a process that ended too early, with its last words: its log may be nobody's."""
        assert self.process
        if self.reason:
            return StartFailed(self.reason.why)
        words = f": {self._last[:500]}" if self._last else ""
        if 0 < self.deployment.memory < LITTLE_MEMORY:
            words += f"; it may have {exact_size(self.deployment.memory)} of memory (--memory)"
        return StartFailed(f"its process ended before it {what}: {self.process.status}{words}")

    async def start(self, environment: Mapping[str, str]) -> None:
        """Start the process and wait until it is ready. Raises StartFailed; then nothing is left of it."""
        self.program = bytes.fromhex(environment.get("GPUFERRY_PROGRAM", ""))
        try:
            await within(self.deployment.start, self._begin(environment))
        except asyncio.TimeoutError:
            await self.end(0.0)
            why = f"{self.LATE} within {self.deployment.start:g} s"
            raise StartFailed(f"{why}; {AT_A_MONITOR}" if self.program else why) from None
        except OSError as error:
            await self.end(0.0)
            raise StartFailed(f"{error.filename or 'its process'}: {error.strerror or error}") from None
        except BaseException:
            await self.end(0.0)
            raise

    @abstractmethod
    async def _begin(self, environment: Mapping[str, str]) -> None:
        """Start the process and wait until it is ready. Raises StartFailed, OSError."""

    @abstractmethod
    async def invoke(self, number: int, call: Call, begins: Begins) -> Answer | None:
        """Run one invocation. `begins` gets an answer that comes in parts, and says where they go; then None
        is returned after the last. Raises Failed; Lost and NotBegun where the replica is of no more use.
        """

    @abstractmethod
    def cancel(self, number: int) -> None:
        """Tell the handler that the caller of this invocation has gone."""

    @property
    def alive(self) -> bool:
        """Whether its process lives."""
        return self.process is not None and not self.process.gone.is_set()

    def kill(self, reason: Failed | None = None) -> None:
        """End the process now. Its invocations fail with this reason, if they had begun."""
        self.retiring = self.ending = True
        if reason and not self.reason and self.alive:
            self.hear("server", f"it is killed: {reason.why}")
        self.reason = self.reason or reason
        if self.process:
            self.process.kill()

    async def end(self, grace: float) -> None:
        """Let the process end by itself; after `grace` seconds it is killed."""
        self.retiring = self.ending = True
        if self.process:
            await self.process.stop(grace) if grace else await self._killed()

    async def _killed(self) -> None:
        assert self.process
        self.process.kill()
        await self.process.gone.wait()


class PythonReplica(Replica):
    """A file with `handle(request)`; one invocation at a time."""

    def __init__(self, deployment: Deployment, heard: Heard, file: Path) -> None:
        super().__init__(deployment, heard)
        self._file = file
        self._orders: socket.socket | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def _begin(self, environment: Mapping[str, str]) -> None:
        ours, theirs = socket.socketpair()
        orders, ordered = socket.socketpair()
        self._orders = orders
        orders.setblocking(False)
        with theirs, ordered:
            try:
                self.process = Process(
                    {
                        "memory": self.deployment.memory,
                        "socket": theirs.fileno(),
                        "orders": ordered.fileno(),
                        "file": str(self._file),
                        "folder": self.deployment.folder,
                    },
                    environment,
                    self.deployment.python,
                    self.deployment.folder,
                    (theirs.fileno(), ordered.fileno()),
                    self.hear,
                )
            except BaseException:
                ours.close()
                orders.close()
                raise
        self._reader, self._writer = await asyncio.open_unix_connection(sock=ours)
        try:
            said, _ = await self._next(0)
        except Lost as error:
            raise StartFailed(error.why) from None
        except (EOFError, ConnectionError):
            await self.process.gone.wait()
            raise self.never_ready("was ready") from None
        if said.get("say") != "ready":
            raise StartFailed(plain(str(said.get("why", "it says nothing that makes sense"))))

    async def _next(self, most: int) -> tuple[dict[str, Any], bytes]:
        """The next frame. EOFError, ConnectionError: the process is gone, or talks nonsense."""
        assert self._reader
        text_size, body_size = HEAD.unpack(await self._reader.readexactly(HEAD.size))
        if text_size > HEAD_MOST:
            raise _Nonsense
        try:
            head = json.loads(await self._reader.readexactly(text_size))
            if not isinstance(head, dict):
                raise ValueError("no object")
        except (ValueError, RecursionError):
            raise _Nonsense from None
        if body_size > most:
            why = f"the answer has {body_size} bytes, and may have {most}"
            raise Lost(Code.BAD_ANSWER, why, Ran.YES)
        return head, await self._reader.readexactly(body_size) if body_size else b""

    async def invoke(self, number: int, call: Call, begins: Begins) -> Answer | None:
        assert self._writer
        head = {
            "id": number,
            "method": call.method,
            "path": call.path,
            "query": dict(parse_qsl(call.query, keep_blank_values=True)),
            "headers": call.headers,
        }
        begun, stream = False, None
        try:
            # Written whole or not at all as far as the handler is concerned: it begins with a whole frame.
            with contextlib.suppress(ConnectionError, RuntimeError):  # uvloop's, where it is closed already
                self._writer.write(pack(head, call.body))
                await self._writer.drain()
            while True:
                said, body = await self._next(self.deployment.body)
                if said.get("id") != number or (begun and said.get("say") == "begun"):
                    raise _Nonsense
                kind = said.get("say")
                if kind == "begun":
                    begun = True
                elif kind == "begins" and stream is None:
                    stream = begins(self._answer(said, b""))
                elif kind == "part" and stream is not None:
                    await stream.put(body)
                elif kind == "ended" and stream is not None:
                    return None
                else:
                    return self._answer(said, body)
        except (EOFError, ConnectionError) as error:
            await self._lost(error)
            if not begun:
                raise NotBegun from None
            assert self.process
            raise Lost(
                *(
                    (self.reason.code, self.reason.why)
                    if self.reason
                    else (Code.CRASHED, f"the function's process is gone: {self.process.status}")
                ),
                Ran.YES,
            ) from None

    async def _lost(self, error: BaseException) -> None:
        """See that the process is gone whose socket is, or that says what nobody understands."""
        if isinstance(error, _Nonsense):
            self.kill(Failed(Code.BAD_ANSWER, "the function's process broke the protocol", Ran.YES))
        # A process that closed its socket is of no use either. One that is ending should say how.
        assert self.process
        with contextlib.suppress(asyncio.TimeoutError):
            await within(ENDING_SECONDS, self.process.gone.wait())
        await self._killed()

    def _answer(self, said: dict[str, Any], body: bytes) -> Answer:
        if said.get("say") == "raised":
            why, gpu = plain(str(said.get("why", ""))), said.get("gpu", 0)
            trace = "\n".join(map(plain, str(said.get("trace", "")).split("\n")))
            if not isinstance(gpu, int):
                raise _Nonsense
            kind = Lost if gpu or why.startswith("MemoryError") else Failed
            if gpu:
                self.hear("server", f"CUDA's error {gpu} stays as long as its process: that ends")
            raise kind(Code.RAISED, f"the handler raised {why}", Ran.YES, trace=trace)
        try:
            headers = tuple((str(name), str(value)) for name, value in said["headers"])
            return Answer(int(said["status"]), headers, body)
        except (KeyError, TypeError, ValueError, OverflowError):
            raise _Nonsense from None

    def cancel(self, number: int) -> None:
        # Without room for it the process has not read dozens of orders, and would not read this one.
        with contextlib.suppress(OSError):
            if self._orders:
                self._orders.send(json.dumps({"cancel": number}).encode() + b"\n")

    async def end(self, grace: float) -> None:
        self.retiring = self.ending = True
        if self._writer and not self._writer.is_closing():
            self._writer.close()  # it reads the end between two invocations, and ends
        if self.process and grace:
            with contextlib.suppress(asyncio.TimeoutError):
                await within(grace, self.process.gone.wait())
        await super().end(0.0)
        if self._orders:
            self._orders.close()
