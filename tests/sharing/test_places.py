"""Turns of sessions whose memory is not on the GPU, with a clock of the test's own."""

from __future__ import annotations

from gpuferry.monitor.arbiter.gpu import AGAIN, KEPT_MOST, LINGER_PART, SLICE, WORTH
from gpuferry.monitor.arbiter.words import Word
from gpuferry.monitor.policy.place import Place
from gpuferry.monitor.policy.tokens import RoundRobin

from .test_arbiter import QUOTA, House
from .world import MS, S

A, B, C = 1, 2, 3
TRIP = 300 * MS  # to bring memory here, and to send it away again


def house(*keys: int, away: tuple[int, ...] = ()) -> House:
    found = House(lambda: RoundRobin(10 * S, QUOTA, 0))
    found.add(*keys)
    for key in away:
        found.gpus.place(key, Place.AWAY, 0, 0)
    return found


def test_a_turn_begins_when_the_memory_is_there() -> None:
    """And lasts longer than bringing it took; what was waited for is not charged."""
    at = house(A, away=(A,))
    at.ask(A, 0)
    assert (at.words(A), at.soon) == ([], [100 + A])
    at.gpus.place(A, Place.COMING, 0, 10 * MS)
    assert at.words(A) == []
    at.gpus.place(A, Place.HERE, TRIP, 50 * MS)
    assert at.words(A) == [Word.GO]
    assert at.gpus.deadline() == 50 * MS + WORTH * TRIP
    assert at.use(A, 60 * MS).used == 10 * MS


def test_who_is_next_is_called_while_another_one_works() -> None:
    at = house(A, B, C, away=(B, C))
    at.ask(A, 0)
    at.ask(B, 1)
    at.ask(C, 2)
    assert at.soon == [100 + B]
    assert at.spared == [A]
    assert at.words(A) == [Word.GO]  # nobody who could work waits: it may pause for a moment
    at.gpus.place(B, Place.COMING, 0, 20 * MS)
    at.gpus.place(B, Place.HERE, TRIP, 60 * MS)
    assert at.words(A) == [Word.WANTED]
    assert at.words(B) == []
    at.gpus.tick(QUOTA)
    at.say(A, Word.BACK, QUOTA)
    assert at.words(B) == [Word.GO]
    assert at.soon == [100 + B, 100 + C]


def test_the_turn_goes_on_while_the_next_ones_memory_comes() -> None:
    at = house(A, B, away=(B,))
    at.ask(A, 0)
    at.ask(B, 1)
    at.gpus.place(B, Place.COMING, 0, 90 * MS)
    at.gpus.tick(QUOTA)
    assert Word.STOP not in at.words(A)
    assert at.gpus.deadline() == QUOTA + SLICE
    at.gpus.place(B, Place.HERE, TRIP, QUOTA + 1)
    at.gpus.tick(QUOTA + SLICE)
    assert at.words(A)[-1] == Word.STOP


def test_the_turn_does_not_go_on_for_ever_while_somebody_waits_who_is_here() -> None:
    """Whose memory is next comes from a slow disk."""
    at = house(A, B, C, away=(B,))
    for key in (A, B, C):
        at.ask(key, key)
    at.gpus.place(B, Place.COMING, 0, 90 * MS)
    now = 0
    while Word.STOP not in at.words(A):
        now = at.gpus.deadline() or 0
        assert 0 < now <= QUOTA + KEPT_MOST + 2 * SLICE
        at.gpus.tick(now)
    at.say(A, Word.BACK, now)
    at.ask(A, now)
    at.gpus.tick(now + KEPT_MOST)
    assert (at.words(B), at.words(C)[:1]) == ([], [Word.GO])


def test_the_turn_ends_where_only_that_makes_room_for_the_next_one() -> None:
    at = house(A, B, away=(B,))
    at.ask(A, 0)
    at.ask(B, 1)
    at.gpus.tick(QUOTA)
    assert at.words(A)[-1] == Word.STOP
    at.say(A, Word.BACK, QUOTA + 1)
    at.ask(A, QUOTA + 2)
    assert at.words(A) == []
    assert at.spared == []  # its memory may leave: the turn is kept for the other one
    at.gpus.place(A, Place.LEAVING, 0, QUOTA + 5)
    at.gpus.place(A, Place.AWAY, 0, QUOTA + 50)
    at.gpus.place(B, Place.COMING, 0, QUOTA + 50)
    at.gpus.place(B, Place.HERE, TRIP, QUOTA + 100)
    assert at.words(B) == [Word.GO]


def test_a_pause_does_not_cost_the_memory_that_was_just_brought() -> None:
    at = house(A, B, away=(A, B))
    at.ask(A, 0)
    at.gpus.place(A, Place.HERE, TRIP, 10 * MS)
    at.ask(B, 20 * MS)
    at.say(A, Word.BACK, 30 * MS)
    assert at.gpus.deadline() == 30 * MS + (WORTH * TRIP - 20 * MS) // LINGER_PART
    at.ask(A, 35 * MS)
    assert at.words(A) == [Word.GO, Word.GO]
    assert not at.use(B, 35 * MS).holds
    at.gpus.place(B, Place.COMING, 0, 35 * MS)
    at.gpus.place(B, Place.HERE, 0, 35 * MS)
    assert at.words(B) == []  # it has its turn when the one that is there ends
    at.gpus.place(B, Place.AWAY, 0, 36 * MS)
    assert at.gpus.deadline() == 35 * MS + WORTH * TRIP - 20 * MS
    at.say(A, Word.BACK, 40 * MS)
    assert at.use(B, 40 * MS).waits  # nobody has two turns at once
    at.gpus.tick(40 * MS + WORTH * TRIP // LINGER_PART)
    at.gpus.place(B, Place.HERE, TRIP, 300 * MS)
    assert at.words(B) == [Word.GO]


def test_no_token_is_kept_for_one_that_is_gone() -> None:
    """Whoever was next waited up to a quarter of a second longer, each time a session ended or moved away."""
    at = house(A, B, away=(A, B))
    at.ask(A, 0)
    at.gpus.place(A, Place.HERE, TRIP, 10 * MS)
    at.ask(B, 20 * MS)
    at.soon.clear()
    at.gpus.free(A, 30 * MS)
    assert at.soon == [B + 100]
    at.gpus.place(B, Place.COMING, 0, 31 * MS)
    at.gpus.place(B, Place.HERE, TRIP, 35 * MS)
    assert at.words(B) == [Word.GO]


def test_who_waits_in_vain_for_its_memory_holds_nobody_up_who_is_there() -> None:
    at = house(A, B, C, away=(B,))
    at.ask(B, 0)
    at.ask(A, 1)
    assert at.words(A) == []
    at.gpus.tick(KEPT_MOST)
    assert at.words(A) == [Word.GO]
    at.gpus.place(B, Place.HERE, TRIP, KEPT_MOST + MS)
    at.gpus.tick(KEPT_MOST + QUOTA)
    at.say(A, Word.BACK, KEPT_MOST + QUOTA)
    assert at.words(B) == [Word.GO]


def test_who_waits_in_vain_is_called_again_when_its_memory_could_come() -> None:
    """It was leaving when it was called, which calls nobody back, and those who were here have gone."""
    at = house(A, B)
    at.gpus.place(B, Place.LEAVING, 0, 0)
    at.ask(B, 0)
    at.ask(A, 1)
    at.gpus.tick(KEPT_MOST)
    assert at.words(A) == [Word.GO]
    at.say(A, Word.BACK, KEPT_MOST + MS)
    at.soon.clear()
    at.gpus.place(B, Place.AWAY, 0, KEPT_MOST + 2 * MS)
    assert at.soon == [100 + B]
    at.gpus.place(B, Place.HERE, TRIP, KEPT_MOST + 3 * MS)
    assert at.words(B) == [Word.GO]


def test_who_waits_in_vain_is_called_once_more() -> None:
    """Nobody is spared any more for whom it waited."""
    at = house(A, B, away=(B,))
    at.ask(B, 0)
    at.ask(A, 1)
    at.soon.clear()
    at.gpus.tick(KEPT_MOST)
    assert at.soon == [100 + B]
    assert at.spared == []


def test_who_waits_in_vain_is_tried_again_although_another_one_always_works() -> None:
    """It is none of those that wait for a turn, so the other one's would be renewed for ever; and nobody who
    has a turn leaves.
    """
    at = house(A, B, away=(B,))
    at.ask(B, 0)
    at.ask(A, 1)
    now = 0
    while Word.STOP not in at.words(A):
        now = at.gpus.deadline() or 0
        assert now <= KEPT_MOST + AGAIN + QUOTA
        at.gpus.tick(now)
    at.say(A, Word.BACK, now)
    at.ask(A, now)
    assert (at.words(A), at.spared) == ([], [])
    at.gpus.place(B, Place.COMING, 0, now + MS)
    at.gpus.place(B, Place.HERE, TRIP, now + 2 * MS)
    assert at.words(B) == [Word.GO]


def test_who_was_called_while_another_one_had_a_turn_may_have_its_room_later() -> None:
    """Of two tokens: whoever it waited for has nothing to do any more, and keeps its memory."""
    at = House(lambda: RoundRobin(10 * S, None, 0), tokens=2)
    at.add(A, B, C)
    at.gpus.place(B, Place.AWAY, 0, 0)
    at.ask(A, 0)
    at.ask(B, 1)
    at.ask(C, 2)
    at.gpus.tick(KEPT_MOST + 1)
    assert (at.words(C), at.spared) == ([Word.GO], [A])
    for key in (A, C):
        at.say(key, Word.BACK, 2 * S)
    at.gpus.tick(KEPT_MOST + AGAIN + 1)
    assert (at.soon[-1], at.spared) == (100 + B, [])


def test_who_waits_alone_waits_on() -> None:
    at = house(A, away=(A,))
    at.ask(A, 0)
    at.gpus.tick(KEPT_MOST)
    assert at.soon == [100 + A, 100 + A]
    at.gpus.place(A, Place.HERE, 0, 2 * S)
    assert at.words(A) == [Word.GO]


def test_who_is_gone_while_its_memory_comes_keeps_no_turn() -> None:
    for ending in ("remove", "free"):
        at = house(A, B, away=(A,))
        at.ask(A, 0)
        at.ask(B, 1)
        getattr(at.gpus, ending)(A, 5 * MS)
        assert at.words(B) == [Word.GO]


def test_what_left_while_it_was_its_turn_is_called_again() -> None:
    at = house(A, B)
    at.gpus.place(A, Place.LEAVING, 0, 0)
    at.ask(A, 1)
    at.gpus.place(A, Place.AWAY, 0, 2)
    assert at.soon == [100 + A, 100 + A]


def test_three_that_are_always_busy_where_one_and_a_half_fit() -> None:
    """Each has its third; memory comes once for each turn; and turns are longer than what that costs."""
    at = house(A, B, C, away=(A, B, C))
    keys = (A, B, C)
    now, brought, here = 0, 0, 0
    coming: tuple[int, int] | None = None
    for key in keys:
        at.ask(key, now)
    while now < 30 * S:
        works = [key for key in keys if at.use(key, now).holds]
        wanted = at.soon.pop(0) - 100 if at.soon else 0
        if wanted and wanted != here and coming is None:
            if here and here not in works:  # its memory leaves
                at.gpus.place(here, Place.AWAY, 0, now)
                here = 0
            if not here:
                at.gpus.place(wanted, Place.COMING, 0, now)
                coming = (wanted, now + TRIP)
            else:
                at.soon.insert(0, 100 + wanted)
        if coming and now >= coming[1]:
            here, coming = coming[0], None
            brought += 1
            at.gpus.place(here, Place.HERE, TRIP, now)
        now += 5 * MS
        at.gpus.tick(now)
        for key in keys:
            if Word.STOP in at.words(key):
                at.say(key, Word.BACK, now)
                at.ask(key, now)
    totals = [at.use(key, now).total for key in keys]
    assert max(totals) - min(totals) <= 2 * WORTH * TRIP
    assert sum(totals) >= 0.7 * now  # the rest is what bringing it takes
    assert brought <= now // ((WORTH + 1) * TRIP) + 1
    assert at.gpus.arbiters[0].overruns == 0
