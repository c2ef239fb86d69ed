"""Processes that die: what they held is free again at once, and whoever depended on them is told."""

from __future__ import annotations

import os
import signal
import struct
import threading
from collections.abc import Callable

import pytest

from tests.adversity.sessions import PAGE, Bystander, back_again, each_promise, open_session, session
from tests.apiserver import kernels
from tests.apiserver.guest import handle
from tests.helpers import processes
from tests.helpers.tokens import token_of
from tests.monitor import harness


def own_process(monitor: harness.Monitor, number: int) -> int:
    (found,) = [s.server_pid for s in monitor.status().sessions if s.id == number]
    return int(found)


@pytest.mark.system
@each_promise
def test_a_guest_that_vanishes_frees_everything(
    monitor: harness.Monitor, bystander: Bystander, within: float | None
) -> None:
    def vanish() -> Callable[[], object]:
        guest = open_session(monitor)
        address = guest.map(64)
        for offset in range(0, 64 * PAGE, PAGE):
            guest.write(address + offset, bytes(PAGE))
        number = guest.session
        monitor.wait_for(
            lambda status: [s for s in status.sessions if s.id == number and s.memory_mapped == 64 * PAGE],
            "memory in use",
        )
        guest.socket.close()
        return lambda: monitor.wait_idle(1)

    back_again(vanish, within)
    (left,) = monitor.status().sessions
    assert left.program == "bystander"
    bystander.is_fine()


def test_an_api_server_that_is_killed(monitor: harness.Monitor, bystander: Bystander) -> None:
    guest = open_session(monitor)
    pid = own_process(monitor, guest.session)
    with guest.socket:
        guest.map()
        os.kill(pid, signal.SIGKILL)
        guest.expect_end()
    status = monitor.wait_for(
        lambda status: status.devices[0].pool_idle == 1 and pid not in {s.pid for s in status.servers},
        "replacement",
    )
    assert len(status.servers) == 2
    bystander.is_fine()


@pytest.mark.system
@pytest.mark.parametrize("at", ["stopped", "in a kernel"])
def test_an_api_server_that_hangs_when_its_guest_is_killed(
    monitor: harness.Monitor, bystander: Bystander, at: str
) -> None:
    """It is stopped as a process that hangs in a driver; once with a kernel under way that does not end."""
    guest = open_session(monitor)
    pid = own_process(monitor, guest.session)
    address = guest.map(64)
    if at == "in a kernel":
        kernels.bind(guest, "wait_for")
        guest.launch(handle("kernel", 0), struct.pack("<QQ", address, address + 8), block=(1, 1, 1))
        guest.call("cuStreamQuery", hStream=0)
    os.kill(pid, signal.SIGSTOP)
    guest.socket.close()
    status = monitor.wait_idle(1)
    assert [session.program for session in status.sessions] == ["bystander"]
    assert pid not in {server.pid for server in status.servers}
    bystander.is_fine()


def test_an_idle_api_server_that_is_killed(monitor: harness.Monitor, bystander: Bystander) -> None:
    (idle,) = [server.pid for server in monitor.status().servers if not server.session]
    os.kill(idle, signal.SIGKILL)
    monitor.wait_for(
        lambda status: status.devices[0].pool_idle == 1 and idle not in {s.pid for s in status.servers},
        "replacement",
    )
    bystander.is_fine()


def test_an_api_server_that_is_stopped_holds_up_only_its_guest(monitor: harness.Monitor) -> None:
    with session(monitor) as other, session(monitor) as stuck:
        pid = own_process(monitor, stuck.session)
        os.kill(pid, signal.SIGSTOP)
        try:
            Bystander(other).is_fine()
            assert len(monitor.status().sessions) == 2
        finally:
            os.kill(pid, signal.SIGCONT)
        Bystander(stuck).is_fine()


@pytest.mark.system
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_end_of_the_monitor_is_the_end_of_all(number: signal.Signals) -> None:
    with harness.monitor("--pool", "2", server=None) as monitor:
        monitor.wait_idle(2)
        guest = open_session(monitor)
        with guest.socket:
            guest.map(4)
            guest.sync()
            below = processes.descendants(monitor.process.pid)
            assert len(below) >= 3
            monitor.channel.close()
            monitor.process.send_signal(number)
            monitor.process.wait(harness.DEADLINE)
            guest.expect_end()
        harness.wait_until(lambda: not harness.alive(below), "end of all processes")


def test_sessions_outlive_their_monitor() -> None:
    """Killed under load, and followed by another: nothing is lost, and the next guest finds a warm server."""
    token = token_of("both monitors")
    options = ("--pool", "3", "--orphan-grace", "60")
    with harness.monitor(*options, server=None, GPUFERRY_TOKEN=token) as monitor:
        monitor.wait_idle(3)
        servers = {server.pid for server in monitor.status().servers}
        with session(monitor) as busy, session(monitor, memory=256 * PAGE) as quiet:
            at_work, at_rest = Bystander(busy), Bystander(quiet)
            stop = threading.Event()

            def work() -> None:
                while not stop.is_set():
                    at_work.is_fine()

            worker = threading.Thread(target=work)
            worker.start()
            monitor.process.kill()
            monitor.process.wait(harness.DEADLINE)
            at_rest.is_fine()
            monitor = monitor.succeed(*options, constants=harness.PATIENT)
            status = monitor.wait_for(
                lambda status: len(status.sessions) == 2 and status.devices[0].pool_idle == 1, "adoption"
            )
            assert {server.pid for server in status.servers} == servers
            assert {one.id for one in status.sessions} == {busy.session, quiet.session}
            with session(monitor) as new:
                Bystander(new).is_fine()
            stop.set()
            worker.join(harness.DEADLINE)
            assert not worker.is_alive()
            at_work.is_fine()
            at_rest.is_fine()
            monitor.wait_for(
                lambda status: [s for s in status.sessions if s.id == busy.session and s.calls_sync > 3],
                "what it has done before and since",
            )
        status = monitor.wait_idle(3)
        assert not status.sessions
        assert status.devices[0].memory_granted == 0
        assert {server.pid for server in status.servers} == servers
        assert monitor.stop() == 0
        harness.wait_until(lambda: not harness.alive(servers), "end of all API servers")


def test_a_session_that_ends_without_a_monitor_is_reported_to_the_next() -> None:
    token = token_of("both monitors")
    options = ("--pool", "1", "--orphan-grace", "60")
    with harness.monitor(*options, server=None, GPUFERRY_TOKEN=token) as monitor:
        server = monitor.wait_idle(1).servers[0].pid
        with session(monitor) as guest:
            Bystander(guest).is_fine()
            monitor.process.kill()
            monitor.process.wait(harness.DEADLINE)
        monitor = monitor.succeed(*options, constants=harness.PATIENT)
        assert monitor.wait_idle(1).servers[0].pid == server
        monitor.wait_for_log('"session ended"')


def test_without_another_monitor_all_ends() -> None:
    """Idle API servers after the grace; one with a session when that is over, even if it takes longer."""
    with harness.monitor("--pool", "2", "--orphan-grace", "0.3", server=None) as monitor:
        monitor.wait_idle(2)
        guest = open_session(monitor)
        servers = {server.pid: bool(server.session) for server in monitor.status().servers}
        below = processes.descendants(monitor.process.pid)
        other = Bystander(guest)
        monitor.channel.close()
        monitor.process.kill()
        monitor.process.wait(harness.DEADLINE)
        idle = {pid for pid, busy in servers.items() if not busy}
        harness.wait_until(lambda: not harness.alive(idle), "end of the idle API server")
        other.is_fine()
        guest.close()
        harness.wait_until(lambda: not harness.alive(below), "end of all processes")


def test_sessions_leave_nothing_behind(monitor: harness.Monitor) -> None:
    def resources() -> dict[int, int]:
        return {s.pid: len(os.listdir(f"/proc/{s.pid}/fd")) for s in monitor.status().servers}

    for _ in range(4):
        with session(monitor) as guest:
            guest.map(8)
        monitor.wait_idle(2)
    before = resources()
    for _ in range(40):
        with session(monitor) as guest:
            Bystander(guest).is_fine()
    status = monitor.wait_idle(2)
    after = resources()
    assert after.keys() == before.keys(), "an API server was not clean after a harmless session"
    assert all(after[pid] <= before[pid] + 2 for pid in before)
    for server in status.servers:
        assert server.rss < 120 << 20
