"""Whatever fails at whatever step: nothing is half moved (migration/HAZARDS.md)."""

from __future__ import annotations

import hashlib
import os
import resource
import signal
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpuferry.specs._generated import node_pb2

from tests.apiserver import kernels
from tests.apiserver.guest import Guest, handle
from tests.apiserver.server import GIB, Server
from tests.migration.moving import (
    BEGINS,
    IMPATIENT,
    MEMORY,
    PRECOPY,
    SERVED,
    STARTS,
    STEPS,
    Faulty,
    Keeper,
    Work,
    ask_to_resume,
    close,
    comes_back,
    devices,
    expect,
    move,
    new_file,
    offer,
    order_move,
    settled,
    stayed,
    suspend,
    suspended,
)
from tests.monitor.harness import wait_until
from tests.resume.guest import counting

NOT_READY = 600


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Faulty]:
    """The same, for one test."""
    (tmp_path / "mortal").mkdir()
    with Faulty(tmp_path / "mortal", 0, **devices(MEMORY)) as server:
        server.ready()
        yield server


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Server]:
    """A destination for one test."""
    with Server(tmp_path / "victim.log", 1, **devices(MEMORY)) as server:
        server.ready()
        yield server


def begin(source: Server, destination: Server, guest: Guest) -> None:
    link = offer(destination, guest.session)
    order_move(source, [link], guest.session, PRECOPY, local={"device": 1})


def hear(server: Server) -> None:
    """It has heard what it was told when this returns."""
    server.order(stats={})
    expect(server, "stats")


def freeze(server: Server) -> None:
    """It stands still when this returns."""
    server.process.send_signal(signal.SIGSTOP)
    tasks = Path(f"/proc/{server.process.pid}/task")
    wait_until(lambda: all(state_of(task) == "T" for task in tasks.iterdir()), "all threads stand still")


def state_of(task: Path) -> str:
    """As the kernel has it; nothing, if the thread has just ended."""
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


@pytest.mark.some(2)
@pytest.mark.parametrize("step", STEPS)
def test_the_source_fails(faulty: Faulty, destination: Server, step: str) -> None:
    """Then the session stays, and can be moved as soon as nothing fails."""
    guest = faulty.connect()
    work = Work(guest)
    faulty.fail(step, "raise")
    moved = move(faulty, destination, guest.session, PRECOPY)
    assert "a fault that a test wanted" in moved.reason
    stayed(faulty, destination, moved)
    work.check()
    settled(faulty, destination, move(faulty, destination, guest.session, PRECOPY))
    work.check()
    close(guest, destination)


@pytest.mark.some(2)
@pytest.mark.parametrize("step", STEPS)
def test_the_source_dies(mortal: Faulty, destination: Server, step: str) -> None:
    """Its session ends with it, as without a migration. The destination is idle again."""
    guest = mortal.connect()
    Work(guest)
    mortal.fail(step, "kill")
    begin(mortal, destination, guest)
    assert guest.expect_end().text == ""
    assert expect(destination, "ended").ended.clean
    expect(destination, "ready")


def test_the_source_dies_after_the_take_over(mortal: Faulty, destination: Server) -> None:
    """Then the session is elsewhere, and nobody notices."""
    guest = mortal.connect()
    work = Work(guest)
    mortal.fail("take_over!", "kill")
    begin(mortal, destination, guest)
    expect(destination, "taken_over")
    assert mortal.wait_for_exit() == -signal.SIGKILL
    work.check()
    close(guest, destination)


@pytest.mark.some(2)
@pytest.mark.parametrize("step", STEPS)
def test_the_destination_dies(faulty: Faulty, victim: Server, step: str) -> None:
    guest = faulty.connect()
    work = Work(guest)
    held = faulty.at(step)
    begin(faulty, victim, guest)
    held.wait()
    victim.process.kill()
    victim.process.wait()
    held.go()
    moved = expect(faulty, "moved").moved
    assert not moved.moved
    assert not moved.lost
    assert "link" in moved.reason
    work.check()
    close(guest, faulty)


def test_the_destination_hangs_before_its_welcome(faulty: Faulty, tmp_path: Path) -> None:
    guest = faulty.connect()
    work = Work(guest)
    (tmp_path / "hesitant").mkdir()
    with Faulty(tmp_path / "hesitant", 1, **devices(MEMORY)) as hesitant:
        hesitant.ready()
        hangs, begins = hesitant.at(STARTS), faulty.at(BEGINS)
        begin(faulty, hesitant, guest)
        hangs.wait()
        begins.go(set=IMPATIENT)
        moved = expect(faulty, "moved").moved
        hangs.go()
        assert "silent for 1 s" in moved.reason
        stayed(faulty, hesitant, moved)
    work.check()
    close(guest, faulty)


@pytest.mark.some(1)
@pytest.mark.parametrize("step", ["rebuild", "precopy", "catch_up", "verify"])
def test_the_destination_hangs(faulty: Faulty, destination: Server, step: str) -> None:
    guest = faulty.connect()
    work = Work(guest)
    held = faulty.at(step)
    begin(faulty, destination, guest)
    held.wait()
    freeze(destination)
    held.go(set=IMPATIENT)
    moved = expect(faulty, "moved").moved
    destination.process.send_signal(signal.SIGCONT)
    assert "silent for 1 s" in moved.reason
    stayed(faulty, destination, moved)
    work.check()
    close(guest, faulty)


def test_the_destination_hangs_at_the_take_over(faulty: Faulty, destination: Server) -> None:
    """The source cannot know, so it never serves the session again; the destination does when it is back."""
    guest = faulty.connect()
    work = Work(guest)
    held = faulty.at("take_over")
    begin(faulty, destination, guest)
    held.wait()
    freeze(destination)
    held.go(set=IMPATIENT)
    moved = expect(faulty, "moved").moved
    assert moved.lost
    assert not moved.moved
    assert expect(faulty, "ended").ended.reason == "moved"
    expect(faulty, "ready")
    destination.process.send_signal(signal.SIGCONT)
    expect(destination, "taken_over")
    work.check()
    close(guest, destination)


@pytest.mark.some(5)
@pytest.mark.parametrize("step", STEPS)
def test_the_program_ends(faulty: Faulty, destination: Server, step: str) -> None:
    """A migration does not keep it from ending, and its session ends where it is."""
    guest = faulty.connect()
    Work(guest)
    held = faulty.at(step)
    begin(faulty, destination, guest)
    held.wait()
    guest.close()
    hear(faulty)
    held.go()
    moved = expect(faulty, "moved").moved
    ended = expect(faulty, "ended").ended
    assert (ended.reason, ended.clean) == ("closed", True)
    expect(faulty, "ready")
    stayed(faulty, destination, moved)


def test_the_program_ends_when_its_session_is_elsewhere(faulty: Faulty, destination: Server) -> None:
    """Who had it has yet to leave; it does not end it a second time."""
    guest = faulty.connect()
    Work(guest)
    held = faulty.at("leave")
    begin(faulty, destination, guest)
    held.wait()
    expect(destination, "taken_over")
    guest.close()
    assert expect(destination, "ended").ended.reason == "closed"
    expect(destination, "ready")
    hear(faulty)
    held.go()
    assert expect(faulty, "moved").moved.moved
    assert expect(faulty, "ended").ended.reason == "moved"
    expect(faulty, "ready")


@pytest.mark.parametrize("step", ["rebuild", "precopy", "catch_up"])
def test_an_operator_stops_it(faulty: Faulty, destination: Server, step: str) -> None:
    guest = faulty.connect()
    work = Work(guest)
    held = faulty.at(step)
    begin(faulty, destination, guest)
    held.wait()
    faulty.order(cancel={"session": guest.session, "reason": "changed my mind"})
    hear(faulty)
    held.go()
    moved = expect(faulty, "moved").moved
    assert moved.reason == "changed my mind"
    stayed(faulty, destination, moved)
    work.check()
    close(guest, faulty)


def test_an_operator_ends_the_session(faulty: Faulty, destination: Server) -> None:
    guest = faulty.connect()
    Work(guest)
    held = faulty.at("precopy")
    begin(faulty, destination, guest)
    held.wait()
    faulty.order(revoke={"session": guest.session, "reason": "enough"})
    hear(faulty)
    held.go()
    moved = expect(faulty, "moved").moved
    assert moved.reason == "revoked: enough"
    assert guest.expect_end().text == "revoked: enough"
    assert expect(faulty, "ended").ended.reason == "revoked: enough"
    expect(faulty, "ready")
    stayed(faulty, destination, moved)


def test_the_monitor_dies(tmp_path: Path, destination: Server) -> None:
    """Source and destination finish alone, and the next monitor hears of it."""
    door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    (tmp_path / "faulty").mkdir()
    with door, Faulty(tmp_path / "faulty", 0, **devices(MEMORY)) as source:
        door.bind(str(tmp_path / "door"))
        door.listen()
        source.ready()
        order = node_pb2.ToServer(home=node_pb2.Home(grace_seconds=120)).SerializeToString()
        socket.send_fds(source.control, [order], [door.fileno()])
        guest = source.connect()
        work = Work(guest)
        held = source.at("precopy")
        begin(source, destination, guest)
        held.wait()
        source.control.close()
        source.control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        source.control.connect(str(tmp_path / "door"))
        returned = expect(source, "returned").returned
        assert returned.grant.session == returned.migrating.session == guest.session
        assert returned.migrating.local.device == 1
        held.go()
        settled(source, destination, expect(source, "moved").moved)
        work.check()
        close(guest, destination)
        source.order(shutdown={})


@pytest.mark.system
def test_too_little_memory_there(source: Server, tmp_path: Path) -> None:
    guest = source.connect()
    work = Work(guest, pages=40)
    with Server(tmp_path / "log", 1, **devices("64MiB")) as small:
        small.ready()
        moved = move(source, small, guest.session)
        assert moved.reason == "the destination has not enough free memory"
        stayed(source, small, moved)
        work.check()
        close(guest, source)


def test_too_small_a_quota_there(source: Server, destination: Server) -> None:
    guest = source.connect()
    work = Work(guest)
    moved = move(source, destination, guest.session, memory_quota=GIB // 2)
    assert moved.reason == "the destination grants 512 MiB, the session may use 1024 MiB"
    stayed(source, destination, moved)
    work.check()
    close(guest, source)


def test_a_kernel_that_runs_on(source: Server, destination: Server) -> None:
    """The migration waits for it as long as it may, and then leaves the program alone."""
    guest = source.connect()
    work = Work(guest)
    flag = guest.map(1, at=50)
    waiter = handle("kernel", 7)
    index = work.names.index("wait_for")
    guest.send("sessionGetFunction", function=waiter, owner=kernels.LIBRARY, index=index)
    other = handle("stream", 5)
    guest.send("cuStreamCreateWithPriority", phStream=other, flags=1, priority=0)
    guest.launch(waiter, struct.pack("<QQ", flag, flag + 8), block=(1, 1, 1), stream=other)
    assert guest.call("cuStreamQuery", hStream=other).status == NOT_READY  # it has been launched, for sure
    moved = move(source, destination, guest.session, drain_seconds=0.3)
    assert "0.3 s" in moved.reason
    stayed(source, destination, moved)
    guest.write(flag, b"\1\0\0\0", work.stream)
    assert guest.call("cuStreamSynchronize", hStream=other).status == 0
    settled(source, destination, move(source, destination, guest.session, drain_seconds=120))
    work.check()
    close(guest, destination)


def test_a_device_that_has_failed(source: Server, destination: Server, tmp_path: Path) -> None:
    with Server(tmp_path / "log", 0, **devices(MEMORY)) as doomed:
        doomed.ready()
        guest = doomed.connect()
        work = Work(guest)
        guest.launch(work.kernel, struct.pack("<QI", 8, 1))
        guest.sync()
        moved = move(doomed, destination, guest.session)
        assert "device has failed" in moved.reason
        stayed(doomed, destination, moved)


def test_a_program_that_uses_the_device_heap(source: Server, destination: Server) -> None:
    """What kernels allocate nobody can enumerate, so it stays here."""
    guest = source.connect()
    work = Work(guest)
    text = kernels.PTX[:-1] + b"\n.extern .func (.param .b64 r) malloc (.param .b64 s);\n\0"
    reply, _, log = guest.load(text, handle("library", 9), hashlib.sha256(text).digest())
    assert reply.status == 0, log
    moved = move(source, destination, guest.session)
    assert "malloc" in moved.reason
    stayed(source, destination, moved)
    work.check()
    assert guest.call("cuLibraryUnload", library=handle("library", 9)).status == 0
    settled(source, destination, move(source, destination, guest.session))
    work.check()
    close(guest, destination)


@pytest.mark.system
@pytest.mark.some(1)
@pytest.mark.parametrize("limit", [1 << 12, 5 << 20, 9 << 20])
def test_the_disk_is_full(mortal: Faulty, tmp_path: Path, limit: int) -> None:
    """The program goes on as if nothing had been; nothing is left of the file."""
    guest = mortal.connect()
    work = Work(guest)
    before = resource.prlimit(mortal.process.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    (tmp_path / "files").mkdir()
    with Keeper(tmp_path / "keeper.log") as keeper:
        moved = suspend(mortal, keeper, guest.session, tmp_path / "files" / "file")
        assert not moved.moved
        assert "cannot write" in moved.reason
        assert keeper.wait_for_exit() == 0
    assert list((tmp_path / "files").iterdir()) == []
    work.check()
    resource.prlimit(mortal.process.pid, resource.RLIMIT_FSIZE, before)
    with Keeper(tmp_path / "keeper.log") as keeper:
        suspended(mortal, keeper, suspend(mortal, keeper, guest.session, tmp_path / "files" / "file"))


@pytest.mark.some(1)
@pytest.mark.parametrize("step", [step for step in STEPS if step != "precopy"])  # files know none
def test_the_source_fails_to_suspend(faulty: Faulty, tmp_path: Path, step: str) -> None:
    guest = faulty.connect()
    work = Work(guest)
    (tmp_path / "files").mkdir()
    faulty.fail(step, "raise")
    with Keeper(tmp_path / "keeper.log") as keeper:
        moved = suspend(faulty, keeper, guest.session, tmp_path / "files" / "file")
        assert "a fault that a test wanted" in moved.reason
        assert keeper.wait_for_exit() == 0
    assert list((tmp_path / "files").iterdir()) == []
    work.check()
    close(guest, faulty)


@pytest.mark.some(1)
@pytest.mark.parametrize("step", ["rebuild", "hold", "take_over"])
def test_the_keeper_dies_before_it_has_the_guest(faulty: Faulty, tmp_path: Path, step: str) -> None:
    guest = faulty.connect()
    work = Work(guest)
    (tmp_path / "files").mkdir()
    held = faulty.at(step)
    with Keeper(tmp_path / "keeper.log") as keeper:
        target = new_file(tmp_path / "files" / "file")
        order_move(faulty, [keeper.keep(guest.session, file=target)], guest.session, file=target)
        held.wait()
        keeper.process.kill()
        keeper.process.wait()
        held.go()
        moved = expect(faulty, "moved").moved
    assert "keeper" in moved.reason
    wait_until(lambda: not list((tmp_path / "files").iterdir()), "the end of what was written")
    work.check()
    close(guest, faulty)


def test_a_damaged_file(source: Server, destination: Server, tmp_path: Path) -> None:
    """Nothing of it is played; the session stays suspended, and goes on if the file is mended."""
    guest = source.connect()
    work = Work(guest)
    path = tmp_path / "file"
    with Keeper(tmp_path / "keeper.log") as keeper:
        suspended(source, keeper, suspend(source, keeper, guest.session, path))
        content = bytearray(path.read_bytes())
        content[-len(content) // 2] ^= 4
        path.write_bytes(content)
        moved = keeper.play(guest.session, path, destination)
        assert "damaged" in moved.reason
        stayed(source, destination, moved)
        content[-len(content) // 2] ^= 4
        path.write_bytes(content)
        assert keeper.play(guest.session, path, destination).moved
        expect(destination, "taken_over")
    work.check()
    close(guest, destination)


def test_the_destination_dies_while_a_file_is_played(
    source: Server, destination: Server, victim: Server, tmp_path: Path
) -> None:
    guest = source.connect()
    work = Work(guest)
    path = tmp_path / "file"
    with Keeper(tmp_path / "keeper.log") as keeper:
        suspended(source, keeper, suspend(source, keeper, guest.session, path))
        link = offer(victim, guest.session)
        freeze(victim)
        keeper.order_to_play(guest.session, path, link)
        os.kill(victim.process.pid, signal.SIGKILL)
        moved = expect(keeper, "moved").moved
        assert not moved.moved
        assert not moved.lost
        assert keeper.play(guest.session, path, destination).moved
        expect(destination, "taken_over")
    work.check()
    close(guest, destination)


def test_the_program_comes_back_on_another_connection(faulty: Faulty, destination: Server) -> None:
    """A connection that breaks meanwhile ends the migration, not the session."""
    guest = faulty.connect(resume_seconds=60)
    held = faulty.at("precopy")
    begin(faulty, destination, guest)
    held.wait()
    guest.socket = ask_to_resume(faulty, guest, 0)
    hear(faulty)
    held.go()
    moved = expect(faulty, "moved").moved
    assert "lost its connection" in moved.reason
    assert guest.socket.recv(56, socket.MSG_WAITALL)[16:] == b"r" * 32 + bytes(8)
    stayed(faulty, destination, moved)
    assert guest.sync().status == 0
    close(guest, faulty)


def test_the_program_comes_back_to_where_its_session_just_was(faulty: Faulty, destination: Server) -> None:
    """Nobody tells it that the session is over: it asks again, and the monitor knows more by then."""
    guest = counting(faulty.connect(resume_seconds=60))
    work = Work(guest)
    held = faulty.at(SERVED)
    moved = move(faulty, destination, guest.session, resume_seconds=60)
    assert moved.moved, moved
    held.wait()
    with ask_to_resume(faulty, guest, guest.received) as answer:
        assert answer.recv(1) == b""
    assert comes_back(destination, guest) == guest.sent
    held.go()
    settled(faulty, destination, moved)
    work.check()
    close(guest, destination)
