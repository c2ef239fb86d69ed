"""Time sharing (policies.md 3.2): who is next, by hand-made sequences and by rules that always hold."""

from __future__ import annotations

from itertools import pairwise

import pytest
from gpuferry.monitor.policy.quota import Adaptive, Fixed
from gpuferry.monitor.policy.timeshare import LEFT_MOST, Compat, TimeSharing
from gpuferry.monitor.policy.tokens import Client, Rest, RoundRobin, Turn
from hypothesis import given
from hypothesis import strategies as st

from .plain import Plain
from .world import MS, Busy, S, World

A, B, C = 1, 2, 3
W = 10 * S


def sharing(
    *clients: Client, quota: int = 100 * MS, compat: Compat | None = None, window: int = W
) -> TimeSharing:
    policy = TimeSharing(window, Fixed(quota), 0, compat)
    for client in clients:
        policy.join(client, 0)
    return policy


def ask(policy: TimeSharing, *sessions: int, at: int) -> None:
    for session in sessions:
        policy.on_arrival(session, at)


def goes(policy: TimeSharing, now: int) -> int | None:
    answer = policy.next(now)
    return answer.session if isinstance(answer, Turn) else None


def test_relative_deficit_goes_first() -> None:
    policy = sharing(Client(A, 300), Client(B, 400))
    policy.on_use(A, 10 * S, 11 * S)  # has 1 of 3 s: misses 2, a deficit of 2/3
    policy.on_use(B, 11 * S, 12 * S)  # has 1 of 4 s: 3/4
    ask(policy, A, B, at=12 * S)
    assert [goes(policy, 12 * S), goes(policy, 12 * S)] == [B, A]


def test_absolute_deficit_is_in_seconds() -> None:
    # relative: A misses all of little, B half of much; absolute: the other way round
    for compat, first in ((Compat(), A), (Compat(absolute=True), B)):
        policy = sharing(Client(A, 100), Client(B, 800), compat=compat)
        policy.on_use(B, 10 * S, 14 * S)
        ask(policy, B, A, at=14 * S)
        assert goes(policy, 14 * S) == first


def test_who_has_a_request_goes_before_who_has_none_until_it_is_met() -> None:
    policy = sharing(Client(A, 300), Client(B))
    policy.on_use(A, 8 * S, 10 * S)
    ask(policy, B, A, at=10 * S)
    assert [goes(policy, 10 * S), goes(policy, 10 * S)] == [A, B]
    policy.on_use(A, 10 * S, 11 * S)
    ask(policy, A, B, at=11 * S)
    assert goes(policy, 11 * S) == B  # the request is met, and A has had more


def test_at_its_limit_one_waits_until_the_oldest_record_leaves() -> None:
    policy = sharing(Client(A, 0, 500))
    policy.on_use(A, 10 * S, 15 * S)
    ask(policy, A, at=15 * S)
    answer = policy.next(15 * S)
    assert isinstance(answer, Rest)
    assert answer.until == 20 * S + 1  # what began at 10 s leaves from 20 s on
    assert policy.next(answer.until - 1) == answer
    assert goes(policy, answer.until) == A


def test_another_request_wakes_the_one_that_may_go() -> None:
    policy = sharing(Client(A, 0, 500), Client(B))
    policy.on_use(A, 10 * S, 15 * S)
    ask(policy, A, at=15 * S)
    assert isinstance(policy.next(15 * S), Rest)
    ask(policy, B, at=15 * S)
    assert goes(policy, 15 * S) == B


def test_in_the_first_window_the_time_that_passed_counts() -> None:
    policy = sharing(Client(A, 0, 600))
    policy.on_use(A, 0, 100 * MS)
    ask(policy, A, at=100 * MS)
    answer = policy.next(100 * MS)
    assert isinstance(answer, Rest)
    assert answer.until == 100 * MS * 1000 // 600 + 1


def test_a_newcomer_goes_first_as_in_gemini_only_if_it_is_wanted() -> None:
    for compat, first in ((Compat(), B), (Compat(newcomers=True), A)):
        policy = sharing(Client(A), Client(B, 500), compat=compat)
        policy.on_use(B, 10 * S, 11 * S)
        ask(policy, A, B, at=11 * S)
        assert goes(policy, 11 * S) == first


def test_a_turn_is_renewed_only_for_who_is_next_anyway() -> None:
    policy = sharing(Client(A), Client(B))
    policy.on_use(A, 10 * S, 10 * S + 100 * MS)
    assert policy.renew(A, 10 * S + 100 * MS) == Turn(A, 100 * MS)  # nobody else waits
    ask(policy, B, at=10 * S + 200 * MS)
    assert policy.renew(A, 10 * S + 200 * MS) is None
    assert goes(policy, 10 * S + 200 * MS) == B
    assert policy.waiting() == 0  # who did not get it does not wait by that


def test_what_was_overrun_is_charged() -> None:
    def had(overruns: int) -> float:
        world = World(sharing(Client(A), Client(B)), [Busy(Client(A), overruns=overruns), Busy(Client(B))])
        world.run(60 * S)
        return world.share(A, 20 * S, 60 * S)

    assert had(0) == pytest.approx(0.5, abs=0.01)
    assert had(300 * MS) == pytest.approx(0.5, abs=0.03)


def test_kubeshares_figure_6() -> None:
    a, b, c = Client(A, 300, 600), Client(B, 400, 600), Client(C, 300, 500)
    world = World(sharing(), [Busy(a), Busy(b, 200 * S), Busy(c, 400 * S, 660 * S)])
    world.run(800 * S)
    expected = {
        (100, 200): (0.6, 0.0, 0.0),
        (220, 400): (0.5, 0.5, 0.0),
        (420, 660): (0.3, 0.4, 0.3),
        (680, 800): (0.5, 0.5, 0.0),
    }
    for (begin, end), shares in expected.items():
        found = [world.share(session, begin * S, end * S) for session in (A, B, C)]
        assert found == pytest.approx(list(shares), abs=0.01), f"{begin} to {end} s"


def test_who_asks_for_nothing_shares_equally_what_is_left() -> None:
    world = World(sharing(), [Busy(Client(A, 500)), Busy(Client(B)), Busy(Client(C))])
    world.run(60 * S)
    found = [world.share(session, 20 * S, 60 * S) for session in (A, B, C)]
    assert found == pytest.approx([0.5, 0.25, 0.25], abs=0.01)


def test_who_is_left_nothing_goes_once_in_a_window() -> None:
    """Others requested all that there is."""
    world = World(sharing(), [Busy(Client(A, 600)), Busy(Client(B, 400)), Busy(Client(C))])
    world.run(100 * S)
    begins = [begin for who, begin, _ in world.turns if who == C and begin >= 20 * S]
    gaps = [after - before for before, after in pairwise(begins)]
    assert len(gaps) > 4
    assert W <= min(gaps) <= max(gaps) <= 2 * W
    found = [world.share(session, 20 * S, 100 * S) for session in (A, B)]
    assert found == pytest.approx([0.6, 0.4], abs=0.02)


def following(owner: str, lasts: int, until: int, client: Client) -> list[Busy]:
    """Sessions that are always busy, one behind the other."""
    return [
        Busy(client._replace(session=10 + each, owner=owner), comes=begin, goes=begin + lasts)
        for each, begin in enumerate(range(0, until, lasts))
    ]


@pytest.mark.parametrize("request_of_each", [0, 500])
@pytest.mark.parametrize("lasts", [150 * MS, 2 * S])
def test_short_sessions_one_behind_the_other_have_no_more_than_a_long_one(
    request_of_each: int, lasts: int
) -> None:
    long = Client(A, request_of_each, owner="one")
    short = following("other", lasts, 60 * S, Client(0, request_of_each))
    world = World(sharing(quota=30 * MS), [Busy(long), *short])
    world.run(60 * S)
    assert world.share(A, 20 * S, 60 * S) == pytest.approx(0.5, abs=0.03)


def test_who_goes_on_with_what_another_had_has_its_limit_for_itself() -> None:
    policy = sharing(Client(A, owner="one"), Client(B, owner="other"))
    policy.on_use(A, 0, S)
    policy.on_use(B, S, S + MS)
    policy.leave(A, S + MS)
    policy.join(Client(C, limit=50, owner="one"), S + MS)
    ask(policy, C, B, at=S + MS)
    assert policy.used(C, S + MS) == 0
    assert [goes(policy, S + MS), goes(policy, S + MS)] == [B, C]


def test_what_ended_sessions_had_is_forgotten_with_the_window() -> None:
    policy = sharing()
    for number in range(100):
        at = number * S
        policy.join(Client(number, owner=f"program {number}"), at)
        policy.on_use(number, at, at + S // 2)
        policy.leave(number, at + S // 2)
    assert len(policy._left) <= W // S + 1
    for number in range(2 * LEFT_MOST):
        policy.join(Client(number, owner="one"), 100 * S)
        policy.on_use(number, 100 * S + number, 100 * S + number + 1)
    for number in range(2 * LEFT_MOST):
        policy.leave(number, 101 * S)
    assert len(policy._left["one"][1]) == LEFT_MOST


def test_a_turn_is_no_longer_than_a_small_limit_allows() -> None:
    world = World(sharing(quota=300 * MS), [Busy(Client(A, 0, 10)), Busy(Client(B))])
    world.run(100 * S)
    assert world.share(A, 10 * S, 100 * S) == pytest.approx(0.01, abs=0.001)


def test_adaptive_quota_follows_bursts_between_its_bounds() -> None:
    quota = Adaptive(300 * MS, 20 * MS)
    assert quota.of(A, 6 * S, 0) == 300 * MS  # no burst is known
    now = 0
    for expected in (170, 105, 73):  # bursts of 40 ms, far from each other
        quota.asked(A, now)
        quota.worked(A, now, now + 40 * MS)
        quota.rested(A, now + 40 * MS)
        now += 500 * MS
        quota.asked(A, now)
        assert quota.of(A, 6 * S, now) // MS == expected - (expected == 73)
    assert quota.of(A, 10 * MS, now) == 10 * MS  # the limit's share of the window bounds it
    quota.worked(A, now, now + 90 * MS)
    quota.rested(A, now + 90 * MS)
    quota.asked(A, now + 91 * MS)  # it goes on at once: it had more to do
    before = 10 * MS
    assert quota.of(A, 6 * S, now + 91 * MS) == (180 * MS + before) // 2


def test_adaptive_sharing_comes_to_the_same_shares() -> None:
    policy = TimeSharing(W, Adaptive(300 * MS, 20 * MS, W // 20), 0)
    world = World(policy, [Busy(Client(A, 300, 600)), Busy(Client(B, 400, 600)), Busy(Client(C, 300, 500))])
    world.run(120 * S)
    found = [world.share(session, 20 * S, 120 * S) for session in (A, B, C)]
    assert found == pytest.approx([0.3, 0.4, 0.3], abs=0.03)


def test_round_robin_goes_by_arrival() -> None:
    policy = RoundRobin(W, None, 0)
    for session in (A, B, C):
        policy.join(Client(session), 0)
    for session in (C, A, B):
        policy.on_arrival(session, 0)
    policy.on_withdraw(A, 0)
    assert policy.renew(B, 0) is None
    assert [policy.next(0), policy.next(0), policy.next(0)] == [Turn(C, None), Turn(B, None), None]


# -- rules

thousandths = st.integers(0, 1000)
shapes = st.lists(
    st.tuples(thousandths, thousandths, st.integers(0, 50), st.integers(1, 60), st.integers(0, 80)),
    min_size=1,
    max_size=6,
)


def mixture(shape: list[tuple[int, int, int, int, int]]) -> list[Busy]:
    """Sessions of all kinds; together they request no more than there is."""
    asked = max(1000, sum(request for request, *_ in shape))
    found = []
    for session, (request, limit, overruns, lasts, pause) in enumerate(shape, 1):
        request = request * 1000 // asked
        limit = 0 if limit > 800 else max(limit, request, 50)
        client = Client(session, request, limit)
        found.append(Busy(client, overruns=overruns * MS // 10, lasts=lasts * MS, pause=pause * MS))
    return found


@pytest.mark.system
@given(shapes)
def test_nobody_starves_and_nobody_gets_more_than_its_limit(
    shape: list[tuple[int, int, int, int, int]],
) -> None:
    sessions, window, quota = mixture(shape), 2 * S, 20 * MS
    world = World(sharing(window=window, quota=quota), sessions)
    world.run(12 * window)
    for one in sessions:
        session, limit = one.client.session, one.client.limit or 1000
        begins = [begin for who, begin, _ in world.turns if who == session]
        assert begins
        gaps = [b - a for a, b in zip(begins, [*begins[1:], world.now], strict=True)]
        longest = (len(sessions) + 2) * window + one.pause  # one is favoured in each window
        assert max(gaps) <= longest, "it waited longer than the favour of each window allows"
        if limit < 1000:
            # one turn more, with what it overran, than the limit lets begin
            most = limit / 1000 + (quota + one.overruns) / window
            for begin in range(window, world.now - window, window // 7):
                assert world.share(session, begin, begin + window) <= most + 1e-9


@pytest.mark.system
@given(shapes)
def test_nobody_rests_while_somebody_may_work(shape: list[tuple[int, int, int, int, int]]) -> None:
    sessions = mixture(shape)
    for one in sessions:
        one.client = one.client._replace(limit=0)
    world = World(sharing(window=2 * S, quota=20 * MS), sessions)
    world.run(8 * S)
    assert world.idle == 0


steps = st.lists(
    st.tuples(
        st.sampled_from(["ask", "ask", "use", "next", "next", "withdraw", "set"]),
        st.integers(1, 7),
        st.integers(0, 400),
        st.integers(1, 300),
    ),
    max_size=120,
)


@given(steps, st.booleans(), st.booleans())
def test_decisions_and_books_are_those_of_a_recount(
    script: list[tuple[str, int, int, int]], absolute: bool, newcomers: bool
) -> None:
    window, now = 1000, 0
    policy = sharing(window=window, compat=Compat(absolute, newcomers))
    plain = Plain(window, absolute, newcomers)
    for session in range(1, 8):
        client = Client(session, session * 90 % 400, (0, 300, 600)[session % 3])
        policy.join(client, 0)
        plain.clients[session] = client
        plain.records[session] = []
    for what, session, pause, length in script:
        now += pause
        if what == "ask" and session not in plain.queue:
            policy.on_arrival(session, now)
            plain.queue.append(session)
            plain.since[session] = now
        elif what == "withdraw" and session in plain.queue:
            policy.on_withdraw(session, now)
            plain.queue.remove(session)
        elif what == "use":
            policy.on_use(session, now, now + length)
            policy.on_use(session, now, now + length)  # told twice, counted once
            plain.records[session].append((now, now + length))
            now += length
        elif what == "set":
            client = Client(session, pause, length)
            policy.join(client, now)
            plain.clients[session] = client
        elif what == "next":
            expected, found = plain.next(now), policy.next(now)
            if isinstance(expected, Rest):
                assert isinstance(found, Rest)
                for at, opens in ((found.until - 1, False), (found.until, True)):
                    assert opens == (plain.favours(at) or any(plain.may_go(each, at) for each in plain.queue))
            elif expected is None:
                assert found is None
            else:
                assert isinstance(found, Turn)
                assert found.session == expected
                plain.queue.remove(expected)
        assert policy.waiting() == len(plain.queue)
        for each in plain.clients:
            assert policy.used(each, now) == plain.used(each, now)
