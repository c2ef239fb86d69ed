"""A runtime folder that cannot be written loses no session and gives no number twice."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import io
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpuferry.guest import paths
from gpuferry.monitor.cli.checks import machine
from gpuferry.monitor.cluster.key import make_cluster_key, read_cluster_key
from gpuferry.monitor.door.credentials import LocalTenants
from gpuferry.monitor.door.tokens import proof
from gpuferry.monitor.door.tokens.book import TokenBook, new_record
from gpuferry.monitor.pool import adoption, released
from gpuferry.monitor.pool.adoption import BLOCK, LEDGER, Ledger
from gpuferry.monitor.pool.released import Door
from gpuferry.monitor.pool.returns import Record, Returns
from gpuferry.monitor.service.files import write_where_there_is_room
from gpuferry.monitor.service.logs import Lossy
from gpuferry.monitor.service.runtime import RuntimeDirectory
from gpuferry.monitor.settings.errors import ConfigError
from gpuferry.monitor.store import sqlite
from gpuferry.monitor.store.interface import StoreError
from gpuferry.monitor.store.sqlite import SqliteStore

LIBC = ctypes.CDLL(None, use_errno=True)


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if LIBC.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, b"size=64k,mode=700"):
        pytest.skip(f"no tmpfs can be mounted here: {os.strerror(ctypes.get_errno())}")
    try:
        yield folder
    finally:
        assert LIBC.umount2(os.fsencode(folder), 2) == 0  # MNT_DETACH


def fill(folder: Path) -> None:
    with (folder / "junk").open("wb", buffering=0) as junk:
        while os.statvfs(folder).f_bavail:
            junk.write(bytes(4096))


def numbers(ledger: Ledger, count: int) -> list[int]:
    given = [ledger.next_session() for _ in range(count)]
    assert None not in given
    return [number for number in given if number is not None]


def test_numbers_go_on_where_nothing_more_can_be_written(tiny: Path) -> None:
    runtime = RuntimeDirectory(tiny / "run")
    ledger = Ledger(runtime)
    ledger.reserve_numbers()
    given = numbers(ledger, 10)
    fill(tiny)
    with pytest.raises(OSError, match="No space left"):
        (runtime.path / "more").write_text("x" * 4096)  # it is full, for whatever is new
    given += numbers(ledger, 3 * BLOCK)
    os.close(runtime._lock)  # killed: nothing is removed
    after = RuntimeDirectory(tiny / "run")  # the next monitor starts while it is still full
    successor = Ledger(after)
    successor.reserve_numbers()
    assert successor.inherited
    assert successor.secret == ledger.secret
    given += numbers(successor, 2 * BLOCK)
    assert len(set(given)) == len(given)
    after.close()


def test_when_no_number_can_be_promised_guests_are_refused_until_one_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = RuntimeDirectory(tmp_path / "run")
    ledger = Ledger(runtime)
    ledger.reserve_numbers()
    given = numbers(ledger, 3)

    def broken(name: str, content: str) -> Path:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as failing:
        failing.setattr(runtime, "publish", broken)
        while (number := ledger.next_session()) is not None:
            given.append(number)
        assert len(given) == BLOCK
        assert ledger.next_session() is None
        assert Ledger(runtime).next_session() is None  # nor does a successor give what it cannot write down
    given += numbers(ledger, 10)
    given += numbers(Ledger(runtime), 10)
    assert len(set(given)) == len(given)
    runtime.close()


def test_no_guest_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More numbers are promised in the background, long before these run out."""
    runtime = RuntimeDirectory(tmp_path / "run")
    ledger = Ledger(runtime)
    ledger.reserve_numbers()
    began, over, publish = threading.Event(), threading.Event(), runtime.publish

    def slow(name: str, content: str) -> Path:
        began.set()
        assert over.wait(120)
        return publish(name, content)

    monkeypatch.setattr(runtime, "publish", slow)
    given = numbers(ledger, BLOCK - 1)  # the disk has not answered yet
    assert began.wait(120)
    over.set()
    given += numbers(ledger, BLOCK)
    assert len(set(given)) == len(given)
    assert Ledger(runtime).next_session() not in given
    runtime.close()


@pytest.mark.parametrize("content", ["", "{", '{"secret": "00"}', '{"secret": 3, "sessions": 4}', "\0" * 64])
def test_a_torn_ledger_gives_no_number_of_before(tmp_path: Path, content: str) -> None:
    runtime = RuntimeDirectory(tmp_path / "run")
    (runtime.path / LEDGER).write_text(content)
    ledger = Ledger(runtime)
    assert not ledger.inherited
    assert min(numbers(ledger, 3)) >= adoption.UNKNOWN
    runtime.close()


def test_a_file_that_is_written_over_is_whole(tiny: Path) -> None:
    file = tiny / "file"
    write_where_there_is_room(file, "long, and longer\n")
    fill(tiny)
    write_where_there_is_room(file, "short\n")
    assert file.read_text() == "short\n"
    with pytest.raises(OSError, match="No space left"):
        write_where_there_is_room(tiny / "another", "x")
    assert sorted(one.name for one in tiny.iterdir()) == ["file", "junk"]


def test_a_key_is_made_whole_or_not_at_all(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty one was left, with which no registry starts."""
    monkeypatch.delenv("GPUFERRY_CLUSTER_KEY", raising=False)
    fill(tiny)
    with pytest.raises(ConfigError, match=r"cannot write .*cluster\.key: No space left"):
        make_cluster_key(tiny)
    assert [one.name for one in tiny.iterdir()] == ["junk"]
    (tiny / "junk").unlink()
    assert read_cluster_key(None, tiny) is None
    assert make_cluster_key(tiny) == read_cluster_key(None, tiny)
    with pytest.raises(ConfigError, match="File exists"):
        make_cluster_key(tiny)


def test_a_daemon_that_finds_no_room_to_say_where_it_is_does_not_start(tiny: Path) -> None:
    runtime = RuntimeDirectory(tiny / "run")
    fill(tiny)
    with pytest.raises(ConfigError, match=r"cannot write in .*run: No space left"), runtime.must_publish():
        runtime.publish("token", "secret")
    runtime.close()


def test_a_program_on_the_simulated_device_needs_no_room_for_its_figures(tiny: Path) -> None:
    """cuInit wrote them into a file without blocks, which is SIGBUS."""
    (tiny / "run").mkdir(0o700)
    fill(tiny)
    settings = {**os.environ, "GPUFERRY_RUNTIME_DIR": str(tiny / "run")}
    settings.pop("GPUFERRY_SIM_STATS", None)
    code = f"import ctypes; raise SystemExit(ctypes.CDLL({paths.simulated_driver()!r}).cuInit(0))"
    assert subprocess.run([sys.executable, "-c", code], env=settings, timeout=240).returncode == 0


def test_a_record_that_finds_no_room_leaves_the_one_before(tiny: Path) -> None:
    returns = Returns(tiny, b"secret", 1.0)
    name, door = returns.enter()
    with door:
        returns.note(Record(name, 7))
        fill(tiny)
        with pytest.raises(OSError, match="No space left"):
            returns.note(Record(name, 7, ready="x" * 4096))
        assert [record.pid for record in returns.left()] == [7]


def test_a_store_for_which_there_is_no_room_says_so_and_counts_as_none(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite says now "disk I/O error", now that it is full, and leaves an empty file."""
    fill(tiny)
    path = tiny / "gpuferry.db"
    with pytest.raises(StoreError, match=r"full|no space"):
        SqliteStore(path)
    said = sqlite._reason(sqlite3.OperationalError("disk I/O error"), path)
    assert said == "disk I/O error (no space is left on its disk)"
    assert path.stat().st_size == 0
    assert asyncio.run(LocalTenants(path).book()) is None
    monkeypatch.setenv("GPUFERRY_STATE_DIR", str(tiny))
    check = next(machine.state_folder())
    assert (check.result, check.detail) == ("failed", f"{tiny}: only 0 B free")


def test_tokens_are_checked_where_nothing_more_can_be_written(tiny: Path) -> None:
    """By the monitor after one that was killed: it wrote when it opened them, and let no tenant in."""

    async def main() -> None:
        token, path = proof.make("acme"), tiny / "registry.db"
        killed = SqliteStore(path)
        await TokenBook(killed).add(new_record(token))
        fill(tiny)
        store = SqliteStore(path)
        assert [one.tenant for one in await TokenBook(store).all()] == ["acme"]
        with pytest.raises(StoreError, match="full"):
            await store.put("key", bytes(4096))
        await store.close()
        await killed.close()

    asyncio.run(main())


def test_a_log_that_cannot_be_written_ends_nothing_and_says_so_later() -> None:
    class Full(io.StringIO):
        full = True

        def write(self, text: str) -> int:
            if self.full:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(text)

    file = Full()
    log = Lossy(file)
    for _ in range(3):
        log.write("lost\n")
        log.flush()
    file.full = False
    log.write("heard\n")
    assert file.getvalue() == "gpuferry: 3 log lines could not be written\nheard\n"


def test_the_door_of_adoption_outlives_a_lack_of_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end would be the monitor's."""
    monkeypatch.setattr(released, "PAUSE_SECONDS", 0.0)

    async def main() -> None:
        door = Door(tmp_path, b"secret", 1.0, lambda *_: None)
        loop = asyncio.get_running_loop()
        failures = iter([OSError(errno.EMFILE, "Too many open files")] * 3)
        real = loop.sock_accept
        accepted = asyncio.Event()

        async def sock_accept(listening: object) -> object:
            if failure := next(failures, None):
                raise failure
            accepted.set()
            return await real(listening)  # type: ignore[arg-type]

        monkeypatch.setattr(loop, "sock_accept", sock_accept)
        serving = asyncio.ensure_future(door.run())
        await asyncio.wait_for(accepted.wait(), 120)
        assert not serving.done()
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)

    asyncio.run(main())
