"""policies.md 3.2 word by word, without any structure: what the real one is compared with."""

from __future__ import annotations

from gpuferry.monitor.policy.tokens import Client, Rest


class Plain:
    """All records, and a look at everybody for each decision."""

    def __init__(self, window: int, absolute: bool = False, newcomers: bool = False) -> None:
        self.window, self.absolute, self.newcomers = window, absolute, newcomers
        self.clients: dict[int, Client] = {}
        self.records: dict[int, list[tuple[int, int]]] = {}
        self.queue: list[int] = []
        self.since: dict[int, int] = {}  # when each of them asked
        self.favoured = 0

    def used(self, session: int, now: int) -> int:
        cut = now - self.window
        return sum(max(0, end - max(begin, cut)) for begin, end in self.records[session])

    def span(self, now: int) -> int:
        return max(1, min(self.window, now))

    def may_go(self, session: int, now: int) -> bool:
        limit, used = self.clients[session].limit or 1000, self.used(session, now)
        return limit >= 1000 or used == 0 or used * 1000 < limit * self.span(now)

    def favours(self, now: int) -> bool:
        return now - max(self.since[self.queue[0]], self.favoured) >= self.window

    def next(self, now: int) -> int | Rest | None:
        if not self.queue:
            return None
        if self.newcomers and not self.used(self.queue[0], now):
            if now - min(self.since[self.queue[0]], now) >= self.window <= now - self.favoured:
                self.favoured = now
            return self.queue[0]
        if self.favours(now):
            self.favoured = now
            return self.queue[0]
        free = [session for session in self.queue if self.may_go(session, now)]
        if not free:
            return Rest(0)
        owed = []
        for place, session in enumerate(free):
            request, used = self.clients[session].request, self.used(session, now)
            missing = request * self.span(now) - used * 1000
            if missing > 0:
                deficit = missing if self.absolute else missing / (missing + used * 1000)
                owed.append((-deficit, place, session))
        if owed:
            return min(owed)[2]
        return min((self.used(session, now), place, session) for place, session in enumerate(free))[2]
