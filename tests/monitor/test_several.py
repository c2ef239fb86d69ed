"""Sessions of several devices: all of them or none, an API server of their own, and all back at the end."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from gpuferry.monitor.broker.several import ATTEMPTS, Several
from gpuferry.monitor.door import handshake
from gpuferry.monitor.sessions.decision import Placement
from gpuferry.monitor.sessions.session import Session
from gpuferry.specs._generated import frames

from tests.monitor import harness
from tests.monitor.fake_guest import (
    FakeGuest,
    Refused,
    connect,
    hello_frame,
    outcome,
    read_frame,
    read_greeting,
)
from tests.monitor.test_gangs import HELLO
from tests.monitor.test_programs import PROGRAM, Process, some_program
from tests.monitor.test_sessions import waiting_guest

NO_CAPACITY = handshake.Reason.NO_CAPACITY


@pytest.fixture(scope="module")
def shared_monitor() -> Iterator[harness.Monitor]:
    with harness.monitor("--pool", "1", GPUFERRY_SIM_DEVICES="2") as running:
        yield running


@pytest.fixture
def monitor(shared_monitor: harness.Monitor) -> Iterator[harness.Monitor]:
    """Two devices with one API server each, whole before and after each test."""
    shared_monitor.wait_idle(2)
    yield shared_monitor
    shared_monitor.wait_for(
        lambda status: is_whole(status) and len(status.servers) == 2, "all as it was"
    )  # those of several devices are gone, too


def is_whole(status: Any) -> bool:
    idle = [device.pool_idle for device in status.devices]
    return not (status.sessions or status.queue or any(granted(status))) and idle == [1, 1]


def granted(status: Any) -> list[int]:
    return [device.memory_granted for device in status.devices]


def guest(monitor: harness.Monitor, devices: int = 2, **changes: Any) -> FakeGuest:
    return FakeGuest(monitor.address, monitor.token, devices=devices, **changes)


def test_one_lease_of_two_devices(monitor: harness.Monitor) -> None:
    with guest(monitor) as pair:
        assert pair.echo(b"works") == b"works"
        status = monitor.status()
        (session,) = status.sessions
        assert list(session.devices) == [0, 1]
        assert granted(status) == [pair.quota] * 2
        assert len({server.pid for server in status.servers}) == 3  # the pool stays, for others
    # nobody else gets its API server
    monitor.wait_for(lambda status: is_whole(status) and len(status.servers) == 2, "both are free")


def test_all_devices_or_none(monitor: harness.Monitor) -> None:
    """Who waits for two has none meanwhile, and gets both when the second one is free."""
    with guest(monitor, 1) as first:
        thread, result = waiting_guest(monitor, devices=2)
        assert sum(granted(monitor.status())) == first.quota
    thread.join(harness.DEADLINE)
    (pair,) = result
    assert isinstance(pair, FakeGuest)
    with pair:
        assert [list(session.devices) for session in monitor.status().sessions] == [[0, 1]]


def test_more_than_there_are(monitor: harness.Monitor) -> None:
    with pytest.raises(Refused, match="3 GPUs asked for, there are 2") as refused:
        guest(monitor, 3)
    assert refused.value.reason == NO_CAPACITY


def test_an_api_server_that_dies_gives_all_back(monitor: harness.Monitor) -> None:
    with guest(monitor) as pair:
        os.kill(pair.server_pid, signal.SIGKILL)
        assert pair.connection.recv(1) == b""
        monitor.wait_for(is_whole, "both are free")


def test_it_goes_into_no_file(monitor: harness.Monitor, tmp_path: Path) -> None:
    with guest(monitor) as pair:
        refused = monitor.run("session", "suspend", str(pair.number), str(tmp_path / "file"))
        assert refused.returncode != 0
        assert "has 2 GPUs, and only sessions of one go into a file" in refused.stderr
        refused = monitor.run("migrate", str(pair.number), "--to", "gpu:any")
        assert "0 others have as much to give" in refused.stderr
        assert pair.echo(b"works") == b"works"


def test_children_have_its_devices(monitor: harness.Monitor) -> None:
    """Each has an API server of its own on both, whatever it asks for, and the lease counts once."""
    program = some_program()
    with Process(monitor, program, devices=2) as parent:
        with Process(monitor, program, devices=1) as one, Process(monitor, program, devices=2) as two:
            assert [(each.lease, each.shared) for each in (one, two)] == [(parent.number, 1)] * 2
            assert len({each.server_pid for each in (parent, one, two)}) == 3
            status = monitor.status()
            assert [list(session.devices) for session in status.sessions] == [[0, 1]] * 3
            assert granted(status) == [parent.quota] * 2
            assert two.echo(b"works") == b"works"
        monitor.wait_for(lambda status: len(status.sessions) == 1, "they are gone")
        assert parent.echo(b"works") == b"works"


def test_the_lease_ends_with_its_last_process(monitor: harness.Monitor) -> None:
    program = some_program()
    with Process(monitor, program, devices=2) as parent:
        child = Process(monitor, program, devices=2)
    with child:
        monitor.wait_for(lambda status: len(status.sessions) == 1, "the parent is gone")
        assert granted(monitor.status()) == [parent.quota] * 2
        with Process(monitor, program, devices=2) as another:
            assert another.lease == parent.number


def test_a_child_gets_another_api_server_where_the_first_dies(monitor: harness.Monitor) -> None:
    program = some_program()
    with (
        Process(monitor, program, devices=2) as parent,
        Process(monitor, program, devices=2, function=b"crash") as child,
    ):
        assert child.lease == parent.number
        assert child.echo(b"works") == b"works"


def test_a_child_that_wants_more(monitor: harness.Monitor) -> None:
    program = some_program()
    with (
        Process(monitor, program),
        pytest.raises(
            Refused, match="has 1 GPU, which its first process asked for, and this process wants 2"
        ),
    ):
        Process(monitor, program, devices=2)


def spoilable(devices: str, behaviour: str, mark: Path) -> AbstractContextManager[harness.Monitor]:
    """One whose API servers of several devices behave like this once the file is there."""
    return harness.monitor(
        "--pool",
        "1",
        GPUFERRY_SIM_DEVICES=devices,
        GPUFERRY_FAKE_SEVERAL=behaviour,
        GPUFERRY_FAKE_ONCE=str(mark),
    )


@pytest.fixture
def spoilt(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[harness.Monitor, Path]]:
    """One whose API servers of several devices do not get ready once the file is there."""
    mark = tmp_path / "mark"
    with spoilable("2", request.param, mark) as monitor:
        monitor.wait_idle(2)
        yield monitor, mark
        monitor.wait_for(lambda status: is_whole(status) and len(status.servers) == 2, "both are free")


@pytest.mark.system
@pytest.mark.parametrize("spoilt", ["fail"], indirect=True)
def test_no_api_server_starts_for_a_child(spoilt: tuple[harness.Monitor, Path]) -> None:
    """It is told why, and its parent goes on."""
    monitor, mark = spoilt
    program = some_program()
    with Process(monitor, program, devices=2) as parent:
        mark.touch()
        with pytest.raises(Refused, match="no API server starts on GPUs 0, 1: no driver to be found"):
            Process(monitor, program, devices=2)
        assert parent.echo(b"works") == b"works"


@pytest.mark.system
@pytest.mark.parametrize("spoilt", ["mute"], indirect=True)
@pytest.mark.parametrize("parent_first", [False, True])
def test_a_child_that_leaves_meanwhile(spoilt: tuple[harness.Monitor, Path], parent_first: bool) -> None:
    """Its API server is gone with it, and with the last of them the lease."""
    monitor, mark = spoilt
    program = some_program()
    with Process(monitor, program, devices=2) as parent:
        mark.touch()
        with connect(monitor.address) as child:
            extensions = {PROGRAM: program}
            child.sendall(hello_frame(read_greeting(child), monitor.token, devices=2, extensions=extensions))
            monitor.wait_for(
                lambda status: (
                    len(status.servers) == 4
                    and [one.reason for one in status.queue]
                    == ["its API server on GPUs 0, 1 is being started"]
                ),
                "one is started for the child, which is said to wait for it",
            )
            if parent_first:
                parent.connection.close()
                monitor.wait_for(lambda status: not status.sessions, "the parent is gone")
        monitor.wait_for(lambda status: len(status.servers) == 3 - parent_first, "the child is gone")


@pytest.mark.parametrize("spoilt", ["mute"], indirect=True)
def test_a_child_whose_api_server_dies_when_its_parent_has_ended(
    spoilt: tuple[harness.Monitor, Path],
) -> None:
    """It shares nobody's place, and waited for one as long as it might, with all that the program had."""
    monitor, mark = spoilt
    program = some_program()
    with Process(monitor, program, devices=2) as parent, connect(monitor.address) as child:
        before = {server.pid for server in monitor.status().servers}
        mark.touch()
        extensions = {PROGRAM: program}
        child.sendall(hello_frame(read_greeting(child), monitor.token, devices=2, extensions=extensions))
        status = monitor.wait_for(
            lambda status: len({server.pid for server in status.servers} - {0}) == 4, "one is started for it"
        )
        parent.close()
        monitor.wait_for(lambda status: not status.sessions, "the parent is gone")
        (started,) = {server.pid for server in status.servers} - before
        os.kill(started, signal.SIGKILL)
        with pytest.raises(Refused, match="the other processes of its program have ended"):
            outcome(child)


@pytest.mark.system
def test_no_api_server_starts_where_a_program_is_to_go(tmp_path: Path) -> None:
    """All of its processes stay, and what was begun for them is gone."""
    mark = tmp_path / "mark"
    with spoilable("3", "fail", mark) as monitor:
        monitor.wait_idle(3)
        program, half = some_program(), frames.DEVICES_MAX << 20
        with (
            Process(monitor, program, devices=2, memory=half) as parent,
            Process(monitor, program, devices=2) as child,
        ):
            before = granted(monitor.status())
            mark.touch()
            refused = monitor.run("migrate", str(child.number), "--to", "gpu:1,2")
            assert "no API server starts on GPUs 1, 2: no driver to be found" in refused.stderr
            assert (parent.echo(b"1"), child.echo(b"2")) == (b"1", b"2")
            monitor.wait_for(
                lambda status: len(status.servers) == 5 and granted(status) == before,
                "nothing is left of those that were started",
            )


def test_a_process_that_comes_while_the_one_before_is_ending() -> None:
    """It is not told that there are two, and gets both devices when they are free."""
    program = {PROGRAM: some_program()}
    with harness.monitor("--pool", "1", GPUFERRY_SIM_DEVICES="2") as monitor:
        monitor.wait_idle(2)
        with guest(monitor, extensions=program) as first:
            os.kill(first.server_pid, signal.SIGSTOP)
            first.connection.close()
            with connect(monitor.address) as second:
                said = hello_frame(read_greeting(second), monitor.token, devices=2, extensions=program)
                second.sendall(said)
                monitor.wait_for(lambda status: len(status.sessions) == 1, "the first is still there")
                os.kill(first.server_pid, signal.SIGCONT)
                op, body = read_frame(second)
                while op == frames.Frame.QUEUED:
                    op, body = read_frame(second)
                assert op == frames.Frame.WELCOME
                lease, _ = frames.Membership.unpack(body[-frames.Membership.SIZE :])
                assert lease >= first.number  # it has joined that, or founds another
        monitor.wait_for(is_whole, "both are free")


def test_one_that_does_not_start() -> None:
    """The guest is told why, once a few have failed."""
    with harness.monitor("--pool", "1", GPUFERRY_SIM_DEVICES="2", GPUFERRY_FAKE_SEVERAL="fail") as monitor:
        monitor.wait_idle(2)
        with pytest.raises(Refused, match="no API server starts on GPUs 0, 1: no driver to be found"):
            guest(monitor)
        monitor.wait_for(is_whole, "both are free")


def test_what_failed_for_a_guest_is_forgotten_with_it() -> None:
    servers: list[Any] = [SimpleNamespace(key=key) for key in range(ATTEMPTS)]
    pool = MagicMock(divided=False, start_own=MagicMock(side_effect=servers))
    several, placement = Several(MagicMock(), pool), Placement(7, 0, 0, 1, (0, 1))
    waiting = Session(7, HELLO, "", None)
    for server in servers:
        assert several.begin(waiting, placement) is None
        assert several.lost(server) is waiting
    assert "no API server starts on GPUs 0, 1" in (several.begin(waiting, placement) or "")
    del waiting
    gc.collect()
    assert not several._failures


@pytest.mark.system
def test_another_api_server_must_stand_by_welcome() -> None:
    """One that does not is nobody's: the next guest of one device was given it, and had both."""
    with (
        harness.monitor("--pool", "1", GPUFERRY_SIM_DEVICES="2", GPUFERRY_FAKE_TERMS="1") as monitor,
        guest(monitor, meet=False, function=b"crash") as pair,
    ):
        with pytest.raises(Refused, match="another has other terms"):
            outcome(pair.connection)
        monitor.wait_for(lambda status: is_whole(status) and len(status.servers) == 2, "both are free")


def test_a_guest_that_leaves_meanwhile() -> None:
    """Its devices are free, and the API server that was being started for it is gone."""
    with harness.monitor("--pool", "1", GPUFERRY_SIM_DEVICES="2", GPUFERRY_FAKE_SEVERAL="mute") as monitor:
        monitor.wait_idle(2)
        with connect(monitor.address) as connection:
            connection.sendall(hello_frame(read_greeting(connection), monitor.token, devices=2))
            monitor.wait_for(lambda status: all(granted(status)), "it has both")
        monitor.wait_for(lambda status: is_whole(status) and len(status.servers) == 2, "both are free")


def test_single_sessions_go_on_beside_it(monitor: harness.Monitor) -> None:
    """Of a device with memory for both, nobody has to wait for the other."""
    half = frames.DEVICES_MAX << 20
    with guest(monitor, memory=half) as pair, guest(monitor, 1, memory=half) as single:
        assert (pair.echo(b"1"), single.echo(b"2")) == (b"1", b"2")
        assert sum(granted(monitor.status())) == 3 * half
