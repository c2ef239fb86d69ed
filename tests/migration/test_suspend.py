"""Into a file and out of it: on the same device, on another one, after a while."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpuferry.specs._generated import frames, handover_pb2, node_pb2

from tests.apiserver.guest import HEADER, encode
from tests.apiserver.server import DEADLINE, Server
from tests.migration.moving import (
    PAGE,
    Keeper,
    Work,
    close,
    comes_back,
    expect,
    key_of,
    new_file,
    offer,
    order,
    order_move,
    stayed,
    suspend,
    suspended,
)
from tests.migration.test_failures import freeze
from tests.migration.test_remote import KEY, connect, follow, welcome
from tests.resume.guest import CountingGuest, counting

GRACE = 60.0
DAY = 86400.0
Resumable = tuple[CountingGuest, Work]


@pytest.mark.parametrize("where", ["destination", "source"])
def test_suspended_and_resumed(source: Server, destination: Server, tmp_path: Path, where: str) -> None:
    resumed = {"source": source, "destination": destination}[where]
    guest = source.connect()
    work = Work(guest)
    with Keeper(tmp_path / "keeper.log") as keeper:
        suspended(source, keeper, suspend(source, keeper, guest.session, tmp_path / "file"))
        waiting = guest.ask_read(work.memory, PAGE)  # the program goes on until it needs an answer
        moved = keeper.play(guest.session, tmp_path / "file", resumed)
        assert moved.moved, moved
        # It waited all the time, so this was no pause.
        assert (moved.report.pause_seconds, moved.report.pause_bytes) == (0, 0)
        assert moved.report.copied_bytes > 0
        assert guest.answer(waiting).payload == work.contents[0]
        expect(resumed, "taken_over")
        assert keeper.wait_for_exit() == 0
    work.check()
    close(guest, resumed)


def test_the_program_ends_while_it_is_suspended(source: Server, tmp_path: Path) -> None:
    guest = source.connect()
    Work(guest)
    with Keeper(tmp_path / "keeper.log") as keeper:
        suspended(source, keeper, suspend(source, keeper, guest.session, tmp_path / "file"))
        guest.close()
        assert expect(keeper, "ended").ended.reason == "closed"
        assert keeper.wait_for_exit() == 0


def test_an_operator_ends_what_is_suspended(source: Server, tmp_path: Path) -> None:
    guest = source.connect()
    Work(guest)
    with Keeper(tmp_path / "keeper.log") as keeper:
        suspended(source, keeper, suspend(source, keeper, guest.session, tmp_path / "file"))
        keeper.order(revoke={"session": guest.session, "reason": "enough"})
        assert guest.expect_end().text == "revoked: enough"
        assert expect(keeper, "ended").ended.reason == "revoked: enough"


def test_a_suspended_session_costs_next_to_nothing(source: Server, tmp_path: Path) -> None:
    guest = source.connect()
    Work(guest)
    with Keeper(tmp_path / "keeper.log") as keeper:
        suspended(source, keeper, suspend(source, keeper, guest.session, tmp_path / "file"))
        keeper.order(stats={})
        stats = expect(keeper, "stats").stats
        assert stats.session == guest.session
        assert stats.rss < 48 << 20


@pytest.mark.system
def test_twice_and_again(source: Server, destination: Server, tmp_path: Path) -> None:
    """What was resumed is suspended again; each file stands for itself."""
    guest = source.connect()
    work = Work(guest)
    here, there = source, destination
    for turn in range(3):
        path = tmp_path / f"file{turn}"
        with Keeper(tmp_path / "keeper.log") as keeper:
            suspended(here, keeper, suspend(here, keeper, guest.session, path))
            assert keeper.play(guest.session, path, there).moved
            expect(there, "taken_over")
        work.check()
        here, there = there, here
    close(guest, here)


def test_the_keeper_dies(source: Server, tmp_path: Path) -> None:
    """Then the program loses its connection; the file is left."""
    guest = source.connect()
    Work(guest)
    with Keeper(tmp_path / "keeper.log") as keeper:
        suspended(source, keeper, suspend(source, keeper, guest.session, tmp_path / "file"))
        keeper.process.kill()
        assert guest.expect_end().text == ""
    assert (tmp_path / "file").exists()


@pytest.fixture
def resumable(source: Server) -> Resumable:
    """A guest whose session outlives its connection."""
    guest = counting(source.connect(resume_seconds=GRACE))
    return guest, Work(guest)


def goes_on(guest: CountingGuest, work: Work, server: Server) -> None:
    work.check()
    close(guest, server)


@pytest.mark.system
@pytest.mark.parametrize("while_away", [False, True], ids=["suspended", "away"])
def test_the_connection_breaks(
    resumable: Resumable, source: Server, destination: Server, tmp_path: Path, while_away: bool
) -> None:
    """The guest comes back to the keeper, or to where its session was resumed meanwhile."""
    guest, work = resumable
    path = tmp_path / "file"
    with Keeper(tmp_path / "keeper.log") as keeper:
        suspended(source, keeper, suspend(source, keeper, guest.session, path))
        sent = guest.sent
        lost = encode("cuCtxSynchronize", 1000, 1, b"", {})
        guest.socket.sendall(lost)  # nobody has read it: it is lost with the connection
        guest.socket.shutdown(socket.SHUT_RDWR)
        if while_away:
            while not is_away(keeper):
                pass
        else:
            assert comes_back(keeper, guest) == sent
        assert keeper.play(guest.session, path, destination, resume_seconds=GRACE).moved
        expect(destination, "taken_over")
        if while_away:
            assert comes_back(destination, guest) == sent
        assert keeper.wait_for_exit() == 0
    guest.socket.sent = sent
    guest.socket.sendall(lost)
    guest._waiting[1000] = "cuCtxSynchronize"
    assert guest.answer(1000).status == 0
    goes_on(guest, work, destination)


def test_the_connection_breaks_again_and_again(
    resumable: Resumable, source: Server, destination: Server, tmp_path: Path
) -> None:
    """What the guest did not get of an answer it gets, wherever in it the connection broke."""
    guest, work = resumable
    before = guest.received
    request = guest.ask_read(work.memory, PAGE)
    answer = guest.answer(request).payload
    assert answer == work.contents[0]
    path = tmp_path / "file"
    with Keeper(tmp_path / "keeper.log") as keeper:
        suspended(source, keeper, suspend(source, keeper, guest.session, path))
        for missing in (0, 7, PAGE, PAGE + 3, guest.received - before):
            assert comes_back(keeper, guest, guest.received - missing) == guest.sent
        guest.received = before
        assert keeper.play(guest.session, path, destination, resume_seconds=GRACE).moved
        expect(destination, "taken_over")
    guest._waiting[request] = "sessionCopyOut"
    assert guest.answer(request).payload == answer
    goes_on(guest, work, destination)


@pytest.mark.system
@pytest.mark.parametrize("wrong", [1, -1], ids=["never sent", "given up"])
def test_counts_that_cannot_be(
    resumable: Resumable, source: Server, destination: Server, tmp_path: Path, wrong: int
) -> None:
    """The session stays suspended, with the connection that it has."""
    guest, work = resumable
    acknowledged = guest.received
    guest.socket.sendall(frames.frame(frames.Frame.ACKNOWLEDGE, frames.Acknowledge(acknowledged).pack()))
    guest.sync()
    count = guest.received + wrong if wrong > 0 else acknowledged + wrong
    path = tmp_path / "file"
    with Keeper(tmp_path / "keeper.log") as keeper:
        suspended(source, keeper, suspend(source, keeper, guest.session, path))
        ours, theirs = socket.socketpair()
        with ours:
            come_back = {"session": guest.session, "proof": b"r" * 32, "received": count}
            order(keeper, [theirs], resume=come_back)
            size, op, *_ = HEADER.unpack(ours.recv(HEADER.size, socket.MSG_WAITALL))
            assert op == frames.Frame.REFUSED
            assert frames.Refused.unpack(ours.recv(size - HEADER.size)).reason == frames.Reason.NO_SESSION
            assert ours.recv(1) == b""
        assert keeper.play(guest.session, path, destination, resume_seconds=GRACE).moved
        expect(destination, "taken_over")
    goes_on(guest, work, destination)


def test_a_guest_that_does_not_come_back(source: Server, tmp_path: Path) -> None:
    guest = source.connect(resume_seconds=GRACE)
    Work(guest)
    path = tmp_path / "file"
    with Keeper(tmp_path / "keeper.log") as keeper:
        pair = keeper.keep(guest.session, resume_seconds=0.1, file={"path": str(path)})
        order_move(source, [pair], guest.session, file=new_file(path))
        suspended(source, keeper, expect(source, "moved").moved)
        guest.socket.close()
        assert expect(keeper, "ended").ended.reason == "connection lost"
        assert keeper.wait_for_exit() == 0


def test_a_guest_that_came_back_is_not_waited_for(
    resumable: Resumable, source: Server, tmp_path: Path
) -> None:
    """Or its session would be over after the grace period."""
    guest, _ = resumable
    with Keeper(tmp_path / "keeper.log") as keeper:
        suspended(source, keeper, suspend(source, keeper, guest.session, tmp_path / "file"))
        guest.socket.shutdown(socket.SHUT_RDWR)
        while not is_away(keeper):
            pass
        assert comes_back(keeper, guest) == guest.sent
        assert not is_away(keeper)
        guest.close()
        assert expect(keeper, "ended").ended.reason == "closed"


def is_away(keeper: Keeper) -> bool:
    """The guest, as the keeper says."""
    keeper.order(stats={})
    return expect(keeper, "stats").stats.disconnected


def test_a_guest_that_closes_its_session_does_not_come_back(
    resumable: Resumable, source: Server, tmp_path: Path
) -> None:
    guest, _ = resumable
    with Keeper(tmp_path / "keeper.log") as keeper:
        suspended(source, keeper, suspend(source, keeper, guest.session, tmp_path / "file"))
        guest.ask_read(guest.window, 4)
        guest.close()
        assert expect(keeper, "ended").ended.reason == "closed"
        assert keeper.wait_for_exit() == 0


def test_it_comes_back_while_its_session_is_resumed(
    resumable: Resumable, source: Server, destination: Server, tmp_path: Path
) -> None:
    """Then that is given up, for the socket that was to be handed over is dead; and done again."""
    guest, work = resumable
    path = tmp_path / "file"
    with Keeper(tmp_path / "keeper.log") as keeper:
        suspended(source, keeper, suspend(source, keeper, guest.session, path))
        link = offer(destination, guest.session, resume_seconds=GRACE)
        freeze(destination)
        keeper.order_to_play(guest.session, path, link)
        assert keeper.message().HasField("moving")
        assert comes_back(keeper, guest) == guest.sent
        destination.process.send_signal(signal.SIGCONT)
        moved = expect(keeper, "moved").moved
        assert "came back with another" in moved.reason
        stayed(source, destination, moved)
        assert keeper.play(guest.session, path, destination, resume_seconds=GRACE).moved
        expect(destination, "taken_over")
    goes_on(guest, work, destination)


@contextlib.contextmanager
def outliving(folder: Path) -> Iterator[tuple[Keeper, str]]:
    """A keeper that another monitor may come to, and where."""
    path = os.path.relpath(folder / "door")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
        door.bind(path)
        door.listen()
        with Keeper(folder / "keeper.log") as keeper:
            home = node_pb2.ToServer(home=node_pb2.Home(grace_seconds=DEADLINE))
            socket.send_fds(keeper.control, [home.SerializeToString()], [door.fileno()])
            yield keeper, path


@contextlib.contextmanager
def told(door: str) -> Iterator[node_pb2.Returned]:
    """What another monitor is told, which stays."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as monitor:
        monitor.settimeout(DEADLINE)
        monitor.connect(door)
        yield node_pb2.FromServer.FromString(monitor.recv(1 << 16)).returned


def test_one_without_an_order_ends_with_its_monitor(tmp_path: Path) -> None:
    """The next monitor would not know what to do with it."""
    with outliving(tmp_path) as (keeper, _):
        keeper.control.close()
        assert keeper.wait_for_exit() == 0


def test_time_in_a_file_is_none_for_the_next_monitor_either(tmp_path: Path) -> None:
    """It would end what was suspended for longer than it may live, and bill that time."""
    with outliving(tmp_path) as (keeper, path):
        began = time.monotonic()
        pair = keeper.keep(7, session_seconds=DAY, file={"path": str(tmp_path / "file")})
        program, guest = socket.socketpair()
        with pair, guest:
            socket.send_fds(pair, [handover_pb2.Handover(session=7).SerializeToString()], [guest.fileno()])
            expect(keeper, "taken_over")
        lived = time.monotonic() - began
        while time.monotonic() < began + 2 * lived:
            keeper.order(stats={})
            expect(keeper, "stats")
        keeper.control.close()
        with told(path) as returned:
            program.close()
            assert keeper.wait_for_exit() == 0
        assert DAY <= returned.session_seconds <= DAY + lived


def test_it_is_resumed_while_there_is_no_monitor(source: Server, destination: Server, tmp_path: Path) -> None:
    """The next one hears of it from who has it, and of nobody else that might."""
    guest = source.connect()
    work = Work(guest)
    with outliving(tmp_path) as (keeper, _):
        suspended(source, keeper, suspend(source, keeper, guest.session, tmp_path / "file"))
        keeper.order_to_play(guest.session, tmp_path / "file", offer(destination, guest.session))
        keeper.control.close()
        expect(destination, "taken_over")
        assert keeper.wait_for_exit() == 0
    work.check()
    close(guest, destination)


def test_it_goes_to_another_server_while_there_is_no_monitor(
    source: Server, destination: Server, tmp_path: Path
) -> None:
    """The next one hears where its guest, which has not followed yet, is to be told to go."""
    guest = connect(source)
    work, path = Work(guest), tmp_path / "file"
    with outliving(tmp_path) as (keeper, door):
        suspended(source, keeper, suspend(source, keeper, guest.session, path))
        link = offer(destination, guest.session)
        there = {"welcome": welcome(link), "address": "127.0.0.1:1", "key": KEY}
        play = node_pb2.Play(session=guest.session, path=str(path), key=key_of(path), remote=there)
        order(keeper, [link, path.open("rb")], play=play)
        keeper.control.close()
        expect(destination, "taken_over")
        work.check()  # by way of the keeper
        with told(door) as returned:
            assert returned.migrating.remote.address == there["address"]
            assert any(node_pb2.ToServer.FromString(one).HasField("play") for one in returned.orders)
            follow(guest, destination)
            assert keeper.wait_for_exit() == 0
    work.check()
    close(guest, destination)


def test_a_source_that_has_lost_its_patience(tmp_path: Path) -> None:
    """It cannot hear that the keeper has the guest, so the keeper does not have it."""
    with Keeper(tmp_path / "keeper.log") as keeper:
        program, guest = socket.socketpair()
        with program, keeper.keep(7, file={"path": str(tmp_path / "file")}) as pair:
            pair.shutdown(socket.SHUT_RD)
            message = handover_pb2.Handover(session=7)
            with guest:
                socket.send_fds(pair, [message.SerializeToString()], [guest.fileno()])
            assert keeper.wait_for_exit() == 0
            assert program.recv(1) == b""
        assert keeper.control.recv(1 << 16) == b""  # nobody was told that it has taken over
