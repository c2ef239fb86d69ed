"""An API server works in its turn, and holds between two frames without one. The test is the arbiter."""

from __future__ import annotations

import array
import contextlib
import os
import select
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpuferry.monitor.arbiter.words import SIZE, Packet, Page, Word, new_page, pack
from gpuferry.specs._generated import node_pb2

from tests.apiserver import kernels
from tests.apiserver.guest import Guest, handle
from tests.apiserver.server import DEADLINE, Server

QUIET = 0.2  # seconds in which nothing comes
_PACKET = struct.Struct("<IIQQ")


class Arbiter:
    """One end of a socket, and the page."""

    def __init__(self, server: Server) -> None:
        self.end, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        file = new_page()
        with theirs:
            rights = array.array("i", [theirs.fileno(), file])
            order = node_pb2.ToServer(turns=node_pb2.Turns()).SerializeToString()
            server.control.sendmsg([order], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        self._page = Page(file)
        os.close(file)

    def hear(self) -> Packet:
        assert select.select([self.end], [], [], DEADLINE)[0], "it says nothing"
        data = self.end.recv(SIZE)
        assert data, "it is gone"
        word, _, turn, value = _PACKET.unpack(data)
        return Packet(Word(word), turn, value)

    def expect(self, word: Word) -> int:
        """The number of the turn that it speaks of."""
        packet = self.hear()
        assert packet.word is word, packet
        return packet.turn

    def is_silent(self) -> bool:
        return not select.select([self.end], [], [], QUIET)[0]

    def say(self, word: Word, turn: int) -> None:
        self.end.send(pack(Packet(word, turn)))

    def go(self, turn: int, wanted: bool = False) -> None:
        self._page.set(False, wanted)
        self.say(Word.GO, turn)

    def stop(self, turn: int) -> None:
        self._page.set(True, True)
        self.say(Word.STOP, turn)

    def close(self) -> None:
        self.end.close()
        self._page.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "server.log", GPUFERRY_SIM_MEMORY="256MiB") as server:
        server.ready()
        yield server


@pytest.fixture
def arbiter(server: Server) -> Iterator[Arbiter]:
    arbiter = Arbiter(server)
    yield arbiter
    arbiter.close()


def is_silent(guest: Guest) -> bool:
    return not select.select([guest.socket], [], [], QUIET)[0]


def test_a_frame_waits_for_a_turn_and_the_turn_goes_back_when_nothing_is_left(
    server: Server, arbiter: Arbiter
) -> None:
    guest = server.connect()
    assert arbiter.is_silent()  # it asks when there is something to do
    request = guest.ask("cuCtxSynchronize")
    turn = arbiter.expect(Word.ASK)
    assert is_silent(guest)
    arbiter.go(turn)
    assert guest.answer(request).status == 0
    assert arbiter.expect(Word.BACK) == turn
    request = guest.ask("cuCtxSynchronize")
    arbiter.go(arbiter.expect(Word.ASK))
    assert guest.answer(request).status == 0


def test_a_word_about_another_turn_is_void(server: Server, arbiter: Arbiter) -> None:
    guest = server.connect()
    request = guest.ask("cuCtxSynchronize")
    turn = arbiter.expect(Word.ASK)
    arbiter.go(turn + 1)
    assert is_silent(guest)
    arbiter.go(turn)
    assert guest.answer(request).status == 0


def test_without_an_arbiter_it_is_free_until_there_is_another(server: Server, arbiter: Arbiter) -> None:
    guest = server.connect()
    request = guest.ask("cuCtxSynchronize")
    arbiter.expect(Word.ASK)
    assert is_silent(guest)
    arbiter.close()  # killed while the session waited
    assert guest.answer(request).status == 0
    guest.sync()
    another = Arbiter(server)
    server.order(stats=node_pb2.StatsRequest())
    assert server.message().HasField("stats")  # it has done what it was told before
    request = guest.ask("cuCtxSynchronize")
    turn = another.expect(Word.ASK)
    assert is_silent(guest)
    third = Arbiter(server)  # the one before hangs, and was given up
    turn = third.expect(Word.ASK)
    third.go(turn)
    assert guest.answer(request).status == 0
    another.close()
    third.close()


def test_a_session_that_ends_while_it_waits_gives_way(server: Server, arbiter: Arbiter) -> None:
    for closes in (True, False):
        guest = server.connect()
        guest.ask("cuCtxSynchronize")
        turn = arbiter.expect(Word.ASK)
        if closes:
            guest.send("sessionClose")
        guest.socket.close()
        assert arbiter.expect(Word.BACK) == turn
        ended = server.ended()
        assert ended.clean
        assert ended.cause == (node_pb2.CAUSE_CLOSED if closes else node_pb2.CAUSE_LOST)
        server.ready()
        while not arbiter.is_silent():
            arbiter.expect(Word.BACK)  # with what clearing up took


def test_a_session_that_is_revoked_while_it_waits_ends(server: Server, arbiter: Arbiter) -> None:
    guest = server.connect()
    guest.ask("cuCtxSynchronize")
    arbiter.expect(Word.ASK)
    server.order(revoke=node_pb2.Revoke(session=1, reason="because"))
    assert server.ended().cause == node_pb2.CAUSE_REVOKED


def test_the_turn_of_a_session_that_ends_goes_back(server: Server, arbiter: Arbiter) -> None:
    guest = server.connect()
    request = guest.ask("cuCtxSynchronize")
    turn = arbiter.expect(Word.ASK)
    arbiter.go(turn)
    guest.answer(request)
    guest.socket.close()
    assert arbiter.expect(Word.BACK) == turn
    assert server.ended().clean


def test_the_next_session_of_the_process_asks_too(server: Server, arbiter: Arbiter) -> None:
    had = 0
    with generous(arbiter) as turns:
        for _ in range(2):
            guest = server.connect()
            assert guest.sync().status == 0
            assert len(turns) > had
            guest.close()
            assert server.ended().clean
            server.ready()
            had = len(turns)


def busy(server: Server, arbiter: Arbiter) -> tuple[Guest, int, int, int]:
    """A session with a turn, whose kernel runs until a word of its memory is set: its guest, the word's
    address, a stream that does not wait for the kernel, and the number of the turn.
    """
    guest, stream = server.connect(), handle("stream", 0)
    flag = guest.map(1)
    guest.send("cuStreamCreateWithPriority", phStream=stream, flags=1, priority=0)
    with generous(arbiter) as turns:
        function = kernels.bind(guest, "wait_for")
        guest.launch(function, struct.pack("<QQ", flag, flag + 4), block=(1, 1, 1))
        guest.call("cuStreamQuery", hStream=stream)
    return guest, flag, stream, turns[-1]


@contextlib.contextmanager
def generous(arbiter: Arbiter) -> Iterator[list[int]]:
    """Within this context every request gets its turn; their numbers."""
    over, end = os.pipe()
    turns: list[int] = []

    def give() -> None:
        while over not in select.select([arbiter.end.fileno(), over], [], [])[0]:
            packet = arbiter.hear()
            if packet.word is Word.ASK:
                turns.append(packet.turn)
                arbiter.go(packet.turn)

    thread = threading.Thread(target=give)
    thread.start()
    try:
        yield turns
    finally:
        os.close(end)
        thread.join()
        os.close(over)


def test_a_turn_goes_back_when_the_device_is_at_rest(server: Server, arbiter: Arbiter) -> None:
    guest, flag, stream, turn = busy(server, arbiter)
    guest.write(flag, struct.pack("<I", 1), stream)  # in the turn that it has: the kernel ends
    assert arbiter.expect(Word.BACK) == turn
    with generous(arbiter):
        assert guest.sync().status == 0


def test_a_kernel_cannot_be_stopped_and_its_turn_is_taken(server: Server, arbiter: Arbiter) -> None:
    guest, flag, stream, turn = busy(server, arbiter)
    arbiter.stop(turn)
    assert arbiter.is_silent()
    guest.write(flag, struct.pack("<I", 1), stream)
    assert arbiter.is_silent()  # no frame is done any more: the kernel does not end by that
    arbiter.say(Word.TAKEN, turn)
    following = arbiter.expect(Word.ASK)  # it still works, so it wants a turn
    assert following == turn + 1
    assert arbiter.is_silent()
    arbiter.go(following)
    assert arbiter.expect(Word.BACK) == following  # the frame was done, and the kernel ended


def test_what_was_begun_in_a_turn_that_was_taken_comes_to_rest(server: Server, arbiter: Arbiter) -> None:
    guest, stream = server.connect(), handle("stream", 0)
    guest.send("cuStreamCreateWithPriority", phStream=stream, flags=1, priority=0)
    with generous(arbiter) as turns:
        guest.send("sessionHostCall", stream=stream, call=7, always=0)
        ticket = guest.host_call().ticket
    arbiter.stop(turns[-1])
    # The device waits for the program, and the program may wait for its turn: so the turn goes back.
    assert arbiter.expect(Word.BACK) == turns[-1]
    guest.send("sessionHostDone", ticket=ticket)
    with generous(arbiter):
        assert guest.call("cuStreamSynchronize", hStream=stream).status == 0


def test_a_session_stuck_in_a_kernel_is_gone_with_its_turn(server: Server, arbiter: Arbiter) -> None:
    guest, _, _, turn = busy(server, arbiter)
    arbiter.stop(turn)
    guest.socket.close()
    assert not server.ended().clean  # a kernel without end: the process ends, and with it its way to us
    while arbiter.end.recv(SIZE):
        pass


@pytest.mark.slow  # it waits for two looks at the socket, 5 s each
def test_a_session_that_waits_long_reads_ahead(server: Server, arbiter: Arbiter) -> None:
    """TCP would give it up after 20 s with a window that stays shut."""
    guest = server.connect()
    pieces = [os.urandom(256 << 10) for _ in range(4)]  # more than sockets and the first buffer take
    address = guest.map(1)
    turn = arbiter.expect(Word.ASK)
    for number, piece in enumerate(pieces):
        guest.write(address + number * len(piece), piece)
    arbiter.go(turn)
    with generous(arbiter):
        assert guest.read(address, 1 << 20) == b"".join(pieces)
