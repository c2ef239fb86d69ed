"""The arbiter of one GPU: who has its tokens, since when, and until when. No I/O, and no clock of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ..policy.tokens import Client, Rest, Turns


class Voice(Protocol):
    """Hears what an arbiter decides. A key names an API server."""

    def go(self, key: int, quota: int | None, now: int) -> None:
        """Tell an API server that it has a turn of `quota` nanoseconds, counted from `begin`."""

    def stop(self, key: int) -> None:
        """Tell an API server to end its turn as soon as its device is idle."""

    def taken(self, key: int, now: int) -> None:
        """Tell an API server that its turn is over, although work of it may still run."""

    def wanted(self, key: int, others: bool) -> None:
        """Whether others wait for the turn that it has."""

    def soon(self, key: int) -> None:
        """Announce that this API server will probably have the next turn."""


@dataclass
class Holding:
    """A turn that somebody has."""

    charged: int  # up to here its use is in the policy's books
    quota: int | None
    until: int | None = None  # when the quota is over
    stopped: int | None = None  # since when it shall end
    wanted: bool = False


class Use(NamedTuple):
    """What one API server has had of a GPU."""

    key: int
    used: int  # nanoseconds of the window
    total: int  # nanoseconds since it came
    turns: int
    holds: bool
    waits: int  # nanoseconds since it asked; 0: it does not wait
    overrun: bool  # what it began goes on although its turn was taken


class Arbiter:
    """Hands the tokens of one GPU out as a policy says, and charges what is used by its own reckoning."""

    def __init__(self, policy: Turns, tokens: int, overrun: int, voice: Voice) -> None:
        """`overrun`: nanoseconds that work which cannot be stopped may hold up the next turn."""
        self._policy, self._tokens, self._overrun, self._voice = policy, tokens, overrun, voice
        self._holding: dict[int, Holding] = {}
        self._over: dict[int, int] = {}  # whose turn was taken, and until when its use is charged
        self._asked: dict[int, int] = {}  # since when they wait
        self._totals: dict[int, list[int]] = {}  # nanoseconds, turns
        self._rest: int | None = None  # nobody may go before that
        self.handed = 0  # turns that began, in all
        self.overruns = 0  # turns that were taken, in all
        self.waited = 0  # nanoseconds for which somebody waited for a turn that it got, in all

    # -- what happens

    def join(self, client: Client, now: int) -> None:
        """A session may ask; or what it may have has changed."""
        self._policy.join(client, now)
        self._totals.setdefault(client.session, [0, 0])

    def leave(self, key: int, now: int) -> None:
        """Remove an API server that is gone, and end its turn if it had one."""
        self.back(key, now)
        self._policy.leave(key, now)
        self._totals.pop(key, None)

    def ask(self, key: int, now: int) -> None:
        """Note that an API server without a turn, which was not waiting, has work to do."""
        self._policy.on_arrival(key, now)
        self._asked[key] = now
        self._grant(now)

    def begin(self, key: int, now: int) -> None:
        """Note that an API server began to work: the quota of its turn is counted from `now`."""
        holding = self._holding[key]
        if holding.quota is not None:
            holding.until = now + holding.quota

    def back(self, key: int, now: int) -> None:
        """Note that an API server gave its turn back, with its device at rest, or wants none any more."""
        self.rest(key, now)
        if key in self._asked:
            del self._asked[key]
            self._policy.on_withdraw(key, now)
        holding = self._holding.get(key)
        if holding:
            self._charge(key, holding, now)
            del self._holding[key]
            self._policy.on_complete(key, now)
        self._grant(now)

    def rest(self, key: int, now: int) -> None:
        """Note that work begun in a turn that was taken away has come to its end."""
        since = self._over.pop(key, None)
        if since is not None:
            self._use(key, since, now)

    def tick(self, now: int) -> None:
        """Time has passed: to be told at `deadline`, or later."""
        for key, holding in list(self._holding.items()):
            if holding.stopped is not None:
                if now >= holding.stopped + self._overrun:
                    self._take(key, holding, now)
            elif holding.until is not None and now >= holding.until:
                self._expire(key, holding, now)
        for key, since in self._over.items():
            self._use(key, since, now)
            self._over[key] = now
        self._grant(now)

    def deadline(self) -> int | None:
        """When `tick` has something to do; None: nothing happens by itself."""
        found = [self._rest] if self._rest is not None else []
        for holding in self._holding.values():
            if holding.stopped is not None:
                found.append(holding.stopped + self._overrun)
            elif holding.until is not None:
                found.append(holding.until)
        return min(found, default=None)

    # -- what it looks like

    def uses(self, now: int) -> list[Use]:
        """What everybody has had, up to now."""
        for key, holding in self._holding.items():
            self._charge(key, holding, now)
        for key, since in self._over.items():
            self._use(key, since, now)
            self._over[key] = now
        return [
            Use(
                key=key,
                used=self._policy.used(key, now),
                total=total,
                turns=turns,
                holds=key in self._holding,
                waits=max(1, now - self._asked[key]) if key in self._asked else 0,
                overrun=key in self._over,
            )
            for key, (total, turns) in self._totals.items()
        ]

    def span(self, now: int) -> int:
        """Nanoseconds of which each `used` is a part."""
        return self._policy.span(now)

    # -- how

    def _grant(self, now: int) -> None:
        self._rest = None
        while len(self._holding) < self._tokens:
            answer = self._policy.next(now)
            if answer is None:
                break
            if isinstance(answer, Rest):
                self._rest = answer.until
                break
            key = answer.session
            self.rest(key, now)  # from here on it is charged as one that has its turn
            self.waited += now - self._asked.pop(key)
            self.handed += 1
            self._totals[key][1] += 1
            self._holding[key] = Holding(now, answer.quota)
            self._voice.go(key, answer.quota, now)
        others = self._policy.waiting() > 0
        for key, holding in self._holding.items():
            if holding.wanted != others:
                holding.wanted = others
                self._voice.wanted(key, others)

    def _expire(self, key: int, holding: Holding, now: int) -> None:
        self._charge(key, holding, now)
        turn = self._policy.renew(key, now)
        if turn:
            holding.quota = turn.quota
            holding.until = None if turn.quota is None else now + turn.quota
            return
        holding.stopped = now
        self._voice.stop(key)
        following = self._policy.peek(now)
        if following is not None:
            self._voice.soon(following)

    def _take(self, key: int, holding: Holding, now: int) -> None:
        self._charge(key, holding, now)
        if not self._policy.waiting():  # it holds nobody up
            holding.stopped = now
            return
        del self._holding[key]
        self._over[key] = now
        self._policy.on_complete(key, now)
        self.overruns += 1
        self._voice.taken(key, now)

    def _charge(self, key: int, holding: Holding, now: int) -> None:
        self._use(key, holding.charged, now)
        holding.charged = now

    def _use(self, key: int, begin: int, end: int) -> None:
        self._policy.on_use(key, begin, end)
        self._totals[key][0] += end - begin
