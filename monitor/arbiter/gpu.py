"""The arbiter of one GPU: who has its tokens, since when, and until when. No I/O, and no clock of its own."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ..policy.place import Place
from ..policy.tokens import Client, Rest, Turn, Turns

MS = 1_000_000
KEPT_MOST = 1_000 * MS  # a turn is kept for so long for somebody whose memory is not here, if others' is
AGAIN = 10_000 * MS  # who waited for that in vain is one of those that wait again after so long
WORTH = 3  # a turn lasts so many times as long as bringing its memory, and sending it away, took
LEAST_MOST = 2_000 * MS  # but only because of that no longer than this
LINGER = 20 * MS  # who pauses in such a turn may go on for so long before others' memory is brought,
LINGER_PART = 8  # or for such a part of what is left of it
SLICE = 5 * MS  # by which a turn is prolonged while the next one's memory is on its way
HASTE = 20 * MS  # for work that has held up a turn already, and goes on: that a kernel is stuck is known


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

    def soon(self, key: int, spared: Collection[int]) -> None:
        """Announce that this API server, whose memory is elsewhere, will probably have the next turn. Nobody
        of `spared` may leave for it.
        """


@dataclass
class Holding:
    """A turn that an API server has. Times and quotas in nanoseconds."""

    charged: int  # up to here its use is in the policy's books
    quota: int | None
    until: int | None = None  # when the quota is over
    stopped: int | None = None  # since when it shall end
    wanted: bool = False
    late: bool = False  # when it began, work went on of a turn that had been taken
    kept: int | None = None  # since when it is only kept, because the memory is not there yet
    prolonged: int | None = None  # since when it only goes on because the next one's memory is on its way


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
        self._places: dict[int, Place] = {}  # of those whose memory is not here
        self._least: dict[int, int] = {}  # for how long a turn is worth what it cost to bring the memory
        self._last: tuple[int, int] = (0, -LINGER)  # who gave a turn back last, and when
        # Since when somebody has waited in vain for its memory, and is next when it comes.
        self._aside: dict[int, int] = {}
        self._called = 0  # whose memory is wanted for the next turn
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
        self._least.pop(key, None)  # no token is kept for it
        self.back(key, now)
        self._policy.leave(key, now)
        self._totals.pop(key, None)
        self._places.pop(key, None)

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
        self._aside.pop(key, None)
        if self._called == key:
            self._called = 0
        if key in self._asked:
            del self._asked[key]
            self._policy.on_withdraw(key, now)
        holding = self._holding.get(key)
        if holding:
            self._charge(key, holding, now)
            del self._holding[key]
            self._policy.on_complete(key, now)
            self._last = (key, now)
        self._grant(now)

    def lose(self, key: int, now: int) -> None:
        """Note that an API server lost its turn on another GPU, and with that the one here: what it began may
        go on, and is charged as there.
        """
        self._charge(key, self._holding[key], now)
        self._go_on_without(key, now)
        self._grant(now)

    def place(self, key: int, place: Place, least: int, now: int) -> None:
        """Where its memory is now. `least`: nanoseconds that bringing it here and sending it away take."""
        holding = self._holding.get(key)
        if place is not Place.HERE:
            self._places[key] = place
            kept = holding is not None and holding.kept is not None
            if place is Place.AWAY and (kept or key == self._called or key in self._aside):
                self._call(key)
        elif self._places.pop(key, None):
            self._least[key] = min(WORTH * least, LEAST_MOST)
            if holding and holding.kept is not None:
                self._go(key, holding, now)
            elif self._aside.pop(key, None) is not None:
                self._policy.on_arrival(key, now)
        self._grant(now)

    def rest(self, key: int, now: int) -> None:
        """Note that work begun in a turn that was taken away has come to its end."""
        since = self._over.pop(key, None)
        if since is not None:
            self._use(key, since, now)

    def tick(self, now: int) -> None:
        """Time has passed: to be told at `deadline`, or later."""
        for key in [key for key, since in self._aside.items() if now >= since + AGAIN]:
            del self._aside[key]  # or whoever works may do so for ever, and leaves only if others wait
            self._policy.on_arrival(key, now)
        for key, holding in list(self._holding.items()):
            if holding.kept is not None:
                if now >= holding.kept + KEPT_MOST:
                    self._set_aside(key, holding, now)
            elif holding.stopped is not None:
                if now >= holding.stopped + self._patience(holding):
                    self._take(key, holding, now)
            elif holding.until is not None and now >= holding.until:
                self._expire(key, holding, now)
        for key, since in self._over.items():
            self._use(key, since, now)
            self._over[key] = now
        self._grant(now)

    def deadline(self) -> int | None:
        """When `tick` has something to do; None: nothing happens by itself."""
        found = [since + AGAIN for since in self._aside.values()]
        found += [self._rest] if self._rest is not None else []
        for holding in self._holding.values():
            if holding.kept is not None:
                found.append(holding.kept + KEPT_MOST)
            elif holding.stopped is not None:
                found.append(holding.stopped + self._patience(holding))
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
                holds=key in self._holding and self._holding[key].kept is None,
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
            if (pause := self._pause(now)) is not None:
                key, until = pause
                if key not in self._asked or not self._policy.take(key, now):
                    self._rest = until
                    break
                self._give(key, self._least[key], now)
                continue
            answer = self._next_called(now) or self._policy.next(now)
            if answer is None:
                break
            if isinstance(answer, Rest):
                self._rest = answer.until
                break
            self._give(answer.session, answer.quota, now)
        if self._places:
            self._call_next(now)
        others = self._policy.waiting() > 0 and (not self._places or not self._none_here_waits())
        for key, holding in self._holding.items():
            if holding.wanted != others:
                holding.wanted = others
                self._voice.wanted(key, others)

    def _give(self, key: int, quota: int | None, now: int) -> None:
        """It is whose turn it is; it begins when its memory is here."""
        holding = self._holding[key] = Holding(now, quota)
        if key not in self._places:
            self._go(key, holding, now)
            return
        holding.kept = now
        self._call(key)

    def _go(self, key: int, holding: Holding, now: int) -> None:
        if self._called == key:
            self._called = 0
        holding.late = key in self._over
        self.rest(key, now)  # from here on it is charged as one that has its turn
        holding.charged, holding.kept = now, None
        if holding.quota is not None:
            holding.quota = max(holding.quota, self._least.get(key, 0))
        self.waited += now - self._asked.pop(key)
        self.handed += 1
        self._totals[key][1] += 1
        self._voice.go(key, holding.quota, now)

    def _none_here_waits(self) -> bool:
        """Whether all that wait for a turn would have to wait for their memory, too."""
        return self._asked.keys() <= self._places.keys()

    def _set_aside(self, key: int, holding: Holding, now: int) -> None:
        """Its memory does not come: those who are here have their turns first."""
        if self._none_here_waits():
            holding.kept = now
            self._call(key)
            return
        del self._holding[key]
        self._policy.on_complete(key, now)
        self._aside[key] = now
        if self._called == key:
            self._called = 0
        if self._places[key] is Place.AWAY:
            self._call(key)

    def _pause(self, now: int) -> tuple[int, int] | None:
        """For whom the token is kept if it asks once more, and until when: its memory was brought for a turn
        of which much is left, and whoever is next would have its own brought.
        """
        key, since = self._last
        left = self._least.get(key, 0)
        until = since + max(LINGER, left // LINGER_PART)
        if not self._places or not left or key in self._places or now >= until:
            return None
        following = self._called or self._policy.peek(now)
        if following is None or self._places.get(following) not in (Place.AWAY, Place.LEAVING):
            return None
        return key, until

    def _next_called(self, now: int) -> Turn | None:
        """Whose memory was called has the next turn, whoever would be next by now: or it came for nothing."""
        key = self._called
        if not key or key in self._holding:
            return None
        turn = self._policy.take(key, now)
        if turn is None:  # it may not have it, as things are now
            self._called = 0
        return turn

    def _call(self, key: int) -> None:
        self._voice.soon(key, [each for each, holding in self._holding.items() if holding.kept is None])

    def _call_next(self, now: int) -> None:
        """Who is next shall be here when its turn comes."""
        following = self._policy.peek(now) if self._holding and not self._called else None
        if following and self._places.get(following) is Place.AWAY:
            self._called = following
            self._call(following)

    def _expire(self, key: int, holding: Holding, now: int) -> None:
        self._charge(key, holding, now)
        turn = self._policy.renew(key, now)
        if turn:
            holding.quota, holding.prolonged = turn.quota, None
            holding.until = None if turn.quota is None else now + turn.quota
            return
        following = self._called or self._policy.peek(now)
        if following is not None and self._places.get(following) is Place.COMING:
            if holding.prolonged is None:
                holding.prolonged = now
            if now < holding.prolonged + KEPT_MOST or self._none_here_waits():
                holding.until = now + SLICE  # nobody could work meanwhile
                return
        holding.stopped = now
        self._voice.stop(key)

    def _patience(self, holding: Holding) -> int:
        return min(HASTE, self._overrun) if holding.late else self._overrun

    def _take(self, key: int, holding: Holding, now: int) -> None:
        self._charge(key, holding, now)
        self._go_on_without(key, now)  # also if nobody waits: it may be its own next call that ends it
        self.overruns += 1
        self._voice.taken(key, now)

    def _go_on_without(self, key: int, now: int) -> None:
        del self._holding[key]
        self._over[key] = now
        self._policy.on_complete(key, now)

    def _charge(self, key: int, holding: Holding, now: int) -> None:
        if holding.kept is None:
            self._use(key, holding.charged, now)
            if key in self._least:
                self._least[key] = max(0, self._least[key] - (now - holding.charged))
        holding.charged = now

    def _use(self, key: int, begin: int, end: int) -> None:
        self._policy.on_use(key, begin, end)
        self._totals[key][0] += end - begin
