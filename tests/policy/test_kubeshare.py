"""KubeShare's Algorithm 1 by hand (policies.md §3.1): each step, and each error of the printed one."""

from __future__ import annotations

import pytest
from gpuferry.monitor.policy import (
    FITS,
    Gpu,
    Migrate,
    Place,
    Portion,
    Refuse,
    Request,
    Scheduler,
    Share,
    build,
)
from gpuferry.monitor.policy.interface import Declined


def server(gpus: int = 3, fit: str = "kubeshare", memory: int = 100, **parts: object) -> Scheduler:
    policy = build(fit, **parts)  # type: ignore[arg-type]
    for index in range(gpus):
        policy.add_gpu(Gpu(index, memory))
        for worker in range(8):
            policy.on_idle(index, 8 * index + worker)
    return policy


class Asker:
    """Asks for places one after the other, and says on which GPU each got one; None: it waits."""

    def __init__(self, policy: Scheduler) -> None:
        self.policy = policy
        self.number = 0
        self.workers: dict[int, tuple[int, int]] = {}
        self.on: dict[int, int | None] = {}

    def __call__(
        self,
        request: int = 0,
        affinity: str = "",
        anti: str = "",
        exclusion: str = "",
        memory: int = 1,
        tenant: str = "",
        scope: str = "",
    ) -> int | None:
        self.number += 1
        portion = Portion(request, 1000, affinity, anti, exclusion, scope)
        wanted = Request(self.number, memory, tenant=tenant, portion=portion)
        self.policy.on_arrival(wanted, 0.0)
        self.settle()
        return self.on.get(self.number)

    def settle(self) -> None:
        while decision := self.policy.next():
            if isinstance(decision, Place):
                self.on[decision.request.id] = decision.gpu
                self.workers[decision.request.id] = decision.gpu, decision.worker

    def end(self, number: int) -> None:
        gpu, worker = self.workers[number]
        self.policy.on_complete(number, 1.0)
        self.policy.on_idle(gpu, worker)
        self.settle()

    def why(self) -> list[str]:
        return [self.policy.obstacle(request) for request in self.policy.waiting()]


def test_best_fit_among_those_without_labels_by_what_is_left_of_their_time() -> None:
    ask = Asker(server())
    assert [ask(600), ask(700), ask(300)] == [0, 1, 1]  # 0.3 of GPU 1 is left: it fills it
    assert ask(400) == 0
    assert ask(100) == 2  # the others are full


def test_residuals_shrink_and_come_back() -> None:
    """As printed they are never decremented, and a GPU takes any number."""
    ask = Asker(server(gpus=1))
    assert [ask(600), ask(400), ask(1)] == [0, 0, None]
    assert ask.why() == ["GPU 0: 0.001 of a GPU's time is more than it has to promise"]
    ask.end(2)
    assert ask.on[3] == 0
    assert ask.policy.gpus[0].time == 399


def test_memory_only_filters() -> None:
    ask = Asker(server(gpus=2))
    assert [ask(500, memory=90), ask(100, memory=20)] == [0, 1]  # best fit would be GPU 0
    assert ask(500, memory=10) == 0


def test_an_affinity_keeps_together_and_the_first_of_it_wants_an_idle_gpu() -> None:
    ask = Asker(server())
    assert ask(100) == 0
    assert ask(100, affinity="red") == 1  # GPU 0 is a better fit, but not idle
    assert ask(500, affinity="red") == 1
    assert ask(100, affinity="blue") == 2
    assert ask(900) == 0


def test_who_finds_no_idle_gpu_for_a_new_affinity_waits() -> None:
    ask = Asker(server(gpus=1, queue="backfill"))
    assert [ask(100), ask(100, affinity="red")] == [0, None]
    assert ask.why() == ["affinity red: the first of them needs a GPU without others"]
    ask.end(1)
    assert ask.on[2] == 0


def test_an_affinity_that_does_not_fit_any_more_waits_and_goes_nowhere_else() -> None:
    """KubeShare 0.9 gave it a new GPU."""
    ask = Asker(server())
    assert [ask(700, affinity="red"), ask(400, affinity="red")] == [0, None]
    assert ask.why() == [
        "affinity red is on GPU 0: GPU 0: 0.4 of a GPU's time is more than it has to promise"
    ]
    ask.end(1)
    assert ask.on[2] == 0


def test_no_anti_affinity_is_no_reason_to_reject_an_affinity() -> None:
    """Line 5 as printed, with a subset read literally: nothing is a subset of everything."""
    ask = Asker(server())
    assert [ask(100, affinity="red", anti="noisy"), ask(100, affinity="red")] == [0, 0]


def test_an_affinity_waits_where_its_anti_affinity_or_exclusion_is_against_it() -> None:
    ask = Asker(server(queue="backfill"))
    assert [ask(100, "red", anti="noisy"), ask(100, "red", anti="noisy")] == [0, None]
    assert ask.why() == [
        "affinity red is on GPU 0: GPU 0: anti-affinity noisy: a session there says the same"
    ]
    assert ask(100, "red", exclusion="a") is None
    assert "it is exclusive a, and there are sessions that are not" in ask.why()[1]
    assert ask(100, "red", anti="other") == 0  # joined, and recorded
    assert ask(100, "red", anti="other") is None


def test_anti_affinity_of_two_without_an_affinity_holds() -> None:
    """Step 3 as printed forgets to record it."""
    ask = Asker(server(gpus=2))
    assert [ask(100, anti="noisy"), ask(100, anti="noisy"), ask(100, anti="noisy")] == [0, 1, None]
    assert ask.why()[0].startswith("GPU 0: anti-affinity noisy")


def test_gpus_in_use_are_filtered_and_idle_ones_are_not() -> None:
    """Line 17 as printed has it the other way round."""
    ask = Asker(server(gpus=2))
    assert ask(100, exclusion="a") == 0
    assert ask(100) == 1  # GPU 0 is a's
    assert ask(100, exclusion="b") is None
    assert ask(100, exclusion="a") is None  # strict order: it stands behind
    ask.end(2)
    assert (ask.on[3], ask.on[4]) == (1, 0)


def test_an_idle_gpu_takes_the_exclusion_of_who_comes() -> None:
    ask = Asker(server(gpus=1))
    assert ask(100, exclusion="a") == 0
    ask.end(1)
    assert [ask(100, exclusion="b"), ask(100, exclusion="b")] == [0, 0]


def test_worst_fit_among_those_with_affinities_when_others_are_full() -> None:
    ask = Asker(server(gpus=3))
    assert [ask(1000), ask(700, affinity="red"), ask(300, affinity="blue")] == [0, 1, 2]
    assert ask(100) == 2  # 0.7 is left there, 0.3 at red's


def test_labels_are_recomputed_when_a_session_leaves() -> None:
    ask = Asker(server(gpus=2))
    assert [ask(100, "red", anti="noisy"), ask(100, "red")] == [0, 0]
    ask.end(1)
    assert ask(100, "red", anti="noisy") == 0  # red is still there, noisy is not
    for number in (2, 3):
        ask.end(number)
    assert ask(500) == 0
    assert ask(100, "red") == 1  # nobody says red any more: it is the first, and GPU 0 is not idle
    assert ask.policy.gpus[0].marks[""].affinity == {}


def test_without_a_request_one_shares_what_is_left_and_avoids_where_nothing_is() -> None:
    ask = Asker(server(gpus=2))
    assert [ask(1000), ask(), ask()] == [0, 1, 1]
    assert ask(1000) == 1  # who was promised nothing has nothing of its time
    assert ask() == 0


@pytest.mark.parametrize("fit", sorted(FITS))
def test_the_rules_hold_under_every_fit(fit: str) -> None:
    ask = Asker(server(gpus=2, fit=fit, queue="backfill"))
    first = ask(600, affinity="red", exclusion="a")
    assert ask(600, affinity="red", exclusion="a") is None
    assert ask(100, exclusion="b") == 1 - (first or 0)
    assert ask(100) is None


def test_labels_of_tenants_do_not_meet() -> None:
    ask = Asker(server(gpus=1))
    assert ask(100, exclusion="mine", scope="a", tenant="a") == 0
    assert ask(100, exclusion="yours", scope="b", tenant="b") == 0
    assert ask(100, anti="noisy", scope="a", exclusion="mine", tenant="a") == 0
    assert ask(100, anti="noisy", scope="b", exclusion="yours", tenant="b") == 0
    assert ask(100, scope="c", affinity="red", tenant="c") == 0


def test_who_waits_for_labels_of_its_own_holds_nobody_up() -> None:
    """Else a tenant could close the server with a request that its own sessions never let fit."""
    ask = Asker(server(gpus=1))
    assert ask(100, anti="noisy", scope="a", tenant="a") == 0
    assert ask(100, anti="noisy", scope="a", tenant="a") is None
    for _ in range(60):
        assert ask(0, scope="b", tenant="b") == 0
        ask.end(ask.number)


def test_a_tenant_is_promised_no_more_time_than_its_limit() -> None:
    ask = Asker(server(gpus=2, shares=lambda tenant: Share(time=1500)))
    assert [ask(800, tenant="a"), ask(800, tenant="a"), ask(700, tenant="b")] == [0, None, 1]
    assert ask.why() == ["tenant a has all that its limits allow"]
    ask.policy.on_arrival(Request(50, 1, tenant="c", devices=2, portion=Portion(800)), 0.0)
    refused = ask.policy.next()
    assert isinstance(refused, Refuse)
    assert refused.reason.startswith("1.6 of GPU time asked for, tenant c may have 1.5 (limit share)")


def test_several_devices_each_give_the_request() -> None:
    policy = server(gpus=3)
    ask = Asker(policy)
    assert ask(600) == 0
    policy.on_arrival(Request(50, 1, devices=2, portion=Portion(500, 1000, "", "noisy")), 0.0)
    place = policy.next()
    assert isinstance(place, Place)
    assert [seat.gpu for seat in place.seats] == [1, 2]
    assert [gpu.time for gpu in policy.gpus.values()] == [400, 500, 500]
    assert ask(10, anti="noisy") == 0


def test_a_tenant_leaves_time_to_those_that_have_no_session() -> None:
    """With requests for whole GPUs it cannot keep all others without any time."""
    policy = build("kubeshare", shares=lambda tenant: Share(leave=1))
    for index in range(2):
        policy.add_gpu(Gpu(index, 100, usual=10, seats=4))
        for worker in range(4):
            policy.on_idle(index, 4 * index + worker)
    ask = Asker(policy)
    assert [ask(1000, tenant="greedy"), ask(700, tenant="greedy"), ask(100, tenant="greedy")] == [0, 1, None]
    assert ask(250, tenant="late") == 1  # its part of a GPU with four seats
    assert ask(0, tenant="greedy") is None  # strict order: it stands behind its own
    ask.policy.on_leave(3)
    ask.settle()
    assert ask.on[5] == 1
    policy.on_arrival(Request(50, 1, devices=2, tenant="greedy", portion=Portion(900)), 0.0)
    refused = policy.next()
    assert isinstance(refused, Refuse)
    assert refused.reason.startswith("1.8 of GPU time asked for, at most 1.75 can be promised, because")


# -- moves


def test_an_operator_cannot_break_the_rules_by_a_move() -> None:
    policy = server(gpus=3)
    ask = Asker(policy)
    assert [ask(600, "red"), ask(100, "red"), ask(800, anti="noisy"), ask(100, anti="noisy")] == [0, 0, 1, 2]
    for session, target, why in (
        (1, 1, "0.6 of a GPU's time is more than it has to promise"),
        (2, 2, "affinity red: others who say so are on GPU 0 too, and stay; end them first"),
        (4, 1, "anti-affinity noisy: a session there says the same"),
    ):
        with pytest.raises(Declined, match=why):
            policy.request_migration(session, target)
    ask.end(2)
    policy.request_migration(1, 2)
    assert isinstance(policy.next(), Migrate)


def test_who_joins_an_affinity_waits_while_it_moves() -> None:
    """Where it will be is not known before: the move may fail."""
    for done, home in ((True, 1), (False, 0)):
        policy = server(gpus=2)
        ask = Asker(policy)
        assert ask(500, "red") == 0
        policy.request_migration(1, 1)
        move = policy.next()
        assert isinstance(move, Migrate)
        assert ask(100, "red") is None
        assert ask.why() == ["affinity red: those who say so are just moving"]
        assert [gpu.time for gpu in policy.gpus.values()] == [500, 500]
        policy.on_migrated(1, done)
        ask.settle()
        assert ask.on[2] == home
        assert sorted(gpu.time for gpu in policy.gpus.values()) == [400, 1000]


def test_a_session_comes_back_within_what_its_tenant_may_be_promised() -> None:
    """One that was suspended came back beside what its tenant was promised meanwhile."""
    policy = server(gpus=1, shares=lambda tenant: Share(time=500))
    policy.adopt(Request(1, 1, portion=Portion(400)), 0)
    back = Request(7, 1, portion=Portion(200))
    with pytest.raises(Declined, match="has all that its limits allow"):
        policy.on_return(back, 0)
    policy.on_return(back._replace(portion=Portion(100)), 0)


def test_a_session_that_comes_back_keeps_its_labels() -> None:
    policy = server(gpus=2)
    ask = Asker(policy)
    assert [ask(500, "red"), ask(500, anti="noisy")] == [0, 1]
    red = Request(7, 1, portion=Portion(600, 1000, "red"))
    with pytest.raises(Declined, match=r"affinity red: those who say so are on GPU 0"):
        policy.on_return(red._replace(portion=Portion(400, 1000, "red")), 1)
    with pytest.raises(Declined, match=r"0\.6 of a GPU's time is more"):
        policy.on_return(red, 0)
    with pytest.raises(Declined, match="anti-affinity noisy"):
        policy.on_return(Request(8, 1, portion=Portion(0, 1000, "", "noisy")), 1)
    policy.on_return(red._replace(portion=Portion(400, 1000, "red")), 0)
    assert policy.gpus[0].time == 100


def test_an_adopted_session_counts_even_beyond_the_room() -> None:
    policy = server(gpus=1)
    policy.adopt(Request(1, 1, portion=Portion(800, 900, "red")), 0)
    policy.adopt(Request(2, 1, portion=Portion(800)), 0)
    ask = Asker(policy)
    ask.number = 2
    assert ask(100) is None
    policy.on_complete(2, 0.0)
    ask.settle()
    assert ask.on[3] == 0
    assert policy.gpus[0].time == 100
    assert ask(100, "red") == 0


@pytest.mark.parametrize("migration", ["dgsf", "auto"])
def test_what_moves_by_itself_breaks_no_rule(migration: str) -> None:
    """Two of one affinity on a crowded GPU, one empty beside it: neither goes."""
    policy = server(gpus=2, migration=migration)
    ask = Asker(policy)
    assert [ask(100, "red"), ask(100, "red")] == [0, 0]
    for tick in range(200):
        policy.on_tick(tick / 4, {0: 0.9, 1: 0.0})
        policy.on_launch(1, tick / 4)
        assert policy.next() is None
    assert ask(100, "red") == 0
