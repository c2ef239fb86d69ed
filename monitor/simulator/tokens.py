"""The time of one GPU, shared by sessions that are always busy, under a policy of turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..policy.sharing import SECOND
from ..policy.tokens import Client, Turn, Turns


@dataclass(frozen=True)
class Busy:
    """A session that has something to do from `begin` to `end` (seconds) without a pause."""

    client: Client
    begin: float
    end: float


def shares(turns: Turns, sessions: Sequence[Busy], spans: Sequence[tuple[float, float]]) -> list[list[float]]:
    """Of each span (seconds), which part of the GPU's time each session had. Kernels are as short as need be:
    whoever has the turn works for all of its quota, or until it is gone.
    """
    had = [[0.0] * len(sessions) for _ in spans]
    changes = sorted({int(t * SECOND) for one in sessions for t in (one.begin, one.end)})
    index = {one.client.session: number for number, one in enumerate(sessions)}
    present: set[int] = set()
    now, last = 0, changes[-1]
    while now < last:
        for one in sessions:
            begin, end, session = int(one.begin * SECOND), int(one.end * SECOND), one.client.session
            if begin <= now < end and session not in present:
                present.add(session)
                turns.join(one.client, now)
                turns.on_arrival(session, now)
            elif now >= end and session in present:
                present.remove(session)
                turns.leave(session, now)
        upcoming = next(moment for moment in changes if moment > now)
        answer = turns.next(now)
        if not isinstance(answer, Turn):
            now = upcoming if answer is None else max(now + 1, min(answer.until, upcoming))
            continue
        until = upcoming if answer.quota is None else min(now + answer.quota, upcoming)
        turns.on_use(answer.session, now, until)
        turns.on_complete(answer.session, until)
        for number, (first, past) in enumerate(spans):
            inside = min(until, int(past * SECOND)) - max(now, int(first * SECOND))
            had[number][index[answer.session]] += max(inside, 0) / ((past - first) * SECOND)
        turns.on_arrival(answer.session, until)
        now = until
    return had
