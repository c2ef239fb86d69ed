"""What the GPU server hears of invocations, and what it says of where replicas' memory is.

One call over its control plane, beside the sessions of replicas. It carries notes and is never waited for: an
invocation costs no round trip, and without a GPU server there is nobody to tell.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc
import structlog
from gpuferry.guest import endpoint
from gpuferry.specs._generated import control_pb2, control_pb2_grpc

from ..policy.invocations import Limit
from ..service.dial import dial_async
from ..service.tls import Identity, identity_of
from ..service.waiting import cancel_all
from ..settings.common import published_identity
from ..settings.errors import ConfigError
from .config import FunctionsConfig
from .job import Job
from .memory import Gpus, Where
from .notes import Note, Notes, What
from .replica import Replica

AGAIN_SECONDS = (0.5, 2.0)  # between two tries to reach it: at first, at most
FIRST_SECONDS = 3.0  # that a start waits to learn which GPUs there are

log = structlog.get_logger()


@dataclass(frozen=True)
class Way:
    """How the control plane is reached."""

    address: str
    token: str
    identity: Identity | None
    insecure: bool


def way_of(config: FunctionsConfig) -> Way | None:
    """The control plane of the monitor that replicas use; None: it is not known. Raises ConfigError."""
    if config.driver != "guest":
        return None
    try:
        published = endpoint.published()
        sessions = endpoint.find(config.monitor, patient=False)
        found = endpoint.find(config.control, None, "GPUFERRY_CONTROL", patient=False)
    except (endpoint.NoMonitor, OSError):
        return None
    ours = found.address == published.get("GPUFERRY_CONTROL")
    named = ours and not found.source.startswith(("command", "environment"))
    if named and sessions.address not in (published.get("GPUFERRY_MONITOR"), published.get("GPUFERRY_TCP")):
        return None  # replicas go to another one
    token = found.token or sessions.token
    if not token:
        return None
    identity = identity_of(published_identity(published) if ours and not config.tls_cert else config)
    return Way(found.address, token, identity, config.insecure)


class GpuServer:
    """Speaks for the replicas, as long as there is somebody to hear it."""

    def __init__(self, find: Callable[[], Way | None]) -> None:
        """`find`: how the control plane is reached now; None: that is not known. Raises ConfigError."""
        self._find = find
        self.way = find()
        self._running: Counter[bytes] = Counter()  # invocations, by program
        self._notes: Notes | None = None
        self._returns: dict[bytes, list[Callable[[], None]]] = {}
        self._where: dict[bytes, Where] = {}
        self._had: set[bytes] = set()  # programs that have a session, as far as is known
        self._known = asyncio.Event()
        self._heard = False
        self._pause = AGAIN_SECONDS[0] / 2
        self.gpus: Gpus | None = None  # None: nobody has said
        self.on_moved: Callable[[bytes, Where], None] = _ignore
        self.on_lost: Callable[[bytes], None] = _ignore

    # -- what is told

    def begun(self, job: Job) -> None:
        """An invocation is on its way to its replica."""
        if program := self._program_of(job):
            self._running[program] += 1
            self._tell(Note.BEGINS, program)

    def ended(self, job: Job, result: str, seconds: float) -> None:
        """An invocation is over."""
        if job.told and (program := self._program_of(job)):
            self._running -= Counter([program])
            self._tell(Note.ENDS, program)

    def _program_of(self, job: Job) -> bytes:
        return job.place.unit.replica.program if job.place else b""

    def bring(self, replica: Replica) -> None:
        """Tell the GPU server that an invocation of the replica is expected: its memory may return."""
        self._tell(Note.BRING, replica.program)

    def move(self, replica: Replica, gpu: int) -> None:
        """Tell the GPU server that an invocation of the replica is expected on this GPU."""
        self._tell(Note.MOVE, replica.program, gpu)

    def send(self, replica: Replica) -> None:
        """Tell the GPU server that no invocation of the replica is expected: its memory may leave."""
        self._tell(Note.SEND, replica.program)

    def over(self, replica: Replica) -> None:
        """Tell the GPU server that the replica has ended, and forget where its memory was."""
        self._tell(Note.OVER, replica.program)
        self._running.pop(replica.program, None)
        self._where.pop(replica.program, None)
        self._had.discard(replica.program)
        self._released(replica.program)

    def _tell(self, what: What, program: bytes, gpu: int = 0) -> None:
        if self._notes is not None and program:
            self._notes.put(what, program, gpu)

    # -- what is heard

    @property
    def tells(self) -> bool:
        """Whether it is heard: what it has not said of a replica is not so."""
        return self._notes is not None and self._heard

    def where(self, replica: Replica) -> Where | None:
        """Where the replica's memory is; None: it has none, or that is not known."""
        return self._where.get(replica.program)

    def when_back(self, replica: Replica, gpu: int, call: Callable[[], None]) -> None:
        """Call this once its memory is on this GPU, or it is said again that it is on another, or nobody can
        tell any more.
        """
        where = self._where.get(replica.program)
        if self._notes is None or where is None or where[:2] == (gpu, True):
            call()
        else:
            self._returns.setdefault(replica.program, []).append(call)

    async def settled(self) -> None:
        """Wait until it is known which GPUs there are, at most FIRST_SECONDS."""
        if self.way:
            await asyncio.wait([asyncio.ensure_future(self._known.wait())], timeout=FIRST_SECONDS)

    async def run(self) -> None:
        """Speak and hear, again and again, until cancelled."""
        complaint = ""
        while True:
            self._pause = AGAIN_SECONDS[0] if self._heard else min(2 * self._pause, AGAIN_SECONDS[1])
            self._heard = False
            reason = ""
            try:
                if way := self._find():  # a monitor that was started anew has another token
                    self.way = way
                    async with dial_async(way.address, way.identity, way.insecure) as channel:
                        await self._talk(channel, way.token)
                    reason = "it hung up"
            except grpc.aio.AioRpcError as error:
                reason = f"{error.code().name}: {error.details()}"
            except ConfigError as error:
                reason = str(error)
            finally:
                self._silent()
            if reason and (self._heard or reason != complaint):  # when it was heard, the log said so
                complaint = reason
                log.warning(
                    "the GPU server does not hear of invocations",
                    address=self.way and self.way.address,
                    why=reason,
                )
            await asyncio.sleep(self._pause)

    async def _talk(self, channel: grpc.aio.Channel, token: str) -> None:
        self._notes = Notes()
        for program in self._had:
            self._tell(Note.STANDS, program)
        for program, running in self._running.items():
            for _ in range(running):
                self._tell(Note.BEGINS, program)
        metadata = (("authorization", f"Bearer {token}"),)
        call = control_pb2_grpc.MonitorStub(channel).Invocations(metadata=metadata)
        speaking = asyncio.ensure_future(_speak(call, self._notes))
        try:
            async for reply in call:
                self._hear(reply)
        finally:
            await cancel_all([speaking])
            call.cancel()

    def _hear(self, reply: control_pb2.InvocationReply) -> None:
        if not self._heard:
            self._heard = True
            log.info("the GPU server hears of invocations", address=self.way and self.way.address)
        if not reply.program:
            before = self.gpus if self.gpus and reply.more else Gpus({}, False)  # which may come yet
            memory = {gpu.ordinal: gpu.memory for gpu in reply.gpus}
            promised = {gpu.ordinal: gpu.promised for gpu in reply.gpus if gpu.promised}
            usual = max((gpu.usual for gpu in reply.gpus), default=before.usual)
            self.gpus = Gpus(
                {**before.memory, **memory},
                reply.elastic,
                reply.more,
                {**before.promised, **promised},
                usual,
                Limit(
                    reply.allowed or math.inf,
                    reply.sessions if reply.HasField("sessions") else math.inf,
                    reply.gpus_at_once if reply.HasField("gpus_at_once") else math.inf,
                ),
            )
            if self.gpus.memory:
                self._known.set()
            return
        if reply.lost:
            self._had.discard(reply.program)
            self._where.pop(reply.program, None)
            self._released(reply.program)
            self.on_lost(reply.program)
            return
        self._had.add(reply.program)
        where = self._where[reply.program] = Where(reply.gpu, reply.resident, tuple(reply.also))
        if where.resident:
            self._released(reply.program)
        self.on_moved(reply.program, where)

    def _released(self, program: bytes) -> None:
        for call in self._returns.pop(program, ()):
            call()

    def _silent(self) -> None:
        self._notes = None
        self._where.clear()
        for program in list(self._returns):
            self._released(program)


async def _speak(call: Any, notes: Notes) -> None:
    with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):  # who hears the answers learns why
        while True:
            for note in await notes.next():
                await call.write(note)


def _ignore(*_: object) -> None:
    """Do nothing: the default of what is told to others."""
