"""The arbiter of a GPU, with a clock of the test's own: turns begin, end, are taken, and are charged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from gpuferry.monitor.arbiter.gpu import HASTE, Arbiter, Use, Voice
from gpuferry.monitor.arbiter.gpus import Gpus, Unfit
from gpuferry.monitor.arbiter.shares import shares_of
from gpuferry.monitor.arbiter.words import NoPacket, Packet, Word, pack, unpack
from gpuferry.monitor.door.handshake import Hello
from gpuferry.monitor.policy.portion import Portion
from gpuferry.monitor.policy.quota import Fixed
from gpuferry.monitor.policy.timeshare import TimeSharing
from gpuferry.monitor.policy.tokens import RoundRobin, Turns
from gpuferry.monitor.sessions.session import Session
from hypothesis import given
from hypothesis import strategies as st

from .world import MS, S

A, B, C = 1, 2, 3
QUOTA, OVERRUN = 100 * MS, 500 * MS


class Line:
    """An API server's end: what it heard."""

    def __init__(self) -> None:
        self.heard: list[Packet] = []
        self.page = (False, False)

    def send(self, packet: Packet) -> None:
        self.heard.append(packet)

    def show(self, stop: bool, wanted: bool) -> None:
        self.page = (stop, wanted)

    def words(self) -> list[Word]:
        heard, self.heard = self.heard, []
        return [packet.word for packet in heard]


class House:
    """All arbiters, and API servers that say what the test wants."""

    def __init__(self, policy: Callable[[], Turns] | None = None, tokens: int = 1) -> None:
        def make(device: int, voice: Voice) -> Arbiter:
            made = policy() if policy else TimeSharing(10 * S, Fixed(QUOTA), 0)
            return Arbiter(made, tokens, OVERRUN, voice)

        self.soon: list[int] = []
        self.spared: list[int] = []
        self.gpus = Gpus(make, self._soon)
        self.lines: dict[int, Line] = {}
        self.turns: dict[int, int] = {}

    def _soon(self, session: int, spared: Sequence[int]) -> None:
        self.soon.append(session)
        self.spared = [each - 100 for each in spared]

    def add(self, *keys: int, devices: tuple[int, ...] = (0,), session: bool = True) -> None:
        for key in keys:
            self.lines[key] = Line()
            self.gpus.add(key, devices, self.lines[key])
            if session:
                self.gpus.assign(key, 100 + key, 0, 0, "", 0)

    def ask(self, key: int, now: int) -> None:
        self.turns[key] = self.turns.get(key, 0) + 1
        self.say(key, Word.ASK, now)

    def say(self, key: int, word: Word, now: int) -> None:
        self.gpus.heard(key, Packet(word, self.turns.get(key, 0)), now)

    def words(self, key: int) -> list[Word]:
        return self.lines[key].words()

    def use(self, key: int, now: int, device: int = 0) -> Use:
        return next(told.use for told in self.gpus.uses(device, now) if told.use.key == key)


def test_a_turn_ends_by_quota_only_if_somebody_else_is_next() -> None:
    house = House()
    house.add(A, B)
    house.ask(A, 0)
    assert house.words(A) == [Word.GO]
    house.gpus.tick(QUOTA)
    assert house.words(A) == []  # alone: it goes on, and hears nothing
    house.ask(B, 150 * MS)
    assert house.words(A) == [Word.WANTED]
    assert house.lines[A].page == (False, True)
    assert house.words(B) == []
    assert house.gpus.deadline() == 2 * QUOTA
    house.gpus.tick(2 * QUOTA)
    assert house.words(A) == [Word.STOP]
    assert house.lines[A].page == (True, True)
    house.say(A, Word.BACK, 230 * MS)
    assert house.words(B) == [Word.GO]
    assert house.use(A, 230 * MS).used == 230 * MS  # what it overran is charged


def test_a_turn_that_is_given_back_early_goes_to_the_next_at_once() -> None:
    house = House()
    house.add(A, B)
    house.ask(A, 0)
    house.ask(B, 1)
    house.say(A, Word.BACK, 10 * MS)
    assert house.words(B) == [Word.GO]
    assert house.use(A, S).used == 10 * MS
    assert house.use(B, 10 * MS).waits == 0


def test_who_does_not_end_in_time_loses_its_turn_and_is_charged_until_it_rests() -> None:
    house = House()
    house.add(A, B)
    house.ask(A, 0)
    house.ask(B, 1)
    house.gpus.tick(QUOTA)
    house.gpus.tick(QUOTA + OVERRUN - 1)
    assert house.words(B) == []
    house.gpus.tick(QUOTA + OVERRUN)
    assert house.words(A)[-1] == Word.TAKEN
    assert house.words(B) == [Word.GO]
    house.ask(A, QUOTA + OVERRUN + 1)  # what it began goes on, and it wants its next turn
    assert house.use(A, S).overrun
    assert house.use(A, S).used == S  # beside the other, and both are charged
    assert house.use(B, S).used == S - QUOTA - OVERRUN
    house.say(A, Word.REST, S)
    assert house.use(A, 2 * S).used == S


def test_one_that_never_ends_its_turn_harms_nobody_for_longer_than_the_overrun() -> None:
    """An API server that its guest took over: it gives nothing back, and says that it used nothing."""
    house = House()
    house.add(A, B)
    house.ask(A, 0)
    house.ask(B, 0)
    now = 0
    while now < 60 * S:
        now = house.gpus.deadline() or now
        house.gpus.tick(now)
        if Word.TAKEN in house.words(A):
            house.ask(A, now)
        if Word.STOP in house.words(B):
            house.say(B, Word.BACK, now)
            house.ask(B, now)
    # It was charged for what it held, turn or not, and so the other has had its half.
    assert house.use(A, now).total >= 0.5 * now
    assert house.use(B, now).total >= 0.4 * now


@pytest.mark.parametrize("rests", [False, True])
def test_a_kernel_that_never_ends_holds_others_up_once(rests: bool) -> None:
    """Whatever else its session has to do, and whoever is next. It may be what ends the kernel."""
    at = House(lambda: RoundRobin(10 * S, QUOTA, 0))
    at.add(A, B)
    at.ask(A, 0)
    at.ask(B, 1)
    at.gpus.tick(QUOTA)
    now = QUOTA + OVERRUN
    at.gpus.tick(now)
    assert at.words(A)[-1] is Word.TAKEN
    at.ask(A, now)
    if rests:
        at.say(A, Word.REST, now)
    at.gpus.tick(now + QUOTA)
    at.say(B, Word.BACK, now + QUOTA)
    at.ask(B, now + QUOTA)
    assert at.words(A) == [Word.GO, Word.WANTED]
    now += 2 * QUOTA
    at.gpus.tick(now)
    assert at.words(A) == [Word.STOP]
    assert at.gpus.deadline() == now + (OVERRUN if rests else HASTE)
    at.gpus.tick(now + HASTE)
    assert at.words(A) == ([] if rests else [Word.TAKEN])


@pytest.mark.parametrize("alone", [True, False])
def test_who_is_at_its_limit_by_what_waits_for_its_next_call_may_make_it(alone: bool) -> None:
    """A stream that waits for a word of memory is charged as a kernel is, and so was at its limit for ever.
    Who is alone had to stop, and its turn was never taken: its program, which would have written the word,
    stood still.
    """
    house = House()
    house.add(A, B)
    house.gpus.assign(A, A, 0, 500, "", 0)
    house.ask(A, 0)
    if not alone:
        house.ask(B, 0)
    begins, now = [0], 0
    while now < 60 * S:
        now = house.gpus.deadline() or 60 * S
        house.gpus.tick(now)
        words = house.words(A)
        if Word.GO in words:
            begins.append(now)
        if Word.TAKEN in words:  # what it began goes on: it never says REST
            house.ask(A, now)
        if Word.STOP in house.words(B):
            house.say(B, Word.BACK, now)
            house.ask(B, now)
    assert house.use(A, now).used == 10 * S
    assert max(after - before for before, after in pairwise([*begins, now])) <= 11 * S


def test_a_turn_comes_back_with_whoever_is_gone() -> None:
    for ending in ("remove", "free"):
        house = House()
        house.add(A, B)
        house.ask(A, 0)
        house.ask(B, 1)
        getattr(house.gpus, ending)(A, 5 * MS)
        assert house.words(B) == [Word.GO]
        house.gpus.remove(B, 6 * MS)
        assert house.gpus.deadline() is None


def test_who_waits_and_is_gone_gets_nothing() -> None:
    house = House()
    house.add(A, B, C)
    for key in (A, B, C):
        house.ask(key, key)
    house.gpus.remove(B, 10)
    house.say(A, Word.BACK, 20)
    assert house.words(C) == [Word.GO]


def test_a_request_waits_until_the_monitor_has_named_the_session() -> None:
    house = House()
    house.add(A, session=False)
    house.ask(A, 0)
    assert house.words(A) == []
    house.gpus.assign(A, 7, 0, 0, "", 10)
    assert house.words(A) == [Word.GO]
    house.gpus.assign(A, 7, 300, 600, "", 20)  # what it may have changes: no second turn
    assert house.words(A) == []


def test_a_turn_that_is_given_back_while_it_is_taken_is_given_back_once() -> None:
    house = House()
    house.add(A, B)
    house.ask(A, 0)
    house.ask(B, 1)
    house.gpus.tick(QUOTA)
    house.gpus.tick(QUOTA + OVERRUN)
    house.say(A, Word.BACK, QUOTA + OVERRUN + 1)  # said before it heard that
    house.ask(A, QUOTA + OVERRUN + 2)
    assert house.words(B) == [Word.GO, Word.WANTED]
    house.say(B, Word.BACK, QUOTA + OVERRUN + 3)
    assert house.words(A)[-1] == Word.GO


def test_as_many_as_there_are_tokens_work_at_once() -> None:
    house = House(lambda: RoundRobin(10 * S, None, 0), tokens=2)
    house.add(A, B, C)
    for key in (A, B, C):
        house.ask(key, key)
    assert [house.words(key) for key in (A, B, C)] == [[Word.GO, Word.WANTED], [Word.GO, Word.WANTED], []]
    assert house.gpus.deadline() is None  # no quota: until there is nothing left to do
    house.say(B, Word.BACK, 50)
    assert house.words(C) == [Word.GO]


def test_a_session_of_two_gpus_works_when_it_has_both() -> None:
    house = House()
    house.add(A, devices=(1, 0))
    house.add(B, devices=(1,))
    house.ask(B, 0)
    house.ask(A, 1)
    assert house.words(A) == []
    assert house.use(A, 10, device=0).holds
    house.gpus.tick(QUOTA)
    house.say(B, Word.BACK, QUOTA)
    assert house.words(A) == [Word.GO]
    assert house.lines[A].page == (False, False)
    house.ask(B, QUOTA + 1)
    house.gpus.tick(2 * QUOTA)
    assert house.words(A) == [Word.WANTED, Word.STOP]
    house.say(A, Word.BACK, 2 * QUOTA)
    assert house.words(B)[-1] == Word.GO
    assert not house.use(A, 3 * QUOTA, device=0).holds


def test_what_goes_on_after_a_turn_was_taken_is_charged_on_each_gpu() -> None:
    """On all but the one where the turn was taken it cost nothing, and whoever came next was not patient."""
    house = House()
    house.add(A, devices=(0, 1))
    house.add(B, devices=(0,))
    house.add(C, devices=(1,))
    house.ask(A, 0)
    house.ask(B, 1)
    house.gpus.tick(QUOTA)
    taken = QUOTA + OVERRUN
    house.gpus.tick(taken)
    assert house.words(A)[-1] == Word.TAKEN
    house.ask(C, taken)
    assert [house.words(key)[0] for key in (B, C)] == [Word.GO, Word.GO]
    for device in (0, 1):
        assert house.use(A, S, device).overrun
        assert house.use(A, S, device).used == S
    house.say(A, Word.REST, S)
    assert [house.use(A, 2 * S, device).used for device in (0, 1)] == [S, S]


def test_two_sessions_of_two_gpus_do_not_wait_for_each_other_for_ever() -> None:
    house = House()
    house.add(A, devices=(0, 1))
    house.add(B, devices=(1, 0))
    house.ask(A, 0)
    house.ask(B, 1)
    assert house.words(A)[0] == Word.GO
    house.say(A, Word.BACK, 10)
    assert house.words(B) == [Word.GO]


def test_a_small_share_is_divided_and_not_lost() -> None:
    """Of less than a thousandth for each process none would have a limit."""
    hello = Hello(b"", 1, 0, "", "f", "p", portion=Portion(request=2, limit=5))
    session = Session(1, hello, "unix", None)
    session.lease.members.extend(range(2, 9))
    assert shares_of(session, {}) == (1, 1, "f", "f")
    assert shares_of(session, {"f": (0, 400)})[:2] == (0, 50)


def test_an_api_server_cannot_ask_twice() -> None:
    house = House()
    house.add(A)
    house.ask(A, 0)
    with pytest.raises(Unfit):
        house.ask(A, 1)


@given(st.binary(max_size=40))
def test_what_is_no_packet_is_refused(data: bytes) -> None:
    try:
        packet = unpack(data)
    except NoPacket:
        return
    assert pack(packet) == data


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["ask", "back", "rest", "tick", "gone", "come"]),
            st.integers(1, 5),
            st.integers(0, 400 * MS),
        ),
        max_size=80,
    ),
    st.sampled_from([1, 2]),
    st.booleans(),
)
def test_whatever_happens_tokens_and_books_are_right(
    script: list[tuple[str, int, int]], tokens: int, robin: bool
) -> None:
    """No more have a turn than there are tokens; nobody waits beside a free token; nobody is charged for more
    than the time that passed; and in the end everybody who asks gets a turn."""
    house = House((lambda: RoundRobin(10 * S, QUOTA, 0)) if robin else None, tokens)
    now, there, asked = 0, set[int](), set[int]()
    for what, key, pause in script:
        now += pause
        if what == "come" and key not in there:
            house.add(key)
            there.add(key)
        elif what == "gone" and key in there:
            house.gpus.remove(key, now)
            there.discard(key)
            asked.discard(key)
        elif what == "ask" and key in there and key not in asked:
            house.ask(key, now)
            asked.add(key)
        elif what == "back" and key in there:
            house.say(key, Word.BACK, now)
            asked.discard(key)
        elif what == "rest" and key in there:
            house.say(key, Word.REST, now)
        elif what == "tick":
            house.gpus.tick(now)
        for each in there:
            if Word.TAKEN in house.words(each):
                asked.discard(each)
        if house.gpus.arbiters:
            uses = [told.use for told in house.gpus.uses(0, now)]
            assert sum(use.holds for use in uses) <= tokens
            assert not any(use.holds and use.waits for use in uses)
            waiting = sum(use.waits > 0 for use in uses)
            assert not waiting or sum(use.holds for use in uses) == tokens
            assert all(use.total <= now for use in uses)
    for key in there - asked:
        house.ask(key, now)
    going = set[int]()
    for _ in range(10 * len(there) + 10):
        uses = [told.use for told in house.gpus.uses(0, now)] if there else []
        going |= {use.key for use in uses if use.holds}
        for use in uses:
            if use.holds:
                house.say(use.key, Word.BACK, now)
        now += 1
    assert going == there
