"""A lease is for a program: its processes share it, get their API servers at once, and never queue."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gpuferry.monitor.door import handshake
from gpuferry.specs._generated import control_pb2, frames

from tests.helpers.tokens import token_of
from tests.monitor import harness
from tests.monitor.fake_guest import FakeGuest, Refused, connect, hello_frame, read_frame, read_greeting
from tests.monitor.test_sessions import waiting_guest

PROGRAM = handshake.Extension.PROGRAM
MEMBERSHIP = frames.Membership.SIZE
LASTING = ("--pool", "1", "--orphan-grace", "60")


@pytest.fixture(scope="module")
def shared_monitor() -> Iterator[harness.Monitor]:
    constants = {"gpuferry.monitor.pool.pool:SURPLUS_SECONDS": 0.1}
    with harness.monitor("--pool", "1", "--processes", "4", constants=constants) as running:
        yield running


@pytest.fixture
def monitor(shared_monitor: harness.Monitor) -> Iterator[harness.Monitor]:
    yield from whole(shared_monitor)


def whole(monitor: harness.Monitor) -> Iterator[harness.Monitor]:
    """As it is before and after each test, with a pool of one."""
    monitor.wait_idle(1)
    yield monitor
    status = monitor.wait_for(
        lambda status: not status.sessions and status.devices[0].pool_idle == 1, "all as it was"
    )
    assert not status.queue
    assert status.devices[0].memory_granted == 0


class Process(FakeGuest):
    """A process of a program."""

    def __init__(self, monitor: harness.Monitor, program: bytes, **changes: Any) -> None:
        super().__init__(monitor.address, monitor.token, extensions={PROGRAM: program}, **changes)
        self.lease: int
        self.shared: int
        self.lease, self.shared = frames.Membership.unpack(self.welcome[-MEMBERSHIP:])

    def __enter__(self) -> Process:
        return self


def some_program() -> bytes:
    return secrets.token_bytes(frames.PROGRAM_SIZE)


def test_children_get_api_servers_beyond_the_pool_and_the_lease_counts_once(monitor: harness.Monitor) -> None:
    program = some_program()
    with Process(monitor, program) as parent, Process(monitor, program) as child:
        with Process(monitor, program) as another:
            assert (parent.lease, parent.shared) == (parent.number, 0)
            assert [(one.lease, one.shared) for one in (child, another)] == [(parent.number, 1)] * 2
            assert len({one.server_pid for one in (parent, child, another)}) == 3
            assert parent.quota == child.quota == another.quota
            status = monitor.status()
            assert {session.lease for session in status.sessions} == {parent.number}
            assert status.devices[0].memory_granted == parent.quota
            assert another.echo(b"works") == b"works"
        assert child.echo(b"works") == b"works"


def test_the_lease_ends_with_the_last_process(monitor: harness.Monitor) -> None:
    program = some_program()
    with Process(monitor, program) as parent:
        child = Process(monitor, program)
    with child:
        status = monitor.wait_for(lambda status: len(status.sessions) == 1, "the parent is gone")
        assert status.sessions[0].lease == parent.number
        assert status.devices[0].memory_granted == child.quota
        with Process(monitor, program) as late:
            assert late.lease == parent.number
    monitor.wait_for(lambda status: status.devices[0].memory_granted == 0, "all is given back")
    with Process(monitor, program) as anew:
        assert anew.lease == anew.number


def test_a_crash_of_one_leaves_the_others(monitor: harness.Monitor) -> None:
    program = some_program()
    with Process(monitor, program) as parent, Process(monitor, program) as child:
        os.kill(parent.server_pid, signal.SIGKILL)
        monitor.wait_for(lambda status: len(status.sessions) == 1, "it is gone")
        assert child.echo(b"works") == b"works"


def test_a_child_gets_another_api_server_where_the_first_dies(monitor: harness.Monitor) -> None:
    program = some_program()
    with Process(monitor, program) as parent, Process(monitor, program, function=b"crash") as child:
        assert child.lease == parent.number
        assert child.echo(b"works") == b"works"


def test_all_of_a_program_are_ended_together(monitor: harness.Monitor) -> None:
    program = some_program()
    with Process(monitor, program) as parent, Process(monitor, program) as child:
        request = control_pb2.EndSessionRequest(session=child.number)
        monitor.stub.EndSession(request, metadata=monitor.metadata, timeout=harness.DEADLINE)
        assert parent.connection.recv(1) == b""
        assert child.connection.recv(1) == b""


def test_too_many_processes_are_refused_clearly(monitor: harness.Monitor) -> None:
    program = some_program()
    with Process(monitor, program), Process(monitor, program), Process(monitor, program):
        with (
            Process(monitor, program),
            pytest.raises(Refused, match=r"has 4 processes that use CUDA, of 4 .* --processes"),
        ):
            Process(monitor, program)
        monitor.wait_for(lambda status: len(status.sessions) == 3, "one ended")
        with Process(monitor, program) as again:
            assert again.shared


def test_a_waiting_parent_takes_its_children_along(monitor: harness.Monitor) -> None:
    """Those that join a lease which is still waited for, get theirs when it comes."""
    program = some_program()
    holder = FakeGuest(monitor.address, monitor.token)
    parent, parents = waiting_guest(monitor, extensions={PROGRAM: program})
    child = connect(monitor.address)
    child.sendall(hello_frame(read_greeting(child), monitor.token, extensions={PROGRAM: program}))
    holder.close()
    parent.join()
    (granted,) = parents
    assert isinstance(granted, FakeGuest)
    op, body = read_frame(child)
    assert op == frames.Frame.WELCOME
    assert frames.Membership.unpack(body[-MEMBERSHIP:]) == (granted.number, 1)
    child.close()
    granted.close()


def test_if_the_waiting_parent_goes_a_child_takes_its_place(monitor: harness.Monitor) -> None:
    program = some_program()
    with FakeGuest(monitor.address, monitor.token):
        parent = connect(monitor.address)
        parent.sendall(hello_frame(read_greeting(parent), monitor.token, extensions={PROGRAM: program}))
        assert read_frame(parent)[0] == frames.Frame.QUEUED
        child = connect(monitor.address)
        child.sendall(hello_frame(read_greeting(child), monitor.token, extensions={PROGRAM: program}))
        parent.close()
        assert read_frame(child)[0] == frames.Frame.QUEUED
    op, body = read_frame(child)
    assert op == frames.Frame.WELCOME
    assert frames.Membership.unpack(body[-MEMBERSHIP:]).shared == 0
    child.close()


def test_a_program_of_several_processes_leaves_no_server(monitor: harness.Monitor, tmp_path: Path) -> None:
    program = some_program()
    with Process(monitor, program) as parent, Process(monitor, program) as child:
        for session in (parent, child):
            number = str(session.number)
            for command in (
                ("migrate", number, "--to", "elsewhere:7700"),
                ("session", "suspend", number, f"{tmp_path}/file"),
            ):
                moved = monitor.run(*command)
                assert moved.returncode != 0
                assert "one of 2 processes of a program, which move together" in moved.stderr
        assert child.echo(b"works") == parent.echo(b"works") == b"works"


def test_a_stranger_shares_nothing(monitor: harness.Monitor) -> None:
    """Another program, another tenant, and a guess of one bit less."""
    program = some_program()
    with Process(monitor, program) as parent:
        near = bytes([program[0] ^ 1]) + program[1:]
        for guess in ({"program": near}, {"program": program, "tenant": b"other"}):
            said = {PROGRAM: guess["program"]}
            thread, found = waiting_guest(monitor, extensions=said, tenant=guess.get("tenant", b""))
            assert not found
            status = monitor.status()
            assert len(status.queue) == 1
            monitor.stub.EndSession(
                control_pb2.EndSessionRequest(session=status.queue[0].session),
                metadata=monitor.metadata,
                timeout=harness.DEADLINE,
            )
            thread.join()
            assert isinstance(found[0], Refused)
        assert parent.echo(b"works") == b"works"


def test_a_wrong_token_is_not_made_right_by_a_program(monitor: harness.Monitor) -> None:
    program = some_program()
    with Process(monitor, program), pytest.raises(Refused, match="wrong token"):
        FakeGuest(monitor.address, "x" * 64, extensions={PROGRAM: program})


@pytest.mark.parametrize("size", [0, 31, 33])
def test_what_is_no_program_is_malformed(monitor: harness.Monitor, size: int) -> None:
    with pytest.raises(Refused) as refused:
        FakeGuest(monitor.address, monitor.token, extensions={PROGRAM: bytes(size)})
    assert refused.value.reason == handshake.Reason.MALFORMED


@pytest.mark.system
def test_the_next_monitor_knows_who_belongs_together() -> None:
    """And when their time is over: a process that came after a restart lived for ever."""
    options = (*LASTING, "--wall-limit", "1000", "--idle-limit", "900")
    with harness.monitor(*options, GPUFERRY_TOKEN=token_of("both monitors")) as first:
        program = some_program()
        with Process(first, program) as parent, Process(first, program) as child:
            first.process.kill()
            second = first.succeed(*options)
            status = second.wait_for(lambda status: len(status.sessions) == 2, "both are back")
            assert {session.lease for session in status.sessions} == {parent.number}
            assert status.devices[0].memory_granted == parent.quota
            with Process(second, program) as late:
                assert late.lease == parent.number
                (told,) = (one for one in second.status().sessions if one.id == late.number)
                assert 900 < told.wall_limit_seconds < 1000
                assert told.idle_limit_seconds == 900
                assert child.echo(b"works") == b"works"


@pytest.mark.system
def test_what_a_lease_leaves_that_ended_without_a_monitor_is_removed() -> None:
    """Its book: nobody came back who knew of it. That of one that goes on stays, however late it comes."""
    lasting = ("--pool", "4", "--orphan-grace", "60")
    soon = {"gpuferry.monitor.assembly:LATEST_RETURN_SECONDS": 0.0}
    with harness.monitor(*lasting, GPUFERRY_TOKEN=token_of("both monitors")) as first:
        books = Path(first.runtime, "leases")
        one, other = some_program(), some_program()
        with (
            Process(first, one, memory=1 << 20) as stays,
            Process(first, one) as another,
            Process(first, other, memory=1 << 20) as ends,
            Process(first, other) as child,
        ):
            kept, left = (books / f"{each.lease}.book" for each in (stays, ends))
            assert {kept, left} == set(books.iterdir())
            servers = {ends.server_pid, child.server_pid}
            for each in (stays, another):
                os.kill(each.server_pid, signal.SIGSTOP)
            first.process.kill()
            for pid in servers:
                os.kill(pid, signal.SIGKILL)
            harness.wait_until(lambda: not harness.alive(servers), "end of those that are killed")
            second = first.succeed(*lasting, constants=soon)
            assert not second.status().sessions
            for each in (stays, another):
                os.kill(each.server_pid, signal.SIGCONT)
            second.wait_for(lambda status: len(status.sessions) == 2, "the others are back")
            harness.wait_until(lambda: not left.exists(), "the book is removed")
            assert kept.exists()
            assert stays.echo(b"works") == b"works"


def test_who_was_asked_to_end_is_given_to_nobody() -> None:
    """A guest that came while a surplus API server was on its way out was granted it, and refused."""
    constants = {"gpuferry.monitor.pool.pool:SURPLUS_SECONDS": 0.1}
    options = ("--pool", "1", "--processes", "4")
    with harness.monitor(
        *options, constants=constants, GPUFERRY_FAKE_TERMS="1", GPUFERRY_FAKE_LEAVING="3"
    ) as running:
        program = some_program()
        with Process(running, program), Process(running, program):
            pass
        running.wait_for(lambda status: status.devices[0].pool_idle == 1, "one was asked to end")
        with FakeGuest(running.address, running.token) as guest:
            assert guest.echo(b"works") == b"works"
