"""What the monitor and the arbiter's process say to each other; the test plays the other side."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import socket
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest
from gpuferry.monitor.arbiter import office as offices
from gpuferry.monitor.arbiter.office import Office
from gpuferry.monitor.arbiter.process import Process
from gpuferry.monitor.arbiter.shares import Wishes
from gpuferry.monitor.arbiter.words import Packet, Word, new_page, pack
from gpuferry.monitor.policy.sharing import Sharing
from gpuferry.monitor.pool.api_server import ApiServer, State
from gpuferry.native.descriptors import receive
from gpuferry.specs._generated import node_pb2

from tests.monitor.harness import DEADLINE


@pytest.mark.parametrize("turns", range(8))
def test_a_monitor_that_stops_is_not_held_up_by_what_the_arbiter_just_said(turns: int) -> None:
    """A word comes, and so many turns of the loop later the monitor stops: it ends, whoever comes first."""

    async def main() -> None:
        office = Office(Sharing(), 0, lambda: (), cast(Any, None))
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            ours.setblocking(False)
            listening = asyncio.ensure_future(office._listen(ours))
            await asyncio.sleep(0.01)
            theirs.send(json.dumps({"reported": True}).encode())
            for _ in range(turns):
                await asyncio.sleep(0)
            listening.cancel()
            await asyncio.wait({listening}, timeout=60.0)
            ended = listening.done()
            listening.cancel()
        assert ended

    asyncio.run(main())


def test_a_request_is_of_the_session_that_was_named_before_it() -> None:
    """The last session ended and the next one began while the arbiter looked after others. The request was
    taken for one of the last session, and forgotten with that: the next one worked without a turn, or waited
    for one for ever.
    """
    monitor, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    page = new_page()

    def tell(order: dict[str, Any], *files: int) -> None:
        socket.send_fds(monitor, [json.dumps({"key": 1} | order).encode()], files)

    def assign(session: int) -> None:
        named = {"session": session, "request": 0, "limit": 0, "function": "f", "owner": "f"}
        tell({"do": "assign"} | named)

    with monitor, control, server:
        process = Process(control, Sharing("turns"), 0, False)
        tell({"do": "add", "devices": [0]}, end.fileno(), page)
        end.close()
        os.close(page)
        assign(7)
        process._obey()
        tell({"do": "free"})
        assign(8)
        server.send(pack(Packet(Word.ASK, 1)))
        (line,) = process._lines.values()
        process._hear(line)  # as it was found to have something to say before all that
        process._obey()
        assert server.recv(64, socket.MSG_DONTWAIT) == pack(Packet(Word.GO, 1, Sharing().quota))
        (told,) = process._gpus.uses(0, time.monotonic_ns())
        assert (told.session, told.use.holds) == (8, True)
        line.close()


def test_what_is_left_of_a_report_whose_end_was_lost_is_in_no_other_one() -> None:
    """Sessions that were over stood in `status` beside those that are there, as if they had turns."""
    office = Office(Sharing(), 0, lambda: (), cast(Any, None))
    figures = dict.fromkeys(("span", "handed", "overruns", "waited", "own"), 1)

    def tell(first: bool, *sessions: int) -> None:
        office._hear(
            {**figures, "device": 0, "first": first, "uses": [[one, one, *[1] * 6] for one in sessions]}
        )

    tell(True, 1, 2)  # whose end the arbiter could not write
    tell(True, 3)
    tell(False, 4)
    office._hear({"reported": True})
    assert set(office.gpus[0].sessions) == {3, 4}


def test_orders_for_which_there_is_no_room_are_given_when_the_arbiter_reads() -> None:
    """With 300 API servers, and the room that Linux gives by default, each new arbiter was ended before it
    had read a word, and nobody took turns any more.
    """
    many = 300

    async def main() -> None:
        office = Office(Sharing(), 0, lambda: (), cast(Any, None))
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4608)
        ours.setblocking(False)
        theirs.setblocking(False)
        office._control = ours
        page = new_page()
        for key in range(many):
            assert office._order({"do": "add", "key": key}, page)
        os.close(page)
        with theirs:
            for key in range(many):
                await asyncio.wait_for(readable(theirs), DEADLINE)
                data, (file,) = receive(theirs, 4096, 1)
                os.close(file)
                assert json.loads(data)["key"] == key
            for _ in range(many):
                office._order({"do": "add", "key": 0}, theirs.fileno())
            assert office._untold
            office._lose()  # with what it was not told
            assert not office._untold

    asyncio.run(main())


async def readable(end: socket.socket) -> None:
    found = asyncio.Event()
    asyncio.get_running_loop().add_reader(end, found.set)
    await found.wait()
    asyncio.get_running_loop().remove_reader(end)


def test_an_arbiter_that_cannot_be_started_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where there was no memory for another process the monitor ended, and with it all that waited."""
    tries = 0

    async def no_memory(*_: object, **__: object) -> None:
        nonlocal tries
        tries += 1
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", no_memory)
    monkeypatch.setattr(offices, "PAUSE_SECONDS", 0.0)

    async def main() -> None:
        running = asyncio.ensure_future(Office(Sharing(), 0, lambda: (), cast(Any, None)).run())
        while tries < 3 and not running.done():
            await asyncio.sleep(0)
        assert not running.done()
        running.cancel()

    asyncio.run(main())
    assert "Cannot allocate memory" in capsys.readouterr().out


def api_server(told: list[node_pb2.ToServer]) -> ApiServer:
    """One that is idle, and notes what it is told."""
    server = SimpleNamespace(
        key=1,
        pid=1,
        session=0,
        restoring=0,
        devices=(0,),
        is_keeper=False,
        outdated=False,
        ready=node_pb2.Ready(),
        state=State.IDLE,
        send=lambda message, *_: told.append(message),
    )
    return cast(ApiServer, server)


def orders(end: socket.socket) -> list[str]:
    """What an arbiter was told to do, in this order."""
    found = []
    with contextlib.suppress(BlockingIOError):
        while True:
            data, files = receive(end, 4096, 2)
            found.append(json.loads(data)["do"])
            for file in files:
                os.close(file)
    return found


def test_an_api_server_that_has_a_session_when_it_is_ready_keeps_its_request() -> None:
    """The broker hears of it first, and gives it to who waits. Then the arbiter was told that it is free: if
    it had asked for a turn by then, it waited for ever.
    """

    async def main() -> None:
        office = Office(Sharing(), 0, lambda: (), lambda _: Wishes())
        office._control, arbiter = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        arbiter.setblocking(False)
        server = api_server([])
        with arbiter:
            office.server_ready(server)
            assert orders(arbiter) == ["add"]
            server.session = 7
            office.session_granted(server, 7)
            office.server_ready(server)
            assert orders(arbiter) == ["assign", "assign"]
            server.session = 0
            office.server_ready(server)
            assert orders(arbiter) == ["free"]
            office._lose()

    asyncio.run(main())


def test_who_finds_no_descriptor_for_its_turns_takes_them_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an API server had just said, or a guest that was granted a session, ended with an error."""
    monkeypatch.setattr(offices, "AGAIN_SECONDS", 0.0)
    told: list[node_pb2.ToServer] = []
    server = api_server(told)

    async def main() -> None:
        made = Office(Sharing(), 0, lambda: (), cast(Any, None))
        made._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, monkeypatch.context() as crowded:

            def none_is_left() -> int:
                crowded.undo()
                raise OSError(errno.EMFILE, "Too many open files")

            crowded.setattr(offices, "new_page", none_is_left)
            made.server_returned(server, node_pb2.Returned())
            assert not told
            while not told:
                await asyncio.sleep(0)
            data, files = receive(theirs, 4096, 2)
            assert json.loads(data)["do"] == "add"
            for file in files:
                os.close(file)
            made._lose()

    asyncio.run(asyncio.wait_for(main(), DEADLINE))
