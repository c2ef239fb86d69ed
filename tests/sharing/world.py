"""A GPU in a world without chance: sessions that want it, a policy of turns, and a clock that jumps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from gpuferry.monitor.policy.tokens import Client, Rest, Turn, Turns

MS = 10**6
S = 10**9


@dataclass
class Busy:
    """A session that always has something to do while it is there."""

    client: Client
    comes: int = 0
    goes: int = 1 << 62
    overruns: int = 0  # nanoseconds by which its work goes beyond each quota
    lasts: int | None = None  # it has nothing to do after so long, and wants more after `pause`
    pause: int = 0


@dataclass
class World:
    """One token, sessions as above."""

    policy: Turns
    sessions: Iterable[Busy]
    now: int = 0
    turns: list[tuple[int, int, int]] = field(default_factory=list)  # session, begin, end
    idle: int = 0  # nanoseconds in which somebody waited and nobody worked

    def run(self, until: int, looks: Callable[[int], None] = lambda now: None) -> None:
        events: list[tuple[int, int, str]] = []
        busy = {each.client.session: each for each in self.sessions}
        for each in busy.values():
            events += [(each.comes, each.client.session, "come"), (each.goes, each.client.session, "go")]
        here: set[int] = set()
        while self.now < until:
            events.sort()
            while events and events[0][0] <= self.now:
                _, session, what = events.pop(0)
                if what == "come":
                    here.add(session)
                    self.policy.join(busy[session].client, self.now)
                    self.policy.on_arrival(session, self.now)
                elif what == "want" and session in here:
                    self.policy.on_arrival(session, self.now)
                elif what == "go":
                    here.discard(session)
                    self.policy.leave(session, self.now)
            looks(self.now)
            answer = self.policy.next(self.now)
            soonest = min((at for at, _, _ in events), default=until)
            if isinstance(answer, Turn):
                one = busy[answer.session]
                lasts = answer.quota if answer.quota is not None else one.lasts or S
                ended = one.lasts is not None and one.lasts <= lasts
                if ended:
                    lasts = one.lasts or 0
                began = self.now
                self.now += max(1, lasts + (0 if ended else one.overruns))
                self.policy.on_use(answer.session, began, self.now)
                self.policy.on_complete(answer.session, self.now)
                self.turns.append((answer.session, began, self.now))
                if ended and one.pause:
                    events.append((self.now + one.pause, answer.session, "want"))
                else:
                    self.policy.on_arrival(answer.session, self.now)
            elif isinstance(answer, Rest):
                assert answer.until > self.now
                self.idle += min(answer.until, soonest) - self.now
                self.now = min(answer.until, soonest)
            else:
                assert not self.policy.waiting()
                self.now = max(soonest, self.now + 1)

    def share(self, session: int, begin: int, end: int) -> float:
        """What it had of the time between."""
        had = sum(max(0, min(e, end) - max(b, begin)) for s, b, e in self.turns if s == session)
        return had / (end - begin)
