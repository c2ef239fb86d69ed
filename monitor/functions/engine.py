"""Invocations: accepted, scheduled, run, and answered once."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Collection, Sequence
from functools import partial
from itertools import count

import structlog
from gpuferry.guest.units import exact_size

from ..policy.invocations import Bring, Decision, End, Refuse, Run, Send, Start
from .deployment import Deployment
from .fleet import Ending, Fleet, Function, Place, Unit
from .invocation import Answer, Call, Code, Failed, Lost, NotBegun, Ran
from .job import Job, Observer, State
from .memory import Gpus, Memory, Where
from .replica import StartFailed
from .schedule import Schedule
from .stream import Stream

TRIES = 3  # of an invocation whose replicas were gone before it began
RETRY_LEAST, RETRY_MOST = 1.0, 60.0  # seconds that a caller is told to wait

log = structlog.get_logger()


class Engine:
    """Runs invocations on replicas, in the order of a policy."""

    def __init__(
        self, schedule: Schedule, fleet: Fleet, memory: Memory, queue: int, observers: Sequence[Observer]
    ) -> None:
        """`queue`: how many may wait, of all functions."""
        self._memory = memory
        self._schedule = schedule
        self._fleet = fleet
        self._queue = queue
        self._observers = observers
        self._jobs: dict[int, Job] = {}
        self._numbers = count(1)
        self._closing = self._aborted = False
        self._taken: Gpus | None = None  # of which the policy knows
        self._none = asyncio.Event()
        self._none.set()
        fleet.tell(self._lost)

    def __len__(self) -> int:
        return len(self._jobs)

    async def invoke(self, function: Function, call: Call) -> Answer:
        """The function's answer. Raises Failed. Cancelled: the caller has gone."""
        self._admit(function)
        loop = asyncio.get_running_loop()
        job = Job(next(self._numbers), function, call, loop.create_future())
        self._jobs[job.number] = job
        self._none.clear()
        self._wait(job)
        self.pump()
        try:
            return await job.future
        except asyncio.CancelledError:
            self._abandon(job)
            raise

    def _wait(self, job: Job, again: bool = False) -> None:
        """Queue a job, with a timer for what is left of `--wait` since it arrived. `again`: before all
        others.
        """
        job.function.waiting += 1
        if job.timer:  # of the time before, which would end one that runs
            job.timer.cancel()
        left = job.arrived + job.function.deployment.wait - time.monotonic()
        job.timer = asyncio.get_running_loop().call_later(max(left, 0.0), self._waited, job)
        self._schedule.arrive(job.number, job.function.name, again=again)

    def _admit(self, function: Function) -> None:
        if self._closing:
            raise _ends(Ran.NO)
        if function.removed:  # while its caller sent the body; another one may have its name by now
            raise _removed(function)
        wanted = function.deployment
        free = max(wanted.most * wanted.concurrency - function.running, 0)
        everybody = len(self._schedule)
        if function.waiting >= wanted.queue + free or everybody >= self._queue:
            ahead = function.waiting / (wanted.most * wanted.concurrency)
            pause = min(max(ahead * function.seconds, RETRY_LEAST), RETRY_MOST)
            why = f"{function.waiting} invocations of {function.name} wait already"
            if everybody >= self._queue:
                why = f"{everybody} invocations of all functions wait already"
            raise Failed(Code.QUEUE_FULL, why, retry_after=pause)

    # -- its caller does not wait any more

    def _waited(self, job: Job) -> None:
        why = f"no replica was free for it within {job.function.deployment.wait:g} s"
        self._fail(job, Failed(Code.WAITED, why, retry_after=RETRY_LEAST))
        if job.state is State.WAITING:
            self._withdraw(job)

    def _abandon(self, job: Job) -> None:
        """Cancel a job whose caller has gone: withdraw it from the queue, or tell its replica."""
        if job.state is State.OVER or job.gone:
            return
        job.gone = True
        job.future.cancel()
        if job.stream:
            job.stream.leave()
        if job.state is State.WAITING:
            self._withdraw(job)
        elif job.state is State.RUNNING and job.place:
            self._schedule.cancel(job.number)
            deployment = job.place.unit.replica.deployment
            if deployment.cancel == "kill":
                loop = asyncio.get_running_loop()
                job.timer = loop.call_later(deployment.grace, self._kill_abandoned, job)
            job.place.unit.replica.cancel(job.number)

    def _kill_abandoned(self, job: Job) -> None:
        if job.state is State.RUNNING and job.place:
            self._stop(job, job.place, Failed(Code.CANCELLED, "its caller has gone", Ran.YES))

    def _withdraw(self, job: Job) -> None:
        self._schedule.cancel(job.number)
        self._over(job, Code.WAITED.value if not job.future.cancelled() else Code.CANCELLED.value)
        self.pump()

    # -- decisions

    def pump(self) -> None:
        """Do what the policy decides."""
        while decisions := list(self._schedule.decisions()):
            # Who runs elsewhere next moves there: it neither leaves nor ends before.
            moving = {one.replica for one in decisions if isinstance(one, Run) and one.start is Start.RETURN}
            for decision in decisions:
                self._carry_out(decision, moving)

    def _carry_out(self, decision: Decision, moving: Collection[int | None]) -> None:
        """Do what one decision says. Those of `moving` go straight to their next GPU."""
        if isinstance(decision, Run):
            job = self._jobs[decision.invocation.id]
            place = None if decision.replica is None else self._fleet.places[decision.replica]
            job.function.waiting -= 1
            job.function.running += 1
            job.state, job.place = State.STARTING, place
            gpu = decision.gpu
            if place:
                gpu = self._take_along(place, gpu)
                place.job = job
            self._fleet.begin(self._run(job, place, gpu, decision.start is Start.RETURN))
        elif isinstance(decision, Refuse):
            if refused := self._jobs.get(decision.invocation.id):  # else its caller has left since
                self._refuse(refused, decision.reason)
        elif isinstance(decision, End) and (ended := self._fleet.places.get(decision.replica)):
            self._fleet.end(ended)
        elif isinstance(decision, Bring) and (brought := self._fleet.places.get(decision.replica)):
            self._bring(brought, decision.gpu)
        elif isinstance(decision, Send) and decision.replica not in moving:
            self._send(decision.replica)

    def _refuse(self, job: Job, reason: str) -> None:
        code = Code.REMOVED if job.function.removed else Code.REFUSED
        self._fail(job, Failed(code, reason, retry_after=RETRY_LEAST))
        self._over(job, code.value)

    def _bring(self, place: Place, gpu: int) -> None:
        self._take_along(place, gpu)
        self._memory.bring(place.unit.replica)

    def _take_along(self, place: Place, gpu: int) -> int:
        """Move an idle place to this GPU, and with it all of its replica, unless that has several GPUs or
        others of it run where it is. Returns where it is then.
        """
        unit = place.unit
        stays = unit.replica.deployment.gpus > 1 or any(one.job for one in unit.places)
        if unit.gpu != gpu and not stays:
            self._memory.move(unit.replica, gpu)
            unit.gpu = gpu
        place.gpu = gpu
        return unit.gpu

    def _send(self, number: int) -> None:
        """Carry out Send: the replica's memory leaves its GPU. Where that frees no room for others, or it
        would stay, the replica ends.
        """
        place = self._fleet.places.get(number)
        if place is None:
            return
        place.gpu = None
        deployment, gpus = place.unit.replica.deployment, self._memory.gpus
        frees_nothing = gpus and not gpus.elastic and deployment.gpu_memory
        if frees_nothing or deployment.gpus > 1:
            self._fleet.end(place)
            self._schedule.lose(place.number)
        else:
            self._memory.send(place.unit.replica)

    def why_never(self, wanted: Deployment) -> str | None:
        """Why no GPU could ever have a replica of this deployment; None: one could, or nobody knows them."""
        gpus = self._memory.gpus
        if not gpus or not gpus.memory or gpus.more:
            return None
        if wanted.gpus > len(gpus.memory):
            return f"gpus: {wanted.gpus} are asked for, and the GPU server has {len(gpus.memory)}"
        if wanted.gpu_memory > (most := max(gpus.memory.values())):
            wants, has = exact_size(wanted.gpu_memory), exact_size(most)
            return f"gpu_memory: {wants} fit on no GPU: the largest has {has} for programs"
        if (asked := wanted.gpu_memory * max(wanted.gpus, 1)) > gpus.limit.memory:
            wants, has = exact_size(asked), exact_size(int(gpus.limit.memory))
            return f"gpu_memory: {wants} are asked for, and the GPU server grants this tenant {has}"
        if max(wanted.gpus, 1) > gpus.limit.gpus:
            return f"gpus: {wanted.gpus} are asked for, and this tenant may have {gpus.limit.gpus:g} at once"
        return None

    def take_gpus(self) -> None:
        """Tell the policy which GPUs there are. The first time every replica ends with its last invocation:
        it was started for none of them.
        """
        gpus, known = self._memory.gpus, self._schedule.known
        if not gpus or not gpus.memory or gpus == self._taken:
            return
        self._taken = gpus
        self._schedule.take(gpus.memory, gpus.promised, gpus.usual, gpus.limit)
        if not known:
            self._wait_anew()
        for unit in self._fleet.units():
            if where := self._memory.where(unit.replica):
                self.moved(unit.replica.program, where)  # perhaps to one that was not known then
            if not known or unit.gpu not in gpus.memory:
                self._fleet.retire(unit)

    def _wait_anew(self) -> None:
        """Tell a policy that has begun what waits."""
        for job in self._jobs.values():
            if job.state is State.WAITING:
                self._schedule.arrive(job.number, job.function.name)

    def moved(self, program: bytes, where: Where) -> None:
        """A replica's memory is there now, whoever has moved it."""
        gpu = where.gpu if where.resident and where.gpu in self._schedule.gpus else None
        for place in self._fleet.places.values():
            if place.unit.replica.program == program and self._schedule.known:
                self._schedule.uses_gpu(place.unit.function.name, True)
                place.unit.gpu = where.gpu
                if place.job is None and (place.gpu, place.also) != (gpu, where.also):
                    place.gpu, place.also = gpu, where.also
                    self._schedule.resident(place.number, gpu, where.also)

    def session_lost(self, program: bytes) -> None:
        """A replica's API server died: what it had on the GPU is gone, and it cannot know how to go on."""
        for unit in [unit for unit in self._fleet.units() if unit.replica.program == program]:
            unit.replica.hear("server", "its API server died, and with it what it had on the GPU: it ends")
            self._fleet.retire(unit)

    async def _run(self, job: Job, place: Place | None, gpu: int, returns: bool) -> None:
        result, seconds, again = "ok", 0.0, False
        try:
            if place is None:
                place = await self._start(job, gpu)
                job.cold = not place.joined
            if returns:
                self._memory.bring(place.unit.replica)
                self._memory.when_back(place.unit.replica, gpu, partial(self._enter, job, place))
            else:
                self._enter(job, place)
            if not job.wanted:  # its caller has gone, or was told that it took too long
                gone = job.future.cancelled()
                raise Failed(Code.CANCELLED if gone else Code.WAITED, "nobody waits for it")
            job.began = time.monotonic()
            answer = await self._invoke(job, place)
            if answer and not job.future.done():
                job.future.set_result(answer)
            if job.stream:
                if job.gone:
                    raise Failed(Code.CANCELLED, "its caller has gone", Ran.YES)
                job.stream.finish()
        except NotBegun:
            job.tries += 1
            again = job.wanted and job.tries < TRIES and not (self._aborted or job.function.removed)
            lost = Failed(Code.CRASHED, "its replicas were gone before it began", retry_after=RETRY_LEAST)
            if self._aborted:
                lost = _ends(Ran.NO)
            elif job.function.removed:
                lost = _removed(job.function)
            result = (Code.CANCELLED if job.gone else lost.code).value
            if not again:
                self._fail(job, lost)
        except Failed as error:
            told = error.code in (Code.RAISED, Code.BAD_ANSWER)  # as what is cancelled may end
            result = (Code.CANCELLED if job.gone and (job.stream or told) else error.code).value
            if isinstance(error, Lost) and place:
                place.unit.replica.retiring = True
            self._fail(job, error)
        except asyncio.CancelledError:
            result = Code.SHUTTING_DOWN.value
            self._fail(job, _ends(Ran.UNKNOWN if job.began else Ran.NO))
        except Exception:
            log.exception(
                "an invocation failed for a reason that nobody thought of", function=job.function.name
            )
            result = Code.DEFECT.value
            ran = Ran.UNKNOWN if job.began else Ran.NO
            self._fail(job, Failed(Code.DEFECT, "the function server failed; its log says more", ran))
            if place:
                place.unit.replica.kill()
        if job.began:
            seconds = time.monotonic() - job.began
        job.function.running -= 1
        if place:
            self._enter(job, place)
        self._schedule.complete(job.number, failed=result != "ok")
        if place:
            if result == "ok" and self._memory.tells and not self._memory.where(place.unit.replica):
                self._schedule.uses_gpu(job.function.name, False)
            self._leave(place)
        if again:
            self._again(job)
        else:
            self._over(job, result, seconds)
        self.pump()

    def _enter(self, job: Job, place: Place) -> None:
        """Tell the policy that the job's execution begins: its replica's memory is where it should be."""
        if not job.entered:
            job.entered = True
            self._schedule.begin(job.number, place.number)

    async def _start(self, job: Job, gpu: int) -> Place:
        wanted = job.function.deployment
        try:
            place = await self._fleet.obtain(job.function, gpu)
        except Ending:
            raise _ends(Ran.NO) from None
        except StartFailed as error:
            if job.function.removed:  # and with it its file
                raise _removed(job.function) from None
            if job.function.deployment is not wanted:  # and the file of the one before is gone
                raise NotBegun from None
            why = f"no replica of {job.function.name} could be started: {error}"
            raise Failed(Code.NO_START, why, retry_after=RETRY_LEAST) from None
        place.job, job.place, place.gpu = job, place, gpu
        return place

    def _begins(self, job: Job, answer: Answer) -> Stream:
        """Give the caller an answer that comes in parts, before its parts are there."""
        stream = job.stream = Stream(partial(self._abandon, job))
        if job.future.done():
            stream.leave()
        else:
            job.future.set_result(dataclasses.replace(answer, cold=job.cold, stream=stream))
        return stream

    async def _invoke(self, job: Job, place: Place) -> Answer | None:
        """Run it, within its time. None: its answer came in parts."""
        replica = place.unit.replica
        if not replica.alive or replica.retiring:
            raise NotBegun
        if job.timer:
            job.timer.cancel()
        job.state = State.RUNNING
        loop = asyncio.get_running_loop()
        overdue = loop.call_later(replica.deployment.timeout, self._overdue, job, place)
        job.told = True
        for observer in self._observers:
            observer.begun(job)
        work = replica.invoke(job.number, job.call, partial(self._begins, job))
        try:
            if replica.deployment.command:
                job.running = asyncio.ensure_future(work)
                answer = await job.running
            else:
                answer = await work
            return answer and dataclasses.replace(answer, cold=job.cold)
        except NotBegun:
            if replica.reason and replica.reason.code is Code.TIMEOUT:
                raise Lost(Code.TIMEOUT, replica.reason.why) from None
            raise
        except asyncio.CancelledError:
            if not (job.running and job.running.cancelled()):
                raise
            if job.gone:
                raise Failed(Code.CANCELLED, "its caller has gone", Ran.UNKNOWN) from None
            raise _too_long(job, Ran.UNKNOWN) from None
        finally:
            overdue.cancel()

    def _overdue(self, job: Job, place: Place) -> None:
        """Fail a job that ran longer than `--timeout`, and stop its replica."""
        if job.stream:  # whose caller may not be reading
            self._fail(job, _too_long(job, Ran.YES))
        self._stop(job, place, _too_long(job, Ran.YES))

    def _stop(self, job: Job, place: Place, why: Failed) -> None:
        """End what runs. A handler cannot be stopped but with its process; others may be in that."""
        replica = place.unit.replica
        if replica.deployment.concurrency == 1:
            replica.kill(why)
        elif job.running:
            self._fleet.retire(place.unit)
            job.running.cancel()

    def _leave(self, place: Place) -> None:
        """The place is free again, or no more."""
        place.job, place.idle_since = None, time.monotonic()
        if not self._fleet.usable(place):
            self._fleet.retire(place.unit)
        elif where := self._memory.where(place.unit.replica):
            self.moved(place.unit.replica.program, where)

    def introduce(self, unit: Unit) -> None:
        """Have the GPU server say where the replica's memory is, of which no invocation has told it: it may
        have loaded what it needs at its start.
        """
        self._memory.bring(unit.replica)

    def _lost(self, place: Place) -> None:
        """An idle place is gone."""
        self._schedule.lose(place.number)
        asyncio.get_running_loop().call_soon(self.pump)

    def _again(self, job: Job) -> None:
        job.state, job.place, job.cold, job.began = State.WAITING, None, False, 0.0
        job.told = job.entered = False
        self._wait(job, again=True)

    def _fail(self, job: Job, error: Failed) -> None:
        if job.stream:
            if not job.gone and job.place and job.stream.unfinished:
                job.place.unit.replica.hear("server", f"an answer broke off: {error.why}")
            job.stream.finish(error)
        elif not job.future.done():
            job.future.set_exception(error)
            job.future.exception()  # its caller may be about to leave, and never look

    def _over(self, job: Job, result: str, seconds: float = 0.0) -> None:
        if job.timer:
            job.timer.cancel()
        if job.state is State.WAITING:
            job.function.waiting -= 1
        job.state = State.OVER
        if seconds and result == "ok":
            known = job.function.seconds
            job.function.seconds = seconds if not known else known + 0.1 * (seconds - known)
        del self._jobs[job.number]
        if not self._jobs:
            self._none.set()
        for observer in self._observers:
            observer.ended(job, result, seconds)

    # -- the end

    def close(self) -> None:
        """Accept no more."""
        self._closing = True

    def abort(self) -> None:
        """Give up what waits: nothing begins any more. Break off what is answered in parts."""
        self._aborted = True
        for job in list(self._jobs.values()):
            if job.state is State.WAITING:
                self._fail(job, _ends(Ran.NO))
                self._schedule.cancel(job.number)
                self._over(job, Code.SHUTTING_DOWN.value)
            elif job.stream:  # whose caller may not be reading
                self._fail(job, _ends(Ran.YES))

    async def drained(self) -> None:
        """Wait until all accepted invocations have ended."""
        await self._none.wait()


def _ends(ran: Ran) -> Failed:
    return Failed(Code.SHUTTING_DOWN, "the function server ends", ran, retry_after=RETRY_LEAST)


def _removed(function: Function) -> Failed:
    return Failed(Code.REMOVED, f"function {function.name} was removed")


def _too_long(job: Job, ran: Ran) -> Failed:
    limit = job.function.deployment.timeout
    return Failed(Code.TIMEOUT, f"the handler took longer than {limit:g} s", ran)
