"""The file into which a session is suspended, and a writer of it that lies."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from pathlib import Path

import pytest
from gpuferry.migration.place import DONE, PUBLISH, NewFile
from gpuferry.monitor.moves import filing

from tests.monitor.harness import DEADLINE

MOST = 1 << 20


class Writer:
    """A process that has been given a file, and keeps it open as long as it lives."""

    def __init__(self, path: Path, trusted: bool = False) -> None:
        self.over = asyncio.Event()
        self.trusted = trusted
        self.killed = False
        with filing.new_file(str(path), self, MOST) as (desk, file):
            self.desk, self.descriptor = desk.dup(), os.dup(file.fileno())
            self.kept: NewFile = file
        self.desk.setblocking(False)

    def kill(self) -> None:
        self.killed = True
        self.end()

    def end(self) -> None:
        self.desk.close()
        self.over.set()

    def write(self, size: int) -> None:
        os.pwrite(self.descriptor, bytes(size), 0)

    @property
    def size(self) -> int:
        return os.fstat(self.descriptor).st_size

    async def say(self, word: bytes) -> bytes:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self.desk, word)
        return await loop.sock_recv(self.desk, 100)


async def until_it_is_closed(writer: Writer) -> None:
    """Nobody but the writer has the file open."""
    await asyncio.wait_for(asyncio.gather(*filing._tasks), DEADLINE)
    with pytest.raises(OSError, match="Bad file descriptor"):
        writer.kept.size  # noqa: B018
    os.close(writer.descriptor)
    writer.desk.close()


@pytest.mark.parametrize("when", ["while it writes", "with its name", "when it has said that it is done"])
def test_who_makes_it_larger_than_a_session_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    monkeypatch.setattr(filing, "LOOK_SECONDS", 0.01)

    async def main() -> None:
        writer = Writer(tmp_path / "file")
        writer.write(MOST // 2)
        if when == "with its name":
            assert await writer.say(PUBLISH) == DONE
        if when == "when it has said that it is done":
            writer.desk.shutdown(socket.SHUT_RDWR)
        writer.write(MOST + 1)
        await asyncio.wait_for(writer.over.wait(), DEADLINE)
        assert writer.killed
        assert writer.size == 0
        await until_it_is_closed(writer)

    asyncio.run(main())


@pytest.mark.parametrize("trusted", [True, False])
def test_what_is_given_up_is_given_back_on_another_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trusted: bool
) -> None:
    """A disk takes its time for a hundred gigabytes, in which the monitor did nothing else."""
    threads = []
    empty = NewFile.empty

    def emptied(file: NewFile) -> None:
        threads.append(threading.current_thread())
        empty(file)

    monkeypatch.setattr(NewFile, "empty", emptied)

    async def main() -> None:
        writer = Writer(tmp_path / "file", trusted)
        writer.write(MOST // 2)
        writer.end()
        await until_it_is_closed(writer)

    asyncio.run(main())
    assert threads
    assert threading.main_thread() not in threads


@pytest.mark.parametrize("published", [True, False])
@pytest.mark.parametrize("trusted", [True, False])
def test_a_file_stays_if_it_was_published(tmp_path: Path, trusted: bool, published: bool) -> None:
    """Where nobody could have taken the writer over, nothing is kept open once it is done."""
    path = tmp_path / "file"

    async def main() -> None:
        writer = Writer(path, trusted)
        writer.write(MOST // 2)
        if published:
            assert await writer.say(PUBLISH) == DONE
        if trusted:
            writer.desk.shutdown(socket.SHUT_RDWR)
        else:
            writer.end()
        await until_it_is_closed(writer)
        assert not writer.killed

    asyncio.run(main())
    assert [each.stat().st_size for each in tmp_path.iterdir()] == [MOST // 2] * published
