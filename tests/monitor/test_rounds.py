"""A monitor goes to the API servers of one that was killed: each comes back, or is known to be gone."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import subprocess
from pathlib import Path

import pytest
from gpuferry.monitor.pool import returns
from gpuferry.monitor.pool.channel import Channel
from gpuferry.monitor.pool.returns import Record, Returns, Rounds
from gpuferry.monitor.service import processes
from gpuferry.monitor.service.processes import start_time
from gpuferry.specs._generated import node_pb2


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(returns, "LOOK_SECONDS", 0.01)


def visited(folder: Path, pid: int, began: int, *, answer: bool, ahead: int = 0) -> list[str]:
    """What becomes of one API server with this record, whose socket is open here, whoever it is. `ahead`:
    bytes that its guest had sent when the session was granted.
    """
    found: list[str] = []

    async def main() -> None:
        kept = Returns(folder, b"s" * 32, 60.0)
        name, door = kept.enter()
        record = Record(name, pid, began, pid)
        kept.note(record)
        assert kept.left() == [record]

        def adopt(channel: Channel, *_: object) -> None:
            channel.close()
            found.append("adopted")

        rounds = Rounds(kept, kept.left(), adopt, lambda one: found.append(f"gone {one.pid}"))
        with contextlib.closing(door):
            task = asyncio.ensure_future(rounds.run())
            door.setblocking(False)
            came, _ = await asyncio.get_running_loop().sock_accept(door)
            with contextlib.closing(came):
                if answer:
                    order = kept.seal(name, node_pb2.ToServer(tls=bytes(ahead)).SerializeToString())
                    returned = node_pb2.FromServer(returned=node_pb2.Returned(orders=[order]))
                    await asyncio.get_running_loop().sock_sendall(came, returned.SerializeToString())
                await task

    asyncio.run(main())
    return found


def test_one_that_answers_is_adopted(tmp_path: Path) -> None:
    assert visited(tmp_path, os.getpid(), start_time(os.getpid()), answer=True) == ["adopted"]


def test_one_whose_guest_had_sent_much_is_adopted(tmp_path: Path) -> None:
    """What it shows with its order was cut off, and its session was lost."""
    me = os.getpid()
    assert visited(tmp_path, me, start_time(me), answer=True, ahead=64 << 10) == ["adopted"]


def test_one_whose_process_is_gone_is_not_waited_for(tmp_path: Path) -> None:
    """Somebody else, who inherited its socket, takes the call and never answers."""
    process = subprocess.Popen(["true"])
    began = start_time(process.pid)
    process.wait()
    assert visited(tmp_path, process.pid, began, answer=False) == [f"gone {process.pid}"]


def test_where_nobody_can_look_it_is_not_said_to_be_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a free descriptor for /proc all sessions of the monitor before were ended."""

    def crowded(_: int) -> list[bytes]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    me = os.getpid()
    record = Record("", me, start_time(me))
    monkeypatch.setattr(processes, "_figures", crowded)
    with pytest.raises(OSError, match="Too many open files"):
        start_time(me)
    assert not returns._is_gone(record)


def test_a_process_that_has_its_number_is_another(tmp_path: Path) -> None:
    pid = os.getpid()
    assert visited(tmp_path, pid, start_time(pid) - 1, answer=False) == [f"gone {pid}"]


def test_a_process_calls_itself_what_it_likes() -> None:
    """In bytes that are no text, with what ends a name: it is there all the same."""
    name, began = Path("/proc/self/comm"), start_time(os.getpid())
    before = name.read_bytes()
    name.write_bytes(b") \xed\xa0")
    try:
        assert start_time(os.getpid()) == began > 0
    finally:
        name.write_bytes(before)


def test_one_that_lives_and_says_nothing_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its session would be in nobody's books."""
    monkeypatch.setattr(returns, "SILENT_SECONDS", 0.02)
    me = os.getpid()
    assert visited(tmp_path, me, start_time(me), answer=False) == [f"gone {me}"]
