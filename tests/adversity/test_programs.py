"""Real programs under the guest library: whatever breaks, calls answer, and nothing is silently wrong."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.adversity.running import Program, digest, native, remote, zeros
from tests.adversity.sessions import Bystander, back_again, each_promise, session
from tests.helpers import processes
from tests.helpers.proxy import Proxy
from tests.monitor import harness

MIB = 1 << 20
pytestmark = pytest.mark.sanitize
SIZE = 3 * MIB + 17


@pytest.fixture
def program(monitor: harness.Monitor) -> Iterator[Program]:
    with remote(monitor) as running:
        yield running


def server_of(monitor: harness.Monitor, program: Program) -> int:
    (pid,) = [s.server_pid for s in monitor.status().sessions if s.guest_pid == program.process.pid]
    return int(pid)


def spinning(monitor: harness.Monitor, program: Program) -> int:
    """Its API server, once that has the kernel: a launch is on its way when the call returns."""
    pid = program.process.pid
    monitor.wait_for(
        lambda s: [one for one in s.sessions if one.guest_pid == pid and one.launches], "a launch"
    )
    return server_of(monitor, program)


def works(program: Program) -> int:
    """A round of calls with known answers; the address that was used."""
    address = int(program.must("alloc", SIZE))
    program.must("write", address, SIZE, 1)
    assert program.must("read", address, SIZE) == digest(1, SIZE)
    program.must("fill", address, SIZE, 0)
    assert program.must("read", address, SIZE) == zeros(SIZE)
    return address


def fails_until_the_end(program: Program, address: int) -> None:
    """Every call answers with an error, and the program can still end by itself."""
    program.call("read", address, 64)
    program.call("write", address, SIZE, 2)
    program.call("alloc", MIB)
    assert program.call("sync")[0] != 0
    assert program.call("read", address, 64)[0] != 0
    status, errors = program.finish()
    assert status == 0, errors


@pytest.mark.parametrize("where", ["native", "remote"])
def test_the_program_itself(monitor: harness.Monitor, where: str) -> None:
    with native() if where == "native" else remote(monitor) as program:
        program.must("start")
        program.must("free", works(program))
        assert program.finish() == (0, "")


@pytest.mark.system
@each_promise
def test_a_guest_killed_in_mid_copy(
    monitor: harness.Monitor, bystander: Bystander, within: float | None
) -> None:
    def kill() -> Callable[[], object]:
        with remote(monitor) as program:
            program.must("start")
            address = int(program.must("alloc", 64 * MIB))
            program.must("copy_forever", address, 64 * MIB)
            pid = program.process.pid
            monitor.wait_for(
                lambda status: [s for s in status.sessions if s.guest_pid == pid and s.bytes_in > 128 * MIB],
                "copies under way",
            )
            program.process.send_signal(signal.SIGKILL)
            program.process.wait()
        return lambda: monitor.wait_idle(1)

    back_again(kill, within)
    (left,) = monitor.status().sessions
    assert left.program == "bystander"
    bystander.is_fine()


@each_promise
def test_a_guest_killed_while_its_kernel_runs(
    monitor: harness.Monitor, bystander: Bystander, within: float | None
) -> None:
    """The kernel never ends: its API server has to go, and another to come."""

    def kill() -> Callable[[], object]:
        with remote(monitor) as program:
            program.must("start")
            address = int(program.must("alloc", MIB))
            program.must("fill", address, MIB, 0)
            program.must("spin", address)
            program.tell("sync")
            pid = spinning(monitor, program)
            program.process.send_signal(signal.SIGKILL)
            program.process.wait()
        return lambda: monitor.wait_for(
            lambda status: status.devices[0].pool_idle == 1 and pid not in {s.pid for s in status.servers},
            "replacement",
        )

    back_again(kill, within)
    bystander.is_fine()


@pytest.mark.some(1)
@pytest.mark.parametrize("waiting", [False, True], ids=["between calls", "in a call"])
def test_an_api_server_that_is_killed(
    monitor: harness.Monitor, bystander: Bystander, program: Program, waiting: bool
) -> None:
    program.must("start")
    address = works(program)
    if waiting:
        program.must("fill", address, MIB, 0)
        program.must("spin", address)
        program.tell("sync")
    server = server_of(monitor, program)
    os.kill(server, signal.SIGKILL)
    harness.wait_until(lambda: not harness.alive({server}), "end of it")
    if waiting:
        assert program.answer()[0] != 0
    fails_until_the_end(program, address)
    monitor.wait_idle(1)
    bystander.is_fine()


def test_the_monitor_is_killed(tmp_path: Path) -> None:
    """Nothing that it started is left, the compiler of the simulated device included."""
    with (
        harness.monitor("--pool", "1", server=None, GPUFERRY_SIM_CACHE=str(tmp_path)) as monitor,
        remote(monitor) as program,
    ):
        program.must("start")
        address = works(program)
        program.must("fill", address, MIB, 1)
        program.must("spin", address)  # ends at once: but it had to be compiled
        program.must("sync")
        below = processes.descendants(monitor.process.pid)
        monitor.process.kill()
        monitor.process.wait()
        harness.wait_until(lambda: not harness.alive(below), "end of all processes")
        fails_until_the_end(program, address)


def test_each_device_has_its_own_memory() -> None:
    """Two simulated devices, one session on each, the same addresses in both."""
    with harness.monitor("--pool", "1", server=None, GPUFERRY_SIM_DEVICES="2") as monitor:
        monitor.wait_idle(2)
        with remote(monitor) as one, remote(monitor) as two:
            addresses = []
            for seed, program in enumerate((one, two)):
                program.must("start")
                addresses.append(int(program.must("alloc", SIZE)))
                program.must("write", addresses[-1], SIZE, seed)
            assert addresses[0] == addresses[1]
            assert one.must("read", addresses[0], SIZE) == digest(0, SIZE)
            assert two.must("read", addresses[1], SIZE) == digest(1, SIZE)
            assert {session.device for session in monitor.status().sessions} == {0, 1}


def test_the_connection_is_cut(monitor: harness.Monitor, bystander: Bystander) -> None:
    with Proxy(monitor.tcp) as proxy, remote(monitor, proxy.address) as program:
        program.must("start")
        address = works(program)
        program.tell("write", address, SIZE, 3)
        proxy.cut()
        program.answer()
        fails_until_the_end(program, address)
        assert proxy.connections == 1
    bystander.is_fine()


def test_the_connection_stalls(monitor: harness.Monitor) -> None:
    with Proxy(monitor.tcp) as proxy, remote(monitor, proxy.address) as program:
        program.must("start")
        address = works(program)
        proxy.stall()
        for seed in range(2, 6):
            program.tell("write", address, SIZE, seed)
        program.tell("read", address, SIZE)
        with session(monitor) as other:
            Bystander(other).is_fine()
        proxy.resume()
        for _ in range(4):
            assert program.answer()[0] == 0
        assert program.answer() == (0, digest(5, SIZE))
        assert program.finish() == (0, "")


@pytest.mark.parametrize("crumbs", [1, 7, 1000])
def test_bytes_arrive_in_crumbs(monitor: harness.Monitor, crumbs: int) -> None:
    size = {1: 3000, 7: 30_000}.get(crumbs, SIZE)
    with Proxy(monitor.tcp, crumbs) as proxy, remote(monitor, proxy.address) as program:
        program.must("start")
        address = int(program.must("alloc", size))
        program.must("write", address, size, 9)
        assert program.must("read", address, size) == digest(9, size)
        assert program.finish() == (0, "")


@pytest.mark.parametrize(
    ("settings", "status", "words"),
    [
        ({"GPUFERRY_TOKEN": "0" * 64}, 800, "token"),
        ({"GPUFERRY_TOKEN": "", "GPUFERRY_TOKEN_FILE": ""}, 800, "no token is set"),
        ({"GPUFERRY_MEMORY": str(1 << 50)}, 2, "memory"),
        ({"GPUFERRY_MONITOR": "127.0.0.1:9"}, None, "127.0.0.1:9"),
    ],
    ids=["wrong token", "no token", "too much memory", "nobody there"],
)
def test_no_session(
    monitor: harness.Monitor, settings: dict[str, str], status: int | None, words: str
) -> None:
    """The program gets a CUDA error, its user a reason."""
    with remote(monitor, **settings) as program:
        answered, _ = program.call("start")
        assert answered != 0
        assert status is None or answered == status
        assert program.call("alloc", MIB)[0] != 0
        code, errors = program.finish()
        assert code == 0
        assert words in errors
        assert (settings.get("GPUFERRY_TOKEN") or "none") not in errors


def test_memory_is_zero_for_the_next_program(monitor: harness.Monitor) -> None:
    for _ in range(3):
        with remote(monitor) as program:
            program.must("start")
            address = int(program.must("alloc", 32 * MIB))
            assert program.must("read", address, 32 * MIB) == zeros(32 * MIB)
            program.must("fill", address, 32 * MIB, 0xA5)
            assert program.finish() == (0, "")
        monitor.wait_idle(2)


def test_out_of_memory_is_the_quotas(monitor: harness.Monitor, bystander: Bystander) -> None:
    with remote(monitor, GPUFERRY_MEMORY=str(64 * MIB)) as program:
        program.must("start")
        assert program.call("alloc", 65 * MIB)[0] == 2
        address = int(program.must("alloc", 64 * MIB))
        assert program.call("alloc", 2 * MIB)[0] == 2
        program.must("free", address)
        works(program)
        assert program.finish() == (0, "")
    bystander.is_fine()
