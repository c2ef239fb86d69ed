"""Time sharing by requests and limits in a sliding window: KubeShare's token, Gemini's scheduler.

Cost. A decision does not look at all who wait. Whoever waits does not use the GPU, so its usage only changes
while a record of it leaves the window, and at most one record of a token is at that edge. All others stand in
heaps by what they are compared by, which nothing but an event of their own changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count, islice

from .quota import Quota
from .tokens import THOUSAND, Answer, Client, Rest, Turn
from .window import Window

SPARE = 64  # void entries that a heap may have whoever waits
LEFT_MOST = 64  # of those that ended, with whose use others of the same owner go on


@dataclass(frozen=True)
class Compat:
    """Switches for the places where sources and papers differ from what is chosen here (policies.md 3.2)."""

    absolute: bool = False  # the deficit is compared in seconds (the paper), not in relation to the request
    newcomers: bool = False  # whoever waits longest and has no use in the window goes first (Gemini)


class Member:
    """One session, as it stands in the books."""

    __slots__ = ("asked", "before", "client", "edition", "limit", "request", "since", "window")

    def __init__(self, client: Client, window: int, before: Window | None) -> None:
        self.client = client
        self.request = client.request
        self.limit = client.limit or THOUSAND
        self.window = Window(window)
        self.before = before  # what the one has had with which it goes on
        self.asked = 0  # its place in the order of asking; 0: it does not wait
        self.since = 0  # when it asked
        self.edition = 0  # entries of heaps with another one are void

    def had(self, now: int) -> int:
        """What it is compared by with others: all that it has had of the window, and before it came."""
        if self.before is None:
            return self.window.used(now)
        before = self.before.used(now)
        if not before:
            self.before = None
        return before + self.window.used(now)

    def changes(self) -> int | None:
        """When the oldest record of that begins to leave the window; None: there is none."""
        before = self.before.changes() if self.before else None
        return self.window.changes() if before is None else before

    def left(self) -> Window:
        """What somebody has had who goes on in its place."""
        if self.before is None:
            return self.window
        self.before.follow(self.window)
        return self.before


Left = tuple[int, list[Window]]  # when the last one ended, and what those had with whom nobody goes on yet
Entry = tuple[float, int, int, Member]  # by what it is compared, place, edition, whose


class TimeSharing:
    """Relative deficit first, then least usage; nobody beyond its limit. One token.

    Who requests nothing has what is left, and that may be nothing. So that nobody waits for ever, whoever has
    waited longest goes first once it has waited for a whole window, but only one such turn in each window.

    That holds for who is at its limit, too: only who is charged while it waits is so for a whole window, and
    what it began may wait for its own next call.

    Who comes has had nothing, and goes before all others until it has had as much. So an owner whose sessions
    are short and follow each other would have all of the GPU. Therefore each goes on with what one of his has
    had that ended. Its limit is for what it has itself.
    """

    def __init__(self, window: int, quota: Quota, now: int, compat: Compat | None = None) -> None:
        """`window`: nanoseconds. `now`: when the GPU began to be shared."""
        self._length, self._quota, self._began = window, quota, now
        self._compat = compat or Compat()
        self._favoured = now  # when somebody last went first because it had waited so long
        self._members: dict[int, Member] = {}
        self._left: dict[str, Left] = {}  # by owner, in the order in which they last did
        self._queue: dict[int, Member] = {}  # who waits, in the order of asking
        self._places = count(1)
        self._owed: list[Entry] = []  # who has a request, by what it has had of it
        self._least: list[Entry] = []  # by usage
        self._shut: list[Entry] = []  # who is at its limit, by when it is not any more
        self._edges: list[Entry] = []  # by when a record begins to leave the window
        self._leaving: dict[int, Member] = {}  # of whom a record is just leaving it

    # -- events

    def join(self, client: Client, now: int) -> None:
        member = self._members.get(client.session)
        if member is None:
            before = self._inherit(client.owner, now)
            self._members[client.session] = Member(client, self._length, before)
            return
        member.client, member.request, member.limit = client, client.request, client.limit or THOUSAND
        if member.asked:
            self._enter(member, now)

    def leave(self, session: int, now: int) -> None:
        self.on_withdraw(session, now)
        member = self._members.pop(session, None)
        self._quota.forget(session)
        if member and member.client.owner and member.had(now):
            self._bequeath(member.client.owner, member.left(), now)

    def _bequeath(self, owner: str, had: Window, now: int) -> None:
        _, windows = self._left.pop(owner, (0, []))
        windows.append(had)
        if len(windows) > LEFT_MOST:
            windows.remove(min(windows, key=lambda one: one.used(now)))
        self._left[owner] = now, windows
        for other, (at, _) in list(islice(self._left.items(), 2)):  # one more than are added
            if at <= now - self._length:
                del self._left[other]

    def _inherit(self, owner: str, now: int) -> Window | None:
        """The most that one of this owner's has had of the window, of those that ended."""
        _, windows = self._left.get(owner, (0, []))
        if not windows:
            return None
        most = max(windows, key=lambda one: one.used(now))
        windows.remove(most)
        return most

    def on_arrival(self, session: int, now: int) -> None:
        self._arrive(self._members[session], now)
        self._quota.asked(session, now)

    def _arrive(self, member: Member, now: int) -> None:
        member.asked, member.since = next(self._places), now
        self._queue[member.client.session] = member
        self._enter(member, now)

    def on_withdraw(self, session: int, now: int) -> None:
        member = self._queue.pop(session, None)
        if member:
            member.asked = 0
            member.edition += 1
            self._leaving.pop(session, None)

    def on_use(self, session: int, begin: int, end: int) -> None:
        member = self._members.get(session)
        if member is None:
            return
        member.window.add(begin, end)
        self._quota.worked(session, begin, end)
        if member.asked:  # what it began before goes on, and it waits for its next turn
            self._enter(member, end)

    def on_complete(self, session: int, now: int) -> None:
        self._quota.rested(session, now)

    # -- decisions

    def next(self, now: int) -> Answer:
        member = self._choose(now)
        if member is None:
            if not self._queue:
                return None
            return Rest(min(int(self._shut[0][0]), self._passes_over_at()))
        return self._begin(member, now)

    def take(self, session: int, now: int) -> Turn | None:
        member = self._queue.get(session)
        return self._begin(member, now) if member and self._may_go(member, now) else None

    def peek(self, now: int) -> int | None:
        member = self._choose(now)
        return member.client.session if member else None

    def renew(self, session: int, now: int) -> Turn | None:
        member = self._members[session]
        self._arrive(member, now)
        if self._choose(now) is member:
            return self._begin(member, now)
        self.on_withdraw(session, now)
        return None

    def used(self, session: int, now: int) -> int:
        return self._members[session].window.used(now)

    def span(self, now: int) -> int:
        return max(1, min(self._length, now - self._began))

    def waiting(self) -> int:
        return len(self._queue)

    def _begin(self, member: Member, now: int) -> Turn:
        session = member.client.session
        if self._passed_over(now) is member:
            self._favoured = now
        self.on_withdraw(session, now)
        return Turn(session, self._quota.of(session, member.limit * self._length // THOUSAND, now))

    def _choose(self, now: int) -> Member | None:
        """Who is next; all waiting ones that may not go now stand in `_shut`."""
        self._follow(now)
        if self._compat.newcomers and self._queue:
            first = next(iter(self._queue.values()))
            if first.had(now) == 0:
                return first
        return self._passed_over(now) or self._most_owed(now) or self._least_used(now)

    def _passed_over(self, now: int) -> Member | None:
        """Who has waited for a whole window, if nobody has gone first for that in as long."""
        return next(iter(self._queue.values())) if self._queue and now >= self._passes_over_at() else None

    def _passes_over_at(self) -> int:
        """When that will be. Somebody waits."""
        return max(next(iter(self._queue.values())).since, self._favoured) + self._length

    def _most_owed(self, now: int) -> Member | None:
        """Of those that have had less than they requested, the one that misses most of it."""
        span = self.span(now)
        if self._compat.absolute and span < self._length:
            found = [self._owing(m, now, span) for m in self._queue.values() if self._may_go(m, now)]
        else:
            found = [self._owing(m, now, span) for m in self._leaving.values() if m.request]
            top = _top(self._owed)
            if top:
                found.append(self._owing(top, now, span))
        owing = [entry for entry in found if entry[2].had(now) * THOUSAND < entry[2].request * span]
        return min(owing)[2] if owing else None

    def _owing(self, member: Member, now: int, span: int) -> tuple[float, int, Member]:
        return (self._debt(member, now, span), member.asked, member)

    def _debt(self, member: Member, now: int, span: int) -> float:
        """The less, the more is owed. missing / (missing + usage) falls as usage / request grows, whatever
        the span is.
        """
        used = member.had(now)
        if self._compat.absolute:
            return used * THOUSAND - member.request * span
        return used / member.request if member.request else 0.0

    def _least_used(self, now: int) -> Member | None:
        found = [(m.had(now), m.asked, m) for m in self._leaving.values()]
        top = _top(self._least)
        if top:
            found.append((top.had(now), top.asked, top))
        return min(found)[2] if found else None

    # -- who stands where

    def _may_go(self, member: Member, now: int) -> bool:
        used = member.window.used(now)
        if member.limit >= THOUSAND or used == 0:
            return True
        return used * THOUSAND < member.limit * self.span(now)

    def _opens(self, member: Member, now: int) -> int:
        """When it is not at its limit any more."""
        used = member.window.used(now)
        early = self._began + used * THOUSAND // member.limit + 1
        if early <= self._began + self._length:  # the first window: nothing leaves it, and it grows
            return early
        most = (member.limit * self._length - 1) // THOUSAND
        return member.window.falls_to(most, max(now, self._began + self._length))

    def _enter(self, member: Member, now: int) -> None:
        """Put one that waits where it belongs now; where it stood before is void."""
        member.edition += 1
        session, place, edition = member.client.session, member.asked, member.edition
        self._leaving.pop(session, None)
        if not self._may_go(member, now):
            self._push(self._shut, (self._opens(member, now), place, edition, member))
            return
        used, edge = member.had(now), member.changes()
        if edge is not None and edge < now:
            self._leaving[session] = member
            return
        if edge is not None:
            self._push(self._edges, (edge, place, edition, member))
        if member.request:
            self._push(self._owed, (self._debt(member, now, self._length), place, edition, member))
        self._push(self._least, (used, place, edition, member))

    def _push(self, heap: list[Entry], entry: Entry) -> None:
        heappush(heap, entry)
        if len(heap) > SPARE + 2 * len(self._queue):  # void ones that never came to the top
            heap[:] = [each for each in heap if _holds(each)]
            heapify(heap)

    def _follow(self, now: int) -> None:
        """Look again at those for whom something has changed with time alone."""
        for heap, least in ((self._shut, now), (self._edges, now - 1)):
            for member in _due(heap, least):
                self._enter(member, now)
        for member in list(self._leaving.values()):
            edge = member.changes() if member.had(now) else None
            if edge is None or edge >= now:
                self._enter(member, now)
        _top(self._shut)


def _holds(entry: Entry) -> bool:
    """Whether it still says how its member stands."""
    _, _, edition, member = entry
    return member.edition == edition and member.asked > 0


def _top(heap: list[Entry]) -> Member | None:
    """The first that is not void; those before it are taken away."""
    while heap:
        if _holds(heap[0]):
            return heap[0][3]
        heappop(heap)
    return None


def _due(heap: list[Entry], now: int) -> Iterator[Member]:
    while heap and heap[0][0] <= now:
        entry = heappop(heap)
        if _holds(entry):
            yield entry[3]
