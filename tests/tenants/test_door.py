"""Tenants at a real monitor's door: what their limits keep out, what waits, and whom that concerns."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from unittest.mock import Mock

import pytest
from gpuferry.monitor.broker.queue import Queue
from gpuferry.monitor.door.handshake import Reason
from gpuferry.monitor.tenants.tenancy import Tenancy
from gpuferry.specs._generated import frames
from gpuferry.specs._generated.frames import Frame

from tests.helpers import page
from tests.monitor import harness
from tests.registry.guest import Guest, Identity, Refused, Request, ask

from .stage import next_frame, tokens, waiting

LIMITS = (
    "few=sessions=1:queue=2,small=memory=100MiB,door=connections=1,brief=wall=60,"
    "none=sessions=0,crowd=queue=1000:leave=0,lone=processes=1,"
    "eager=starts=30/m:burst=2"
)
TENANTS = ("few", "small", "door", "brief", "none", "crowd", "greedy", "other", "lone", "eager")


@pytest.fixture(scope="module")
def monitor() -> Iterator[harness.Monitor]:
    with harness.monitor("--pool", "3", "--http", "127.0.0.1:0", "--tenants", LIMITS) as running:
        running.wait_idle(3)
        yield running


@pytest.fixture(scope="module")
def token(monitor: harness.Monitor) -> dict[str, str]:
    return tokens(monitor, *TENANTS)


@pytest.fixture(autouse=True)
def _nobody_left(monitor: harness.Monitor) -> Iterator[None]:
    yield
    monitor.wait_for(lambda status: not status.sessions and not status.queue, "all gone")
    monitor.wait_idle(3)


def refused(monitor: harness.Monitor, token: str, memory: int = 0) -> Refused:
    with pytest.raises(Refused) as caught:
        ask(monitor.tcp, Identity(token), Request(memory=memory))
    return caught.value


@pytest.mark.system
def test_sessions_beyond_the_limit_wait_and_others_do_not(
    monitor: harness.Monitor, token: dict[str, str]
) -> None:
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(Guest(monitor.tcp, token["few"]))
        second, op, body = waiting(monitor, token["few"])
        stack.callback(second.close)
        assert op == Frame.QUEUED
        assert frames.Queued.unpack(body) == (1, 1)
        stack.enter_context(Guest(monitor.tcp, token["other"]))  # which came later
        first.close()
        assert next_frame(second)[0] == Frame.WELCOME


def test_who_begins_sessions_too_often_is_told_when_to_come_again(
    monitor: harness.Monitor, token: dict[str, str]
) -> None:
    for _ in range(2):
        Guest(monitor.tcp, token["eager"]).close()
    third = refused(monitor, token["eager"])
    assert (third.reason, third.cuda_error) == (Reason.NO_CAPACITY, 46)
    assert "sessions of tenant eager may begin at 0.5/s, 2 at once (limits starts, burst)" in third.text
    assert "try again in 2 s" in third.text
    metrics = page.fetch(monitor.runtime, "/metrics")
    assert 'gpuferry_tenant_starts_refused_total{tenant="eager"} 1.0' in metrics
    Guest(monitor.tcp, token["other"]).close()


def test_places_in_the_queue_are_limited(monitor: harness.Monitor, token: dict[str, str]) -> None:
    with contextlib.ExitStack() as stack:
        stack.enter_context(Guest(monitor.tcp, token["few"]))
        for _ in range(2):
            connection, op, _ = waiting(monitor, token["few"])
            stack.callback(connection.close)
            assert op == Frame.QUEUED
        third = refused(monitor, token["few"])
        assert (third.reason, third.cuda_error) == (Reason.NO_CAPACITY, 46)  # DEVICE_UNAVAILABLE
        assert "tenant few has 2 of 2 queue places (limit queue)" in third.text
        assert "gpuferry tenant set few --queue" in third.text


def test_connections_are_limited(monitor: harness.Monitor, token: dict[str, str]) -> None:
    with Guest(monitor.tcp, token["door"]):
        second = refused(monitor, token["door"])
        assert second.cuda_error == 46
        assert "tenant door has 1 of 1 connections (limit connections)" in second.text


def test_processes_are_limited_of_whichever_programs(monitor: harness.Monitor, token: dict[str, str]) -> None:
    """At the door, and again when those that waited have their turn."""
    with Guest(monitor.tcp, token["lone"]):
        assert "tenant lone has 1 of 1 processes (limit processes)" in refused(monitor, token["lone"]).text
    with contextlib.ExitStack() as stack:
        monitor.wait_idle(3)
        crowd = [stack.enter_context(Guest(monitor.tcp, token["crowd"])) for _ in range(3)]
        first, second = (waiting(monitor, token["lone"])[0] for _ in range(2))
        stack.callback(first.close)
        stack.callback(second.close)
        for one in crowd:
            one.close()
        assert next_frame(first)[0] == Frame.WELCOME
        assert next_frame(second)[0] == Frame.REFUSED
    assert monitor.wait_idle(3).devices[0].memory_granted == 0


def test_memory_that_never_fits_is_out_of_memory_and_what_is_left_is_the_quota(
    monitor: harness.Monitor, token: dict[str, str]
) -> None:
    much = refused(monitor, token["small"], memory=101 << 20)
    assert much.cuda_error == 2  # OUT_OF_MEMORY
    assert f"may have {100 << 20} (limit memory)" in much.text
    assert "GPUFERRY_MEMORY" in much.text
    asked = ask(monitor.tcp, Identity(token["small"]), Request())
    with asked.connection:
        assert frames.Welcome.unpack(asked.welcome).quota == 100 << 20  # the usual quota is more


def test_what_is_left_is_divided_among_the_gpus_of_a_program() -> None:
    """One of two GPUs that asked for no memory was refused, because twice the limit is too much."""
    placer = Mock(devices={0: Mock(default_quota=512 << 20), 1: Mock(default_quota=512 << 20)})
    queue = Queue(60.0, {}, placer, Tenancy({"small": "memory=101MiB", "wide": "memory=2GiB"}), *8 * [Mock()])
    for tenant, devices, granted in (("small", 1, 100), ("small", 2, 50), ("small", 32, 2), ("wide", 2, 512)):
        queue.enter(Mock(hello=Mock(memory=0, tenant=tenant, devices=devices)))
        assert placer.arrive.call_args.args[1] == granted << 20


def test_no_sessions_at_all(monitor: harness.Monitor, token: dict[str, str]) -> None:
    never = refused(monitor, token["none"])
    assert never.cuda_error == 46
    assert "limit sessions=0" in never.text


def test_a_session_lives_no_longer_than_its_tenant_allows(
    monitor: harness.Monitor, token: dict[str, str]
) -> None:
    # The one before may not be over yet, and a Grant is written a moment after WELCOME.
    with Guest(monitor.tcp, token["brief"]):
        monitor.wait_for(lambda s: [each.wall_limit_seconds for each in s.sessions] == [60], "a limit")
    with Guest(monitor.tcp, token["other"]):
        monitor.wait_for(lambda s: [each.wall_limit_seconds for each in s.sessions] == [0], "no limit")


def test_a_limit_that_is_set_while_the_monitor_runs_holds(
    monitor: harness.Monitor, token: dict[str, str]
) -> None:
    with contextlib.ExitStack() as stack:
        stack.enter_context(Guest(monitor.tcp, token["few"]))
        second, op, _ = waiting(monitor, token["few"])
        stack.callback(second.close)
        assert op == Frame.QUEUED
        result = monitor.run("tenant", "set", "few", "--sessions", "2", "--json")
        assert result.returncode == 0, result.stderr
        assert next_frame(second)[0] == Frame.WELCOME
        shown = monitor.run("tenant", "show", "few")
        assert "sessions     2\n" in shown.stdout
        assert "wall         none  (default)" in shown.stdout
        assert "has          2 sessions, 0 waiting" in shown.stdout
    assert monitor.run("tenant", "set", "few", "--sessions", "default").stdout == "few: as for others\n"
    harness.wait_until(
        lambda: "sessions     1" in monitor.run("tenant", "show", "few").stdout, "the file's limit again"
    )


def test_a_tenant_without_limits_leaves_a_place_to_others(
    monitor: harness.Monitor, token: dict[str, str]
) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(Guest(monitor.tcp, token["greedy"]))
        third, op, _ = waiting(monitor, token["greedy"])
        stack.callback(third.close)
        assert op == Frame.QUEUED
        stack.enter_context(Guest(monitor.tcp, token["other"])).close()
        monitor.wait_for(
            lambda status: len(status.queue) == 1 and status.devices[0].pool_idle == 1, "it waits"
        )
        refusal = refused(monitor, token["greedy"], memory=800 << 20)
        assert "left to other tenants (limit leave=1)" in refusal.text
        shown = monitor.run("tenant", "show", "greedy").stdout
        assert "leave        1  (default)" in shown
        assert monitor.run("tenant", "set", "greedy", "--leave", "0").returncode == 0
        assert next_frame(third)[0] == Frame.WELCOME


def test_a_crowd_of_one_tenant_delays_another_by_no_more_than_one_session(
    monitor: harness.Monitor, token: dict[str, str]
) -> None:
    """A thousand in tests/policy/test_turns.py; here enough to see that the door asks the policy."""
    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(Guest(monitor.tcp, token["crowd"])) for _ in range(3)]
        crowd = []
        for _ in range(60):
            connection, op, _ = waiting(monitor, token["crowd"])
            stack.callback(connection.close)
            assert op == Frame.QUEUED
            crowd.append(connection)
        bystander, op, body = waiting(monitor, token["other"])
        stack.callback(bystander.close)
        assert (op, frames.Queued.unpack(body)) == (Frame.QUEUED, (1, 1))  # of the crowd it learns nothing
        for one in running[:2]:
            one.close()
        assert next_frame(bystander)[0] == Frame.WELCOME
        queue = monitor.wait_for(lambda status: len(status.queue) == 59, "one of the crowd went").queue
        assert {one.tenant for one in queue} == {"crowd"}
