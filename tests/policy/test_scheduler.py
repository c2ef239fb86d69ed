"""Each rule of policies.md §1.1 by itself."""

from __future__ import annotations

import pytest
from gpuferry.monitor.policy import (
    FITS,
    QUEUES,
    Gpu,
    Migrate,
    Place,
    Policy,
    Refuse,
    Request,
    Scheduler,
    Seat,
    build,
)
from gpuferry.monitor.policy.fit import Room
from gpuferry.monitor.policy.interface import Declined
from gpuferry.monitor.policy.portion import FULL, PLAIN

from .asking import ask, drain, server

# -- fits


def test_best_fit_takes_the_fullest_gpu_that_has_room() -> None:
    assert ask(server(build("best-fit"), [100, 60, 80]), 70, 50, 20) == [(2, 20), (1, 10), (0, 0)]
    assert ask(server(build("best-fit"), [100, 60, 80]), 50, 10) == [(1, 10), (1, 11)]


def test_worst_fit_takes_the_emptiest_gpu() -> None:
    assert ask(server(build("worst-fit"), [80, 60, 100]), 30, 10, 10) == [(2, 20), (0, 0), (0, 1)]


def test_first_fit_takes_the_lowest_gpu_with_room() -> None:
    assert ask(server(build("first-fit"), [50, 60, 70]), 55, 10, 10, 5) == [(1, 10), (0, 0), (0, 1), (1, 11)]


def test_exclusive_takes_only_empty_gpus() -> None:
    assert ask(server(build("exclusive"), [100, 100]), 10, 10, 10) == [(0, 0), (1, 10), None]


@pytest.mark.parametrize("fit", FITS)
def test_ties_go_to_the_lowest_gpu_and_the_lowest_worker(fit: str) -> None:
    policy = build(fit)
    for index in (2, 0, 1):
        policy.add_gpu(Gpu(index, 100))
        for worker in (7, 3, 5):
            policy.on_idle(index, worker)
    assert ask(policy, 10) == [(0, 3)]


@pytest.mark.parametrize("fit", FITS)
def test_a_gpu_without_an_idle_worker_is_passed_over(fit: str) -> None:
    policy = server(build(fit), [100, 100], workers=0)
    policy.on_idle(1, 10)
    assert ask(policy, 10, 10) == [(1, 10), None]


def test_labels_choose_the_gpus() -> None:
    policy = build("best-fit")
    policy.add_gpu(Gpu(0, 100))
    policy.add_gpu(Gpu(1, 100, frozenset({"zone=a", "kind=h200"})))
    for gpu in (0, 1):
        policy.on_idle(gpu, gpu)
    policy.on_arrival(Request(1, 10, labels=frozenset({"zone=a"})), 0.0)
    policy.on_arrival(Request(2, 10, labels=frozenset({"zone=b"})), 0.0)
    refused, placed = drain(policy)
    assert isinstance(placed, Place)
    assert (placed.request.id, placed.gpu) == (1, 1)
    assert isinstance(refused, Refuse)
    assert (refused.request.id, refused.reason) == (2, "1 GPU with zone=b asked for, there are 0")


def test_several_devices_are_several_seats() -> None:
    policy = server(build("worst-fit"), [50, 100, 80])
    policy.on_arrival(Request(1, 40, devices=2), 0.0)
    placed = policy.next()
    assert isinstance(placed, Place)
    assert [(seat.gpu, seat.worker) for seat in placed.seats] == [(1, 10), (2, 20)]
    assert [gpu.promised for gpu in policy.gpus.values()] == [0, 40, 40]
    policy.on_complete(1, 1.0)
    assert [gpu.busy for gpu in policy.gpus.values()] == [0, 0, 0]
    policy.on_arrival(Request(2, 60, devices=3), 1.0)
    assert isinstance(policy.next(), Refuse)


# -- queues


def test_strict_order_the_head_blocks_those_who_would_fit() -> None:
    policy = server(build("best-fit", "fcfs"), [100])
    assert ask(policy, 60, 60, 10) == [(0, 0), None, None]
    policy.on_complete(1, 1.0)
    policy.on_idle(0, 0)
    assert [d.request.id for d in drain(policy) if isinstance(d, Place)] == [2, 3]


@pytest.mark.parametrize("queue", QUEUES)
def test_one_that_lost_its_worker_goes_before_everybody(queue: str) -> None:
    policy = server(build("best-fit", queue), [100], workers=1)
    assert ask(policy, 10, 10) == [(0, 0), None]
    policy.on_worker_lost(0, 0)
    policy.on_complete(1, 1.0)
    policy.on_arrival(Request(1, 10), 1.0, first=True)
    assert [request.id for request in policy.waiting()] == [1, 2]
    policy.on_idle(0, 1)
    assert policy.next() == Place(Request(1, 10), (Seat(0, 1),))


# -- refusals


def test_what_can_never_be_placed_is_refused_at_once() -> None:
    policy = server(build(), [100, 60])
    policy.on_arrival(Request(1, 101), 0.0)
    policy.on_arrival(Request(2, 70, devices=2), 0.0)
    policy.on_arrival(Request(3, 100), 0.0)
    assert [type(decision) for decision in drain(policy)] == [Refuse, Refuse, Place]


def test_a_deadline_is_a_refusal() -> None:
    policy = server(build(), [100], workers=1)
    policy.on_arrival(Request(1, 10), 0.0)
    policy.on_arrival(Request(2, 10, deadline=5.0), 0.0)
    assert len(drain(policy)) == 1
    policy.on_tick(4.75, {})
    assert drain(policy) == []
    policy.on_tick(5.0, {})
    assert [d.request.id for d in drain(policy) if isinstance(d, Refuse)] == [2]
    assert not policy.waiting()


def test_a_deadline_binds_nobody_who_was_placed() -> None:
    policy = server(build(), [100])
    policy.on_arrival(Request(1, 10, deadline=5.0), 0.0)
    assert len(drain(policy)) == 1
    policy.on_tick(6.0, {})
    assert drain(policy) == []


def test_a_lost_gpu_takes_the_hope_of_those_who_need_it() -> None:
    policy = server(build(), [100, 60], workers=1)
    assert ask(policy, 100, 90, 20) == [(0, 0), None, None]
    policy.remove_gpu(0)
    assert [type(decision) for decision in drain(policy)] == [Refuse, Place]
    policy.on_complete(1, 1.0)  # the session that died with it
    policy.on_idle(0, 0)  # nobody's worker any more
    assert [gpu.promised for gpu in policy.gpus.values()] == [20]


def test_before_any_gpu_is_known_everybody_waits() -> None:
    policy = build()
    policy.on_arrival(Request(1, 10), 0.0)
    assert policy.next() is None
    assert ask(server(policy, [100]), 10, first=2) == [(0, 1)]


# -- migration


def crowded(gpus: int = 2) -> Scheduler:
    """Sessions 1 and 2 on GPU 0, nobody on the others."""
    policy = server(build("best-fit", migration="dgsf"), [100] * gpus, workers=4)
    assert ask(policy, 40, 40) == [(0, 0), (0, 1)]
    return policy


def test_an_imbalance_moves_whichever_launches_first() -> None:
    policy = crowded()
    policy.on_launch(2, 0.1)
    assert policy.next() is None  # no tick found an imbalance yet
    policy.on_tick(0.25, {0: 1.0, 1: 0.0})
    assert policy.imbalance() == (0, 1)
    assert policy.next() is None
    policy.on_launch(2, 0.3)
    assert drain(policy) == [Migrate(2, 0, 1, 10)]
    policy.on_launch(1, 0.3)
    assert drain(policy) == []


def test_memory_is_held_on_both_gpus_while_it_moves() -> None:
    policy = crowded()
    policy.on_tick(0.25, {})
    policy.on_launch(1, 0.3)
    drain(policy)
    assert [(gpu.busy, gpu.promised) for gpu in policy.gpus.values()] == [(1, 80), (1, 40)]
    policy.on_migrated(1, done=True)
    assert [(gpu.busy, gpu.promised) for gpu in policy.gpus.values()] == [(1, 40), (1, 40)]
    policy.on_complete(1, 1.0)
    policy.on_idle(0, 0)  # the one that it left
    policy.on_idle(1, 10)  # the one that it ended on
    assert [(gpu.busy, gpu.promised, gpu.idle) for gpu in policy.gpus.values()] == [
        (1, 40, [0, 2, 3]),
        (0, 0, [10, 11, 12, 13]),
    ]


def test_a_migration_that_failed_or_ended_with_its_session_leaves_the_books_right() -> None:
    policy = crowded()
    policy.on_tick(0.25, {})
    policy.on_launch(1, 0.3)
    drain(policy)
    policy.on_migrated(1, done=False)
    assert [(gpu.busy, gpu.promised) for gpu in policy.gpus.values()] == [(2, 80), (0, 0)]
    policy.on_tick(6.0, {})
    policy.on_launch(1, 6.0)
    assert drain(policy) == []  # once per function
    policy.on_launch(2, 6.0)
    drain(policy)
    policy.on_complete(2, 6.1)
    policy.on_migrated(2, done=True)
    assert [(gpu.busy, gpu.promised) for gpu in policy.gpus.values()] == [(1, 40), (0, 0)]


def test_it_cools_down() -> None:
    policy = crowded()
    policy.on_tick(0.25, {})
    policy.on_launch(1, 0.25)
    drain(policy)
    policy.on_migrated(1, done=True)
    policy.on_complete(1, 0.5)
    assert ask(policy, 20, first=3) == [(0, 2)]
    policy.on_tick(5.0, {})
    assert policy.imbalance() is None
    policy.on_tick(5.25, {})
    assert policy.imbalance() == (0, 1)


def test_the_busiest_crowded_gpu_is_relieved_on_the_mean_of_five_ticks() -> None:
    policy = server(build("best-fit", migration="dgsf"), [100, 100, 100], workers=4)
    assert ask(policy, 50, 50, 50, 50) == [(0, 0), (0, 1), (1, 10), (1, 11)]
    policy.on_tick(0.25, {0: 0.5, 1: 0.5})
    assert policy.imbalance() == (0, 2)  # a tie: the lowest
    policy.on_tick(0.5, {0: 0.5, 1: 0.6})
    assert policy.imbalance() == (1, 2)
    for tick in range(5):
        policy.on_tick(0.75 + tick / 4, {0: 0.5, 1: 0.4})
    assert policy.imbalance() == (0, 2)


def test_no_migration_where_it_does_not_fit() -> None:
    policy = build("best-fit", migration="dgsf")
    server(policy, [100, 30], workers=2)
    assert ask(policy, 40, 40) == [(0, 0), (0, 1)]
    policy.on_tick(0.25, {})
    policy.on_launch(1, 0.25)
    assert drain(policy) == []


def test_no_migration_to_a_gpu_that_is_no_longer_empty() -> None:
    policy = crowded()
    policy.on_tick(0.25, {})
    assert ask(policy, 60, first=3) == [(1, 10)]
    policy.on_launch(1, 0.25)
    assert drain(policy) == []


def test_a_gpu_that_left_is_no_target() -> None:
    policy = crowded()
    policy.on_tick(0.25, {})
    policy.remove_gpu(1)
    assert policy.imbalance() is None
    policy.on_launch(1, 0.25)
    assert drain(policy) == []


def test_an_idle_worker_that_is_lost_gets_nobody() -> None:
    policy = server(build(), [100])
    policy.on_worker_lost(0, 0)
    policy.on_worker_lost(0, 0)
    assert ask(policy, 10, 10) == [(0, 1), None]


def test_a_worker_that_is_ready_twice_is_one_worker() -> None:
    policy = server(build(), [100], workers=1)
    policy.on_idle(0, 0)
    assert ask(policy, 10, 10) == [(0, 0), None]


def test_a_session_that_already_runs_is_adopted_with_its_memory() -> None:
    policy = server(build(), [100], workers=1)
    policy.adopt(Request(7, 60), 0)
    assert ask(policy, 50) == [None]
    policy.on_complete(7, 1.0)
    assert [type(decision) for decision in drain(policy)] == [Place]


# -- migrations that an operator wants


def declined(policy: Policy, session: int, target: int, why: str) -> None:
    with pytest.raises(Declined) as raised:
        policy.request_migration(session, target)
    assert str(raised.value) == why


def test_an_operator_may_move_a_session() -> None:
    policy = crowded()
    policy.request_migration(1, 1)
    assert drain(policy) == [Migrate(1, 0, 1, 10)]
    declined(policy, 1, 1, "it is moving already")
    policy.on_migrated(1, done=True)
    declined(policy, 1, 1, "it is on GPU 1 already")


def test_an_operator_is_told_why_not() -> None:
    policy = server(build(), [100, 30], workers=1)
    assert ask(policy, 40) == [(0, 0)]
    declined(policy, 7, 1, "there is no session 7")
    declined(policy, 1, 5, "there is no GPU 5 in service")
    declined(policy, 1, 1, "GPU 1 has 30 bytes to give, and 40 are needed")
    policy.add_gpu(Gpu(2, 100))
    declined(policy, 1, 2, "no API server is idle on GPU 2")
    assert drain(policy) == []


def test_an_operator_moves_a_session_of_several_gpus() -> None:
    """It counts on all of them until it is there; and where it was, if it is not."""
    policy = server(build(), [100, 100, 100], workers=1)
    policy.on_arrival(Request(1, 60, devices=2), 0.0)
    drain(policy)
    gpus = policy.gpus
    assert [gpus[i].free for i in range(3)] == [40, 40, 100]
    for targets, why in (
        ([2], "it has 2 GPUs, and needs as many"),
        ([2, 2], "it has 2 GPUs, and needs as many"),
        ([2, 7], "there is no GPU 7 in service"),
        ([0, 1], "GPU 0 has 40 bytes to give, and 60 are needed"),
    ):
        with pytest.raises(Declined, match=why):
            policy.move_several(1, targets)
    policy.on_complete(1, 1.0)
    policy.on_arrival(Request(2, 40, devices=2), 2.0)
    policy.on_idle(0, 0)
    policy.on_idle(1, 10)
    drain(policy)
    for done, free in ((False, [60, 60, 100]), (True, [100, 60, 60])):
        policy.move_several(2, [1, 2])
        assert [gpus[i].free for i in range(3)] == [60, 20, 60]
        with pytest.raises(Declined, match="it is moving already"):
            policy.move_several(2, [0, 2])
        policy.on_migrated(2, done)
        assert [gpus[i].free for i in range(3)] == free
        assert [gpus[i].busy for i in range(3)] == [int(one < 100) for one in free]
    with pytest.raises(Declined, match="it is on these GPUs already"):
        policy.move_several(2, [2, 1])
    policy.move_several(2, [0, 1])
    policy.on_complete(2, 3.0)
    assert [gpus[i].free for i in range(3)] == [100, 100, 100]


# -- our own policy


def balancing(memory: list[int], workers: int = 4) -> Scheduler:
    return server(build("best-fit", migration="auto"), memory, workers=workers)


def ticks(policy: Scheduler, begin: float, seconds: float) -> list[object]:
    """What four ticks a second bring."""
    decisions: list[object] = []
    for number in range(int(seconds * 4)):
        policy.on_tick(begin + number / 4, {})
        decisions += drain(policy)
    return decisions


def test_a_session_moves_once_it_has_shown_that_it_lasts() -> None:
    policy = balancing([100, 100])
    assert ask(policy, 40, 40) == [(0, 0), (0, 1)]
    assert ticks(policy, 0.0, 0.5) == []
    moves = ticks(policy, 0.5, 3.0)
    assert [(move.source, move.target) for move in moves if isinstance(move, Migrate)] == [(0, 1)]


def test_short_functions_do_not_move() -> None:
    policy = balancing([100, 100])
    for number, seconds in enumerate((0.5, 0.5, 0.5)):  # it is learnt how long they take
        start = 10.0 * number
        policy.on_arrival(Request(number, 40, "short"), start)
        drain(policy)
        ticks(policy, start, seconds)
        policy.on_complete(number, start + seconds)
        policy.on_idle(0, 0)
    for number in (10, 11):
        policy.on_arrival(Request(number, 40, "short"), 40.0)
    drain(policy)
    assert ticks(policy, 40.0, 0.6) == []
    for number in (20, 21):
        policy.on_complete(number - 10, 41.0)
        policy.on_idle(0, number - 20)
        policy.on_arrival(Request(number, 40, "new"), 41.0)
    drain(policy)
    assert len(ticks(policy, 41.0, 4.0)) == 1


def test_it_does_not_move_when_the_pause_costs_more_than_it_brings() -> None:
    policy = balancing([100, 100])
    policy.on_arrival(Request(1, 40, "f"), 0.0)
    policy.on_arrival(Request(2, 40, "f"), 0.0)
    drain(policy)
    policy.request_migration(1, 1)
    drain(policy)
    policy.on_migrated(1, done=True, seconds=1000.0)  # 40 bytes took a quarter of an hour
    policy.request_migration(1, 0)
    drain(policy)
    policy.on_migrated(1, done=True, seconds=1000.0)
    assert ticks(policy, 10.0, 20.0) == []


def test_several_move_at_once_if_they_have_no_gpu_in_common() -> None:
    policy = balancing([100, 100, 100, 100])
    assert ask(policy, 40, 40, 40, 40) == [(0, 0), (0, 1), (1, 10), (1, 11)]
    moves = ticks(policy, 0.0, 3.0)
    assert [(move.source, move.target) for move in moves if isinstance(move, Migrate)] == [(0, 2), (1, 3)]


def test_what_a_move_brings_is_waited_for_before_the_next_one_there() -> None:
    policy = balancing([120, 120, 120], workers=3)
    assert ask(policy, 40, 40, 40) == [(0, 0), (0, 1), (0, 2)]
    (first,) = ticks(policy, 0.0, 5.0)
    assert isinstance(first, Migrate)
    policy.on_migrated(first.session, done=True, seconds=0.1)
    (second,) = ticks(policy, 5.0, 1.0)
    assert isinstance(second, Migrate)
    assert (first.source, first.target, second.source, second.target) == (0, 1, 0, 2)


def test_it_makes_room_for_the_head_of_the_queue() -> None:
    policy = server(build("worst-fit", migration="auto"), [100, 100], workers=4)
    assert ask(policy, 40, 60, 20) == [(0, 0), (1, 10), (0, 1)]
    policy.on_arrival(Request(4, 60), 0.0)  # 40 are free on each
    assert drain(policy) == []
    moves = ticks(policy, 0.0, 5.0)
    assert moves == [Migrate(3, 0, 1, 11)]
    policy.on_migrated(3, done=True, seconds=0.1)
    assert drain(policy) == [Place(Request(4, 60), (Seat(0, 2),))]


def test_what_was_chosen_stays_what_it_was() -> None:
    """Also if the GPU has no room any more, and others have."""
    first, second = Gpu(0, 10), Gpu(1, 10)
    first.welcome(0)
    room = Room([first, second], FITS["best-fit"])
    chosen = room.choose(Request(1, 5))
    assert chosen is not room.open
    first.forget(0)
    second.welcome(1)
    room.renew([first, second])
    assert chosen == [first]
    assert room.choose(Request(2, 5)) == [second]


def test_gpus_that_change_together_are_ranked_right() -> None:
    """The order is kept, and what changed is put where it belongs among what else changed."""
    gpus = [Gpu(index, 100) for index in range(4)]
    for gpu in gpus:
        gpu.welcome(gpu.index)
    room = Room(gpus, FITS["best-fit"])
    for gpu, free in zip(gpus, (10, 90, 30, 70), strict=True):
        gpu.free = free
    room.renew(gpus[:2])
    room.renew(gpus[2:])
    assert room.offers(frozenset(), 1, PLAIN)[0] == (90, FULL)
    assert room.holds(Request(1, 90))
    assert not room.holds(Request(1, 91))
    assert not room.holds(Request(1, 71, devices=2))
