"""Who leaves a device, by a clock of the test's own; and the books."""

from __future__ import annotations

import math

import pytest
from gpuferry.monitor.residency.books import Books
from gpuferry.monitor.residency.policy import CONTENDED_SECONDS, LEAST_STAY, Candidate, Turn, leavers
from gpuferry.specs._generated import node_pb2
from hypothesis import given
from hypothesis import strategies as st

GIB = 1 << 30
CANDIDATES = st.lists(
    st.builds(
        Candidate,
        session=st.integers(1, 1 << 20),
        size=st.integers(0, 16 * GIB),
        idle=st.sampled_from([0.0, 0.001, 0.5, 3.0, 1000.0]),
        here=st.sampled_from([0.0, 0.05, 0.2, 5.0, math.inf]),
        round_trip=st.sampled_from([0.0, 0.01, 0.3, 10.0]),
        stays=st.booleans(),
    ),
    max_size=12,
    unique_by=lambda one: one.session,
)


def sessions(chosen: list[Candidate]) -> list[int]:
    return [one.session for one in chosen]


def test_the_one_that_was_used_longest_ago_goes_first() -> None:
    able = [Candidate(1, GIB, 5.0), Candidate(2, GIB, 50.0), Candidate(3, GIB, 0.5)]
    assert sessions(leavers(able, GIB, 0)) == [2]
    assert sessions(leavers(able, 2 * GIB, 0)) == [2, 1]


def test_nobody_goes_in_vain() -> None:
    assert leavers([Candidate(1, GIB, 5.0)], 2 * GIB, 0) == []
    assert sessions(leavers([Candidate(1, GIB, 9.0), Candidate(2, 8 * GIB, 5.0)], 8 * GIB, 0)) == [2]


def test_who_works_stays_until_all_work() -> None:
    works = Candidate(1, GIB, 0.0, here=10.0, round_trip=0.5)
    assert leavers([works], GIB, 0) == []
    assert sessions(leavers([works], GIB, CONTENDED_SECONDS)) == [1]
    assert sessions(leavers([works, Candidate(2, GIB, 0.1)], GIB, 100.0)) == [2]


def test_who_has_just_come_back_stays_as_long_as_that_took() -> None:
    assert leavers([Candidate(1, GIB, 0.2, here=0.4, round_trip=0.5)], GIB, 100.0) == []
    assert sessions(leavers([Candidate(1, GIB, 0.2, here=0.6, round_trip=0.5)], GIB, 0)) == [1]
    quick = Candidate(1, GIB, 0.0, here=LEAST_STAY / 2, round_trip=0.001)
    assert leavers([quick], GIB, 100.0) == []


def test_of_those_that_wait_for_turns_the_one_that_had_its_own_last_goes() -> None:
    """Its next one is farthest away; and one that came back for a turn stays until it has had it."""
    first = Candidate(1, GIB, 0.0, here=0.3, round_trip=0.5, turn=Turn.WAITS, since_turn=0.01)
    second = Candidate(2, GIB, 0.0, here=5.0, round_trip=0.5, turn=Turn.WAITS, since_turn=2.0)
    third = Candidate(3, GIB, 0.0, here=0.2, round_trip=0.1, turn=Turn.WAITS, since_turn=9.0)
    works = Candidate(4, GIB, 0.0, here=9.0, round_trip=0.5, turn=Turn.HAS, since_turn=3.0)
    idle = Candidate(5, GIB, 0.2, here=9.0, round_trip=0.5)
    assert sessions(leavers([works, third, second, first], GIB, 0.0, ahead=True)) == [1]
    assert sessions(leavers([works, third, second, first, idle], GIB, 0.0, ahead=True)) == [5]
    assert leavers([works, third], GIB, 0.0, ahead=True) == []
    assert sessions(leavers([works, third], GIB, CONTENDED_SECONDS, ahead=True)) == [3]
    assert leavers([works], GIB, 100.0, ahead=True) == []
    assert sessions(leavers([works], GIB, 100.0)) == [4]


def test_what_stays_stays() -> None:
    assert leavers([Candidate(1, GIB, 100.0, stays=True)], GIB, 100.0) == []


@given(CANDIDATES, st.integers(1, 64 * GIB), st.sampled_from([0.0, 1.0]))
def test_all_that_is_chosen_is_needed_and_may_go(able: list[Candidate], needed: int, waited: float) -> None:
    chosen = leavers(able, needed, waited)
    assert all(one in able and one.may_leave(waited) for one in chosen)
    assert len(set(sessions(chosen))) == len(chosen)
    if chosen:
        total = sum(one.size for one in chosen)
        assert total >= needed
        assert all(total - one.size < needed for one in chosen)
    else:
        assert sum(one.size for one in able if one.may_leave(waited)) < needed


@given(CANDIDATES, st.integers(1, 16 * GIB))
def test_of_equal_size_the_idle_go_before_those_that_work(able: list[Candidate], needed: int) -> None:
    same = [one._replace(size=GIB) for one in able]
    chosen = leavers(same, needed, 1.0)
    left = [one for one in same if one not in chosen and one.may_leave(1.0)]
    assert not (chosen and left) or min(one.idle for one in chosen) >= max(one.idle for one in left)


def test_what_is_free_is_promised_at_once_and_the_rest_must_be_asked_for() -> None:
    books = Books(4 * GIB, 0)
    books.add_device(0, 10 * GIB)
    assert books.begin(1, 11, (0,), 8 * GIB).allowance == 8 * GIB
    assert books.begin(2, 12, (0,), 4 * GIB).allowance == 0
    assert books.free(0) == 2 * GIB
    books.end(1)
    assert books.free(0) == 10 * GIB


def test_an_adopted_session_that_is_away_has_its_copies() -> None:
    books = Books(4 * GIB, 2 * GIB)
    books.add_device(0, 10 * GIB)
    host = node_pb2.RESIDENCE_HOST
    told = node_pb2.Resides(session=11, where=host, host_bytes=3 * GIB, disk_bytes=GIB)
    entry = books.adopt(1, (0,), 8 * GIB, told)
    assert (entry.away, entry.allowance, books.free(0)) == (True, 0, 10 * GIB)
    assert (books.host_free, books.disk_free) == (GIB, GIB)
    assert books.needless() == []
    books.end(1)
    assert (books.host_free, books.disk_free) == (4 * GIB, 2 * GIB)


@pytest.mark.parametrize("where", [node_pb2.RESIDENCE_RESIDENT, node_pb2.RESIDENCE_HOST])
def test_copies_are_needless_where_the_memory_is_on_its_device(where: int) -> None:
    books = Books(4 * GIB, 0)
    entry = books.begin(1, 11, (0,), GIB)
    entry.host_bytes, entry.where = GIB, where
    assert books.needless() == ([entry] if where == node_pb2.RESIDENCE_RESIDENT else [])
