"""A monitor that is killed and followed by another: sessions, leases and warm API servers outlive it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gpuferry.monitor.pool.channel import ChannelBroken
from gpuferry.monitor.pool.returns import Returns
from gpuferry.specs._generated import migration_pb2, node_pb2

from tests.helpers.tokens import token_of
from tests.monitor import harness
from tests.monitor.fake_guest import FakeGuest

TOKEN = token_of("both monitors")
GRACE = ("--orphan-grace", "60")
SURPLUS = "gpuferry.monitor.pool.pool:SURPLUS_SECONDS"
DISMISSED = re.compile(r'"event": "server ended".*"server": (\d+),.*"reason": "not needed any more"')


@pytest.fixture
def monitor() -> Iterator[harness.Monitor]:
    with harness.monitor("--pool", "3", *GRACE, GPUFERRY_TOKEN=TOKEN) as running:
        running.wait_idle(3)
        yield running


def pids(status: Any) -> set[int]:
    return {server.pid for server in status.servers}


def kill(monitor: harness.Monitor) -> None:
    monitor.process.kill()
    monitor.process.wait()


def test_the_age_of_a_session_is_what_its_server_says() -> None:
    """A day, which no restart takes: the new monitor counts from neither its own start nor the adoption."""
    day = 24 * 3600.0
    options = ("--pool", "1", *GRACE)
    with (
        harness.monitor(*options, GPUFERRY_TOKEN=TOKEN, GPUFERRY_FAKE_OLDER=str(day)) as monitor,
        FakeGuest(monitor.tcp, TOKEN),
    ):
        assert monitor.status().sessions[0].age_seconds < day
        kill(monitor)
        successor = monitor.succeed(*options)
        status = successor.wait_for(lambda s: s.sessions, "adoption")
        assert status.sessions[0].age_seconds >= day


def test_sessions_and_idle_servers_are_adopted(monitor: harness.Monitor) -> None:
    before = {server.pid for server in monitor.status().servers}
    with FakeGuest(monitor.tcp, TOKEN, function=b"resnet", tenant=b"t", pid=4242, memory=100 << 20) as guest:
        (old,) = monitor.wait_for(lambda s: s.sessions, "a session").sessions
        kill(monitor)
        assert guest.echo(b"nobody watches") == b"nobody watches"
        successor = monitor.succeed("--pool", "3", *GRACE, constants=harness.PATIENT)
        status = successor.wait_for(
            lambda s: len(s.sessions) == 1 and s.devices[0].pool_idle == 2, "adoption"
        )
        (new,) = status.sessions
        for field in (
            "id",
            "function",
            "tenant",
            "program",
            "guest_pid",
            "peer",
            "memory_quota",
            "server_pid",
        ):
            assert getattr(new, field) == getattr(old, field), field
        assert status.devices[0].memory_granted == 100 << 20
        assert {server.pid for server in status.servers} == before
        assert min(server.age_seconds for server in status.servers) > status.monitor.uptime_seconds
        assert guest.echo(b"as ever") == b"as ever"
        with FakeGuest(successor.tcp, TOKEN) as another:
            assert another.server_pid in before
            ids = {session.id for session in successor.status().sessions}
            assert len(ids) == 2
            assert min(ids) == old.id
    status = successor.wait_idle(3)
    assert not status.sessions
    assert status.devices[0].memory_granted == 0
    assert {server.pid for server in status.servers} == before
    assert successor.stop() == 0
    harness.wait_until(lambda: not harness.alive(before), "end of all API servers")


@pytest.mark.system
def test_an_adopted_server_that_dies_is_replaced(monitor: harness.Monitor) -> None:
    with FakeGuest(monitor.tcp, TOKEN) as guest:
        kill(monitor)
        successor = monitor.succeed("--pool", "3", *GRACE)
        successor.wait_for(lambda s: len(s.sessions) == 1 and s.devices[0].pool_idle == 2, "adoption")
        os.kill(guest.server_pid, signal.SIGKILL)
        # One of before that came late makes three, too, until it is one too many.
        successor.wait_for(
            lambda s: not s.sessions and s.devices[0].pool_idle == 3 and guest.server_pid not in pids(s),
            "another in its place",
        )


@pytest.mark.system
def test_one_monitor_after_the_other(monitor: harness.Monitor) -> None:
    with FakeGuest(monitor.tcp, TOKEN) as guest:
        for _ in range(3):
            kill(monitor)
            monitor = monitor.succeed("--pool", "3", *GRACE)
            monitor.wait_for(lambda s: len(s.sessions) == 1 and s.devices[0].pool_idle == 2, "adoption")
            assert guest.echo(b"still") == b"still"
    monitor.wait_idle(3)


def test_a_monitor_may_leave_its_servers_to_the_next(monitor: harness.Monitor) -> None:
    with FakeGuest(monitor.tcp, TOKEN) as guest:
        monitor.process.send_signal(signal.SIGUSR2)
        assert monitor.process.wait(harness.DEADLINE) == 0
        successor = monitor.succeed("--pool", "3", *GRACE)
        successor.wait_for(lambda s: len(s.sessions) == 1, "adoption")
        assert guest.echo(b"on") == b"on"


@pytest.mark.system
def test_servers_of_another_version_finish_and_are_replaced() -> None:
    options = ("--pool", "2", *GRACE)
    with harness.monitor(*options, GPUFERRY_TOKEN=TOKEN, GPUFERRY_FAKE_SPEC="1") as monitor:
        monitor.wait_idle(2)
        with FakeGuest(monitor.tcp, TOKEN) as guest:
            old = {server.pid for server in monitor.status().servers}
            kill(monitor)
            successor = monitor.succeed("--pool", "2", *GRACE)
            successor.wait_for(
                lambda s: (
                    len(s.sessions) == 1
                    and s.devices[0].pool_idle == 1
                    and pids(s) & old == {guest.server_pid}
                ),
                "one new, and of those of before the one that is needed",
            )
            assert guest.echo(b"on") == b"on"
        harness.wait_until(lambda: not harness.alive(old), "end of all old API servers")
        successor.wait_idle(2)


@pytest.mark.system
def test_one_that_comes_late_is_one_too_many(monitor: harness.Monitor) -> None:
    """The successor has started another in its place; after a while one goes, and no session with it."""
    with FakeGuest(monitor.tcp, TOKEN) as guest:
        before = pids(monitor.status())
        late = next(pid for pid in before if pid != guest.server_pid)
        os.kill(late, signal.SIGSTOP)
        kill(monitor)
        successor = monitor.succeed("--pool", "3", *GRACE, constants={SURPLUS: 0.2})
        two = successor.wait_for(lambda s: len(s.sessions) == 1 and s.devices[0].pool_idle == 2, "adoption")
        assert late not in pids(two)
        os.kill(late, signal.SIGCONT)
        crowd = before | pids(two)  # four, or five where another one came late, too
        assert len(crowd) > 3

        def dismissed() -> set[int]:
            return {int(pid) for pid in DISMISSED.findall(successor.log.read_text())}

        harness.wait_until(dismissed, "one too many")
        left = successor.wait_for(
            lambda s: len(s.servers) == 3 and crowd - pids(s) == crowd & dismissed(),
            "as many as there should be",
        )
        assert guest.server_pid in pids(left)
        assert guest.echo(b"on") == b"on"
        harness.wait_until(lambda: not harness.alive(dismissed()), "their end")
    successor.wait_idle(3)


HALF_DEAD = """
import asyncio, os
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"  # as the CLI says before it imports anything
from gpuferry.monitor.cli.main import main
from gpuferry.monitor.cluster.membership import Membership

async def fail(*_):
    while not os.path.exists(os.environ["FLAG"]):
        await asyncio.sleep(0.02)
    raise KeyError("a bug")

Membership.run = fail
main()
"""


@pytest.mark.system
def test_a_monitor_of_which_a_part_failed_makes_way(tmp_path: Path) -> None:
    """It does not go on half dead: it ends as if killed, and says why."""
    flag = tmp_path / "flag"
    cli = [sys.executable, "-c", HALF_DEAD]
    with contextlib.ExitStack() as stack:
        monitor = stack.enter_context(
            harness.monitor("--pool", "3", *GRACE, cli=cli, GPUFERRY_TOKEN=TOKEN, FLAG=str(flag))
        )
        monitor.wait_idle(3)
        guest = stack.enter_context(FakeGuest(monitor.tcp, TOKEN))
        flag.touch()
        assert monitor.process.wait(harness.DEADLINE) == 1
        assert "KeyError: 'a bug'" in monitor.log.read_text()
        successor = monitor.succeed("--pool", "3", *GRACE)
        successor.wait_for(lambda s: len(s.sessions) == 1 and s.devices[0].pool_idle == 2, "adoption")
        assert guest.echo(b"on") == b"on"


def test_nobody_has_a_session_that_it_was_never_given(tmp_path: Path) -> None:
    """An API server that comes back must show the order, as the monitor before sealed it for it alone."""
    returns = Returns(tmp_path, b"secret", 60)
    order = node_pb2.ToServer(grant=node_pb2.Grant(session=7, tenant="a", restore=True)).SerializeToString()
    sealed = returns.seal("abc", order)
    returned = node_pb2.Returned(grant=node_pb2.Grant(session=7, tenant="b"), orders=[sealed])
    returns.check("abc", returned)
    assert (returned.grant.tenant, returned.grant.restore) == ("a", False)  # what was given, not what it says
    forged = returns.seal("abc", order)[:-1] + b"?"
    for name, session, orders in (
        ("def", 7, [sealed]),  # another's
        ("abc", 8, [sealed]),  # another session
        ("abc", 7, [forged]),
        ("abc", 7, [order]),
        ("abc", 7, [b"\xff"]),  # what nobody can read, either
        ("abc", 7, []),
    ):
        returned = node_pb2.Returned(grant=node_pb2.Grant(session=session), orders=orders)
        with pytest.raises(ChannelBroken):
            returns.check(name, returned)


@pytest.mark.parametrize("ordered", [True, False])
def test_a_session_went_to_another_server_out_of_its_file_if_its_keeper_was_told_so(
    tmp_path: Path, ordered: bool
) -> None:
    returns = Returns(tmp_path, b"secret", 60)
    there, grant = migration_pb2.RemoteTarget(address="there:1"), node_pb2.Grant(session=7)
    keep = node_pb2.Keep(grant=grant, file=migration_pb2.FileTarget(path="/here"))
    orders = [node_pb2.ToServer(keep=keep)]
    if ordered:
        orders.append(node_pb2.ToServer(play=node_pb2.Play(session=7, remote=there)))
    returned = node_pb2.Returned(
        ready=node_pb2.Ready(keeper=True),
        grant=grant,
        migrating=migration_pb2.Migrate(remote=there),
        orders=[returns.seal("abc", each.SerializeToString()) for each in orders],
    )
    returns.check("abc", returned)
    assert returned.migrating.remote.address == ("there:1" if ordered else "")
    assert returned.migrating.file.path == ("" if ordered else "/here")


@pytest.mark.system
def test_nobody_is_adopted_who_shows_no_order() -> None:
    """A process that was broken into says that it has a session: it is ended, and the others are adopted."""
    options = ("--pool", "2", *GRACE)
    with harness.monitor(*options, GPUFERRY_TOKEN=TOKEN, GPUFERRY_FAKE_CLAIMS="77") as monitor:
        monitor.wait_idle(2)
        before = {server.pid for server in monitor.status().servers}
        kill(monitor)
        successor = monitor.succeed(*options)
        status = successor.wait_idle(2)
        assert not status.sessions
        monitor.wait_for_log("session 77 was never given to it")
        harness.wait_until(lambda: not harness.alive(before), "end of all that lied")


@pytest.mark.system
def test_nobody_speaks_of_a_session_that_it_was_never_given(monitor: harness.Monitor) -> None:
    """A process that was broken into says that somebody else's session is over: it is ended, nothing else."""
    with (
        FakeGuest(monitor.tcp, TOKEN) as bystander,
        FakeGuest(monitor.tcp, TOKEN, function=b"meddles") as meddler,
    ):
        harness.wait_until(lambda: not harness.alive({meddler.server_pid}), "its end")
        assert bystander.echo(b"on") == b"on"
        assert bystander.server_pid in {session.server_pid for session in monitor.status().sessions}
        monitor.wait_for_log("which it was never given")
