"""When a session should move: when what all gain outweighs the pause, as far as can be foretold."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field

from .company import allows, rooted, takes
from .gpu import Gpu
from .interface import Request
from .session import Session

CONTENTION = 0.5  # how much another session on its GPU slows one down: DGSF's measurements (policies.md §1.3)
MARGIN = 2.0  # the gain must be so many times the pause
LEAST_GAIN = 0.5  # seconds; less is not worth the risk
REST = 5.0  # seconds for which a session that moved is left alone
LEARNING = 0.3  # weight of the newest observation
PAUSE_LEAST = 0.02
REMEMBERED = 4096  # functions; the one that ran longest ago is forgotten first


def slowdown(sessions: int) -> float:
    """By what factor each of so many sessions is slowed down that share a GPU."""
    return 1.0 + CONTENTION * max(0, sessions - 1)


@dataclass
class Benefit:
    """Moves a session when the seconds that all sessions gain exceed twice its pause.

    A function's need is learnt from earlier sessions; of an unknown one it is supposed that it goes on for
    as long as it has lasted, so short ones never move. The pause follows from the bandwidth of earlier moves.
    """

    bandwidth: float = 2.0e9  # in the unit of `Request.memory` a second, until a move was measured
    pending: tuple[Gpu, Gpu] | None = None
    # Seconds of a GPU of its own, by tenant and function: nobody's names change what is known of another's.
    _needs: dict[tuple[str, str], float] = field(default_factory=dict)
    _then: float = -math.inf
    _measured: bool = False

    def on_tick(
        self, now: float, gpus: Collection[Gpu], sessions: Collection[Session], head: Request | None
    ) -> tuple[Session, Gpu] | None:
        self._account(now, sessions)
        moving = {gpu for session in sessions if session.leaving for gpu in (*session.leaving, *session.gpus)}
        gpus = [gpu for gpu in gpus if gpu not in moving]  # what comes of these is not known yet
        if not sessions:
            return None
        least = min((gpu.busy for gpu in gpus if gpu.idle), default=None)
        if moving or (head and (head.portion.affinity or any(takes(head, gpu) for gpu in gpus))):
            head = None  # perhaps it gets its room already, or it is not room that it waits for
        if least is None or (not head and max(gpu.busy for gpu in gpus) < least + 2):
            return None
        crowd = _Crowd(self, sessions, head)
        targets = sorted(gpus, key=lambda gpu: (gpu.busy, gpu.free))
        best: tuple[float, Session, Gpu] | None = None
        for session in sessions:
            if len(session.gpus) > 1 or now < session.moved_at + REST or not session.gpus[0].home:
                continue
            (source,) = session.gpus
            if source in moving:
                continue
            if rooted(session.request, session.gpus):
                continue
            others = (gpu for gpu in targets if gpu is not source)
            target = next((gpu for gpu in others if takes(session.request, gpu)), None)
            if target is None:
                continue
            gain = crowd.relief(session, target) + crowd.room(session)
            net = gain - MARGIN * self.pause(session)
            if net > LEAST_GAIN and (best is None or net > best[0]):
                best = net, session, target
        return best[1:] if best else None

    def on_launch(self, session: Session, now: float) -> Gpu | None:
        return None

    def on_complete(self, session: Session, now: float) -> None:
        name = session.request.tenant, session.request.function
        if name[1]:
            known = self._needs.pop(name, session.done)
            self._needs[name] = known + LEARNING * (session.done - known)
            if len(self._needs) > REMEMBERED:
                del self._needs[next(iter(self._needs))]

    def on_moved(self, session: Session, seconds: float) -> None:
        if seconds > 0:
            speed = session.request.memory / seconds
            self.bandwidth += (LEARNING if self._measured else 1.0) * (speed - self.bandwidth)
            self._measured = True

    def gone(self, gpu: Gpu) -> None:
        pass

    def pause(self, session: Session) -> float:
        """Seconds for which the session would stand still."""
        return PAUSE_LEAST + session.request.memory / self.bandwidth

    def left(self, session: Session) -> float:
        """Seconds for which the session would still go on if it had a GPU for itself."""
        need = self._needs.get((session.request.tenant, session.request.function))
        if need is not None and need > session.done:
            return need - session.done
        return session.done if need is None else 0.25 * session.done

    def _account(self, now: float, sessions: Collection[Session]) -> None:
        then, self._then = self._then, now
        for session in sessions:
            if not session.leaving:
                elapsed = now - max(then, session.since)
                session.done += elapsed / slowdown(max(gpu.busy for gpu in session.gpus))


class _Crowd:
    """The sessions of each GPU at one tick, and how long each has been there."""

    def __init__(self, policy: Benefit, sessions: Collection[Session], head: Request | None) -> None:
        self._left = policy.left
        self._head = head if head and head.devices == 1 else None
        self._on: dict[int, float] = {}  # what the sessions of a GPU have left, added up
        self._wait = math.inf  # of the head, until someone ends who makes room for it
        for session in sessions:
            left = policy.left(session)
            for gpu in session.gpus:
                self._on[gpu.index] = self._on.get(gpu.index, 0.0) + left
                if self._fits_without(session, gpu):
                    self._wait = min(self._wait, left * slowdown(gpu.busy))

    def _fits_without(self, session: Session, gpu: Gpu) -> bool:
        head = self._head
        if not head or not head.labels <= gpu.labels or not allows(head.portion, gpu):
            return False
        if gpu.time + session.request.portion.request < head.portion.request:
            return False
        return gpu.free + session.request.memory >= head.memory

    def relief(self, session: Session, target: Gpu) -> float:
        """What it and those around it gain, less what those at the target lose."""
        (source,) = session.gpus
        left = self._left(session)
        before, after = slowdown(source.busy), slowdown(target.busy + 1)
        around = (self._on[source.index] - left) * (before - slowdown(source.busy - 1))
        lost = self._on.get(target.index, 0.0) * (after - slowdown(target.busy))
        return left * (before - after) + around - lost

    def room(self, session: Session) -> float:
        """How much sooner the head of the queue finds room, if the move makes it."""
        (source,) = session.gpus
        if not self._fits_without(session, source):
            return 0.0
        # It comes in where the session was, so what those around it gain is taken again.
        around = self._on[source.index] - self._left(session)
        return self._wait - around * (slowdown(source.busy) - slowdown(source.busy - 1))
