"""What a session outlives, and what it does not: monitors, redirects, guests that die, orders to end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from gpuferry.migration.frames import OPERATIONS
from gpuferry.specs._generated.frames import Frame

from tests.adversity.running import Program, digest, remote, zeros
from tests.helpers.tokens import token_of
from tests.monitor import harness
from tests.registry.running import registry

from .cutter import Cutter
from .frame_cutter import Cut, FrameCutter
from .running import RECONNECT

TOKEN = token_of("two monitors")
LONG = (
    "600"  # seconds, longer than any test waits: what is freed in time is not freed by the end of the grace
)
OPTIONS = ("--pool", "1", "--orphan-grace", "60", "--resume-grace", LONG)
MIB = 1 << 20
SIZE = 3 * MIB + 17


@pytest.fixture
def monitor() -> Iterator[harness.Monitor]:
    with harness.monitor(*OPTIONS, server=None, GPUFERRY_TOKEN=TOKEN) as running:
        running.wait_idle(1)
        yield running


def guest(monitor: harness.Monitor, address: str | None = None, **settings: str) -> Program:
    return remote(monitor, address, **RECONNECT, **settings)


def written(program: Program) -> int:
    """The address of what it holds on the device."""
    program.must("start")
    address = int(program.must("alloc", SIZE))
    program.must("write", address, SIZE, 1)
    assert program.must("read", address, SIZE) == digest(1, SIZE)
    return address


def goes_on(program: Program, address: int) -> None:
    """With all that it had; and ends as ever."""
    assert program.must("read", address, SIZE) == digest(1, SIZE)
    program.must("fill", address, SIZE, 0)
    assert program.must("read", address, SIZE) == zeros(SIZE)
    assert program.finish() == (0, "")


def disconnected(monitor: harness.Monitor) -> int:
    """The number of the one session, when the monitor shows that its guest is away."""
    status = monitor.wait_for(lambda s: s.sessions and s.sessions[0].disconnected, "a guest that is away")
    return int(status.sessions[0].id)


def is_free(monitor: harness.Monitor) -> None:
    monitor.wait_for(
        lambda s: not s.sessions and s.devices[0].memory_granted == 0 and s.devices[0].pool_idle, "all free"
    )


def test_a_restart_of_the_monitor(monitor: harness.Monitor) -> None:
    """It is away together with the connection; calls that were made meanwhile are made good."""
    with Cutter(monitor.tcp) as cutter, guest(monitor, cutter.address) as program:
        address = written(program)
        monitor.process.kill()
        cutter.cut()
        program.tell("fill", address, SIZE, 0)
        program.tell("read", address, SIZE)
        successor = monitor.succeed(*OPTIONS)
        assert program.answer() == (0, "")
        assert program.answer() == (0, zeros(SIZE))
        program.must("write", address, SIZE, 1)
        goes_on(program, address)
        assert cutter.connections > 1
        is_free(successor)


@pytest.mark.system
def test_an_api_server_that_finds_the_new_monitor_late(monitor: harness.Monitor) -> None:
    """The guest is there first, and must not be told that its session is over."""
    with Cutter(monitor.tcp) as cutter, guest(monitor, cutter.address) as program:
        address = written(program)
        (session,) = monitor.status().sessions
        os.kill(session.server_pid, signal.SIGSTOP)
        try:
            monitor.process.kill()
            cutter.cut()
            successor = monitor.succeed(*OPTIONS)
            asked = cutter.connections
            harness.wait_until(lambda: cutter.connections > asked + 1, "a guest that asks again")
        finally:
            os.kill(session.server_pid, signal.SIGCONT)
        goes_on(program, address)
        is_free(successor)


@pytest.mark.system
def test_a_session_that_a_registry_gave() -> None:
    """The guest comes back to the GPU server, not to the registry, which may be gone."""
    with registry() as running, Cutter("") as cutter:
        joined = ("--registry", running.control, "--cluster-key-file", running.key_file, "--http", "none")
        options = (*OPTIONS, *joined, "--advertise", cutter.address)
        with harness.monitor(*options, server=None) as monitor:
            cutter.target = monitor.tcp
            running.register(cutter.address)
            running.wait_for(cutter.address, alive=True)
            monitor.wait_idle(1)
            with guest(monitor, running.address, GPUFERRY_TOKEN=running.token) as program:
                address = written(program)
                before = cutter.connections
                running.kill()
                cutter.cut()
                goes_on(program, address)
                assert cutter.connections == before + 1
            is_free(monitor)


def test_who_closes_the_session_frees_it_at_once(monitor: harness.Monitor) -> None:
    """The grace is for those who lost their connection."""
    with guest(monitor) as program:
        address = written(program)
        assert not monitor.status().sessions[0].disconnected
        goes_on(program, address)
    is_free(monitor)


def test_a_connection_that_breaks_while_its_program_ends(monitor: harness.Monitor) -> None:
    """The guest goes only when the server has heard that, or is known to have ended the session."""
    close = OPERATIONS["sessionClose"]
    for cut in Cut(close, True, 8), Cut(close, True, 16), Cut(Frame.ACKNOWLEDGE, False, 8):
        with FrameCutter(monitor.tcp) as cutter, guest(monitor, cutter.address) as program:
            written(program)
            cutter.expect(cut)
            assert program.finish() == (0, "")
            assert cutter.is_done()
        is_free(monitor)


def test_a_guest_that_is_killed_is_away(monitor: harness.Monitor) -> None:
    """Nobody can know that it will not come; whoever does can end the session."""
    with guest(monitor) as program:
        written(program)
        program.process.kill()
        program.process.wait()
    number = disconnected(monitor)
    (session,) = monitor.status().sessions
    assert session.memory_mapped >= SIZE
    listed = monitor.run("session", "list")
    assert f"{number}" in listed.stdout
    assert "disconnected on gpu:0" in listed.stdout
    killed = monitor.run("session", "kill", str(number))
    assert killed.returncode == 0, killed.stderr
    is_free(monitor)


def test_a_session_that_was_ended_while_its_guest_was_away(monitor: harness.Monitor) -> None:
    """The guest gets an error when it comes back, and is told why."""
    with Cutter(monitor.tcp) as cutter, guest(monitor, cutter.address) as program:
        address = written(program)
        cutter.refusing = True
        cutter.cut()
        number = disconnected(monitor)
        program.tell("read", address, SIZE)
        assert monitor.run("session", "kill", str(number)).returncode == 0
        is_free(monitor)
        cutter.refusing = False
        assert program.answer()[0] != 0
        status, errors = program.finish()
        assert status == 0
        assert "could not be resumed: there is no such session" in errors


def test_an_end_during_an_outage(monitor: harness.Monitor) -> None:
    """The program does not wait for as long as its session would."""
    with Cutter(monitor.tcp) as cutter, guest(monitor, cutter.address) as program:
        written(program)
        cutter.refusing = True
        cutter.cut()
        disconnected(monitor)
        assert program.finish()[0] == 0


@pytest.mark.system
def test_the_grace_ends() -> None:
    """Also if a kernel runs for ever, and for a guest that still tries."""
    with harness.monitor("--pool", "1", "--resume-grace", "0.5", server=None) as monitor:
        with guest(monitor) as program:
            address = written(program)
            program.must("fill", address, SIZE, 0)
            program.must("spin", address)
            program.tell("sync")
            status = monitor.wait_for(lambda s: s.sessions[0].launches, "the launch, which is on its way")
            pid = status.sessions[0].server_pid
            program.process.kill()
            program.process.wait()
        status = monitor.wait_idle(1)
        assert pid not in {server.pid for server in status.servers}
        with Cutter(monitor.tcp) as cutter, guest(monitor, cutter.address) as program:
            address = written(program)
            cutter.refusing = True
            cutter.cut()
            assert program.call("read", address, SIZE)[0] != 0
            is_free(monitor)
            status, errors = program.finish()
            assert status == 0
            assert "could not be resumed" in errors


def test_a_monitor_without_grace_and_a_wrong_choice() -> None:
    """A break is the end then, as by default."""
    with harness.monitor("--pool", "1", "--resume-grace", "0", server=None) as monitor:
        for choice in ("reconnect", "retry"):
            with Cutter(monitor.tcp) as cutter:
                with remote(monitor, cutter.address, GPUFERRY_ON_LOSS=choice) as program:
                    address = written(program)
                    cutter.cut()
                    assert program.call("read", address, SIZE)[0] != 0
                    _, errors = program.finish()
                    assert "lost the GPU server" in errors
                    assert ("neither error nor reconnect" in errors) == (choice == "retry")
                assert cutter.connections == 1
            monitor.wait_idle(1)


def test_the_grace_is_bounded() -> None:
    """Memory that nobody uses is not kept for years."""
    refused = harness.gpuferry("/nonexistent", "monitor", "--resume-grace", "1e9")
    assert refused.returncode == 2
    assert "at most 86400 s" in refused.stderr
