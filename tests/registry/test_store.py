"""Both stores keep the same promises."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
import structlog.testing
from gpuferry.monitor.store import etcd as etcd_store
from gpuferry.monitor.store import sqlite
from gpuferry.monitor.store.etcd import EtcdStore
from gpuferry.monitor.store.interface import ABSENT, Store, StoreError
from gpuferry.monitor.store.sqlite import SqliteStore
from gpuferry.specs._generated import etcd_pb2

from tests.registry.etcd import Etcd, etcd

Use = Callable[[Store], Awaitable[None]]
Run = Callable[[Use], None]
SECONDS = 120.0


@pytest.fixture(params=["sqlite", "etcd"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Runs a test's coroutine with a store that holds nothing it has to know of."""
    etcd_cluster = request.getfixturevalue("etcd_cluster") if request.param == "etcd" else None

    def run_with_store(use: Use) -> None:
        async def main() -> None:
            store: Store = (
                EtcdStore(etcd_cluster.addresses) if etcd_cluster else SqliteStore(tmp_path / "store.db")
            )
            try:
                await asyncio.wait_for(_awaitable(use(store)), SECONDS)
            finally:
                await store.close()

        asyncio.run(main())

    return run_with_store


async def _awaitable(work: Awaitable[None]) -> None:
    await work


def fresh(name: str = "") -> str:
    """A prefix of this test's own."""
    return f"test-{secrets.token_hex(4)}/{name}"


def test_a_key_that_is_no_text_keeps_nobody_from_the_others(etcd_cluster: Etcd) -> None:
    """Whoever wrote one below the prefix ended every replica that looked there."""
    prefix = fresh()

    async def main() -> None:
        store = EtcdStore(etcd_cluster.addresses)
        await store.put(prefix + "a", b"1")
        odd = etcd_pb2.PutRequest(key=store._key(prefix) + b"\xff", value=b"2")
        await store._members[0].kv.Put(odd, timeout=SECONDS)
        assert list(await store.read(prefix)) == [prefix + "a", prefix + "\ufffd"]
        watch = store.watch(prefix)
        assert (await anext(watch))[prefix + "a"] == b"1"
        await watch.aclose()  # type: ignore[attr-defined]
        await store.close()

    asyncio.run(asyncio.wait_for(main(), SECONDS))


def test_what_was_written_is_read(run: Run) -> None:
    async def use(store: Store) -> None:
        prefix = fresh()
        assert await store.get(prefix + "a") is None
        await store.put(prefix + "b", b"2")
        await store.put(prefix + "a", b"1")
        await store.put(prefix[:-1] + "0", b"beyond")  # the first key after the prefix's range
        entry = await store.get(prefix + "a")
        assert entry
        assert entry.value == b"1"
        found = await store.read(prefix)
        assert [(key, entry.value) for key, entry in found.items()] == [
            (prefix + "a", b"1"),
            (prefix + "b", b"2"),
        ]

    run(use)


def test_swap_changes_only_what_was_seen(run: Run) -> None:
    async def use(store: Store) -> None:
        key = fresh("key")
        assert not await store.swap(key, b"x", 12345)
        assert await store.swap(key, b"first", ABSENT)
        assert not await store.swap(key, b"second", ABSENT)
        entry = await store.get(key)
        assert entry
        assert await store.swap(key, b"second", entry.version)
        assert not await store.swap(key, b"third", entry.version)
        assert not await store.swap(key, None, entry.version)
        again = await store.get(key)
        assert again
        assert (again.value, again.version != entry.version) == (b"second", True)
        assert await store.swap(key, None, again.version)
        assert await store.get(key) is None

    run(use)


def test_of_many_swaps_at_once_one_wins(run: Run) -> None:
    async def use(store: Store) -> None:
        key = fresh("key")
        wins = await asyncio.gather(*(store.swap(key, b"%d" % i, ABSENT) for i in range(20)))
        entry = await store.get(key)
        assert entry
        assert [i for i, won in enumerate(wins) if won] == [int(entry.value)]

    run(use)


async def next_state(watch: AsyncIterator[Mapping[str, bytes]], wanted: Mapping[str, bytes]) -> None:
    async for state in watch:
        if state == wanted:
            return


def test_a_watch_shows_states(run: Run) -> None:
    async def use(store: Store) -> None:
        prefix = fresh()
        watch = store.watch(prefix)
        await next_state(watch, {})
        await store.put(prefix + "a", b"1")
        await next_state(watch, {prefix + "a": b"1"})
        await store.put(prefix + "a", b"2")
        await store.put(prefix + "b", b"3")
        await next_state(watch, {prefix + "a": b"2", prefix + "b": b"3"})
        entry = await store.get(prefix + "a")
        assert entry
        await store.swap(prefix + "a", None, entry.version)
        await next_state(watch, {prefix + "b": b"3"})
        await watch.aclose()  # type: ignore[attr-defined]

    run(use)


def test_what_is_not_renewed_goes(run: Run) -> None:
    async def use(store: Store) -> None:
        prefix = fresh()
        await store.put(prefix + "short", b"x", 1.0)
        await store.put(prefix + "renewed", b"y", 1.0)
        await store.put(prefix + "stays", b"z")
        await store.put(prefix + "renewed", b"y", 60.0)
        watch = store.watch(prefix)
        await next_state(watch, {prefix + "renewed": b"y", prefix + "stays": b"z"})
        assert await store.get(prefix + "short") is None
        await watch.aclose()  # type: ignore[attr-defined]

    run(use)


def test_sqlite_is_private_and_shared_between_processes(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "store.db"

    async def main() -> None:
        one, other = SqliteStore(path), SqliteStore(path)
        watch = one.watch("a/")
        await next_state(watch, {})
        await other.put("a/b", b"c")
        await next_state(watch, {"a/b": b"c"})
        for file in path.parent.iterdir():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        await watch.aclose()  # type: ignore[attr-defined]
        await one.close()
        await other.close()

    asyncio.run(asyncio.wait_for(main(), SECONDS))


def test_sqlite_follows_the_file_that_is_there(tmp_path: Path) -> None:
    """A copy that is brought back, say. What was revoked in it was good for ever in the monitor that ran."""
    path, other = tmp_path / "store.db", tmp_path / "other.db"

    async def main() -> None:
        running = SqliteStore(path)
        await running.put("token/a", b"old")
        fresh = SqliteStore(other)
        await fresh.put("token/b", b"new")
        await fresh.close()
        for left in tmp_path.glob("store.db-*"):
            left.unlink()
        path.unlink()
        with pytest.raises(StoreError, match=r"store\.db: No such file"):
            await running.read("token/")
        other.rename(path)
        assert {key: entry.value for key, entry in (await running.read("token/")).items()} == {
            "token/b": b"new"
        }
        path.unlink()
        await running.close()

    asyncio.run(asyncio.wait_for(main(), SECONDS))


def test_a_watch_of_a_file_that_cannot_be_read_says_so_and_goes_on(tmp_path: Path) -> None:
    """Nobody was told, who waited for a change for ever."""
    path = tmp_path / "store.db"

    async def main() -> None:
        store = SqliteStore(path)
        watch = store.watch("token/")
        await next_state(watch, {})
        path.rename(tmp_path / "away.db")
        with structlog.testing.capture_logs() as logs:
            waiting = asyncio.ensure_future(next_state(watch, {"token/a": b"new"}))
            while not logs:
                await asyncio.sleep(0.01)
        (tmp_path / "away.db").rename(path)
        assert logs[0]["event"] == "the store cannot be read"
        assert logs[0]["reason"] == f"{path}: No such file or directory"
        await store.put("token/a", b"new")
        await waiting
        await watch.aclose()  # type: ignore[attr-defined]
        await store.close()

    asyncio.run(asyncio.wait_for(main(), SECONDS))


def test_a_full_file_says_so(tmp_path: Path) -> None:
    """SQLite ends the transaction itself; what was told was that there is none."""

    async def main() -> None:
        store = SqliteStore(tmp_path / "store.db")
        (pages,) = store._connection.execute("PRAGMA page_count").fetchone()
        store._connection.execute(f"PRAGMA max_page_count = {pages + 1}")
        with pytest.raises(StoreError, match="disk is full"):
            await store.put("a", bytes(100_000))
        await store.put("a", b"small")
        await store.close()

    asyncio.run(asyncio.wait_for(main(), SECONDS))


def test_a_store_of_another_schema_is_left_alone(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "store.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match="schema 99"):
        SqliteStore(path)
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(StoreError, match=str(path)):
        SqliteStore(path)


_WRITER = """
import asyncio, sys
from pathlib import Path
from types import SimpleNamespace
from gpuferry.monitor.store.sqlite import SqliteStore
from gpuferry.specs._generated import etcd_pb2

async def main():
    store = SqliteStore(Path(sys.argv[1]))
    number = int(sys.argv[2])
    while True:
        await store.put(f"n/{number:08}", str(number).encode() * 200)
        print(number, flush=True)
        number += 1

asyncio.run(main())
"""


@pytest.mark.system
def test_sqlite_survives_a_kill_in_the_middle_of_writing(tmp_path: Path) -> None:
    """Whatever was acknowledged is there afterwards, whole; and at most the one being written besides."""
    path = tmp_path / "store.db"
    acknowledged = 0
    for after in (1, 20, 47, 90, 150):
        command = [sys.executable, "-c", _WRITER, str(path), str(acknowledged + 1)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout
            for line in writer.stdout:
                acknowledged = int(line)
                if acknowledged >= after:
                    os.kill(writer.pid, signal.SIGKILL)
                    break
            for line in writer.stdout:  # what it said before it died
                acknowledged = int(line)

        async def check(least: int) -> int:
            store = SqliteStore(path)
            found = await store.read("n/")
            await store.close()
            assert len(found) in (least, least + 1)
            for number, (key, entry) in enumerate(found.items(), 1):
                assert (key, entry.value) == (f"n/{number:08}", str(number).encode() * 200)
            return len(found)

        acknowledged = asyncio.run(check(acknowledged))


def _run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, SECONDS))


@pytest.mark.system
def test_etcd_goes_on_without_its_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes and watches go on when the leader, then another leader with the first one back, is killed."""
    monkeypatch.setattr(etcd_store, "PATIENCE_SECONDS", SECONDS)  # elections take as long as they take

    async def main(cluster: Etcd) -> None:
        store = EtcdStore(cluster.addresses)
        watch = store.watch("t/")
        wanted = {}
        for turn in range(2):
            for i in range(3):
                key, value = f"t/{turn}{i}", b"%d" % i
                await store.put(key, value)
                wanted[key] = value
            dead = await asyncio.to_thread(cluster.leader)
            dead.kill()
            assert await store.swap(f"t/after{turn}", b"x", ABSENT)
            wanted[f"t/after{turn}"] = b"x"
            assert {key: entry.value for key, entry in (await store.read("t/")).items()} == wanted
            await next_state(watch, wanted)
            dead.start()
        await watch.aclose()  # type: ignore[attr-defined]
        await store.close()

    with etcd(3) as cluster:
        _run(main(cluster))


def test_without_a_majority_nothing_is_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(cluster: Etcd) -> None:
        store = EtcdStore(cluster.addresses)
        await store.put("t/a", b"1")
        monkeypatch.setattr("gpuferry.monitor.store.etcd.PATIENCE_SECONDS", 1.0)
        for member in cluster.members[:2]:
            member.kill()
        with pytest.raises(StoreError, match="etcd at"):
            await store.put("t/a", b"2")
        with pytest.raises(StoreError):  # not even read: what it knows may be old
            await store.get("t/a")
        await store.close()

    with etcd(3) as cluster:
        _run(main(cluster))


def test_a_watch_leaves_a_member_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not dead: its connections stay open. Nothing below the watch may tell."""
    monkeypatch.setattr("gpuferry.monitor.store.etcd._OPTIONS", ())

    async def main(cluster: Etcd) -> None:
        leader = await asyncio.to_thread(cluster.leader)
        silent = next(member for member in cluster.members if member is not leader)
        others = [member.address for member in cluster.members if member is not silent]
        store, writer = EtcdStore([silent.address, *others]), EtcdStore(others)
        watch = store.watch("t/")
        await next_state(watch, {})
        await writer.put("t/a", b"1")
        await next_state(watch, {"t/a": b"1"})
        silent.process.send_signal(signal.SIGSTOP)
        try:
            await writer.put("t/b", b"2")
            await next_state(watch, {"t/a": b"1", "t/b": b"2"})
        finally:
            silent.process.send_signal(signal.SIGCONT)
        await watch.aclose()  # type: ignore[attr-defined]
        await asyncio.gather(store.close(), writer.close())

    with etcd(3) as cluster:
        _run(main(cluster))


def test_a_quiet_watch_stays_at_its_member(etcd_cluster: Etcd, monkeypatch: pytest.MonkeyPatch) -> None:
    """The member is asked whether it is there, and its answer is no change."""
    monkeypatch.setattr(etcd_store, "_OPTIONS", ())  # gRPC itself waits 3 s for an answer
    monkeypatch.setattr("gpuferry.monitor.store.etcd_watch.SILENCE_SECONDS", 0.05)
    monkeypatch.setattr("gpuferry.monitor.store.etcd_watch.ANSWER_SECONDS", 60.0)
    prefix = fresh()

    async def main() -> None:
        store = EtcdStore(etcd_cluster.addresses)
        reads, read = [], store._range

        async def counted(*key: bytes) -> Any:
            reads.append(key)
            return await read(*key)

        monkeypatch.setattr(store, "_range", counted)
        watch = store.watch(prefix)
        await next_state(watch, {})
        change = asyncio.ensure_future(next_state(watch, {prefix + "a": b"1"}))
        assert not (await asyncio.wait({change}, timeout=1.0))[0]
        await store.put(prefix + "a", b"1")
        await change
        assert len(reads) == 1
        await watch.aclose()  # type: ignore[attr-defined]
        await store.close()

    _run(main())


def test_a_watch_outlives_a_compaction(etcd_cluster: Etcd, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the very history that it was about to go on from."""
    prefix = fresh()

    async def main() -> None:
        store = EtcdStore(etcd_cluster.addresses)
        read = store._range
        compacted: list[int] = []

        async def read_late(*key: bytes) -> Any:
            answer = await read(*key)
            if not compacted:
                for value in (b"1", b"2", b"3"):
                    await store.put(prefix + "a", value)
                entry = (await read(*key)).kvs[0]
                channel = store._members[0].channel
                compact = channel.unary_unary("/etcdserverpb.KV/Compact", None, None)  # bytes as they are
                await compact(b"\x08" + _varint(entry.mod_revision))
                compacted.append(entry.mod_revision)
            return answer

        monkeypatch.setattr(store, "_range", read_late)
        watch = store.watch(prefix)
        await next_state(watch, {})
        await next_state(watch, {prefix + "a": b"3"})
        assert compacted
        await watch.aclose()  # type: ignore[attr-defined]
        await store.close()

    _run(main())


def _varint(number: int) -> bytes:
    low = bytes([number & 0x7F | (0x80 if number > 0x7F else 0)])
    return low + (_varint(number >> 7) if number > 0x7F else b"")


def test_leases_do_not_know_the_time_of_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour back kept a silent server alive for an hour, an hour forward made all be silent."""
    clock = SimpleNamespace(now=1000.0, day=1.7e9)
    fake = SimpleNamespace(monotonic=lambda: clock.now, time=lambda: clock.day)
    monkeypatch.setattr(sqlite, "time", fake)

    async def main() -> None:
        store = SqliteStore(tmp_path / "db")
        await store.put("alive", b"x", ttl=5.0)
        clock.day += 3600
        assert await store.get("alive")
        clock.day -= 7200
        clock.now += 6
        assert not await store.get("alive")
        await store.put("alive", b"x", ttl=5.0)
        await store.put("kept", b"y")
        await store.close()
        monkeypatch.setattr(sqlite, "BOOT_ID", str(tmp_path / "boot"))
        (tmp_path / "boot").write_text("another start of the machine\n")
        clock.now = 1.0
        again = SqliteStore(tmp_path / "db")
        assert not await again.get("alive")
        assert await again.get("kept")
        await again.close()

    asyncio.run(main())


def test_etcd_forgets_what_was_overwritten(etcd_cluster: Etcd, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else every heartbeat that there ever was stays in its file, until that is full and takes no writes."""
    monkeypatch.setattr(etcd_store, "HISTORY_SECONDS", 0.0)
    key = fresh("beat")

    async def main() -> None:
        store = EtcdStore(etcd_cluster.addresses)
        for value in (b"1", b"2", b"3", b"4"):
            await store.put(key, value)
        entry = await store.get(key)
        assert entry
        first = etcd_pb2.RangeRequest(key=store._key(key), revision=entry.version - 3)
        with pytest.raises(grpc.aio.AioRpcError, match="compacted"):
            await store._members[0].kv.Range(first)
        assert (await store.get(key)) == entry
        await store.close()

    _run(main())


def test_much_is_read_at_once(etcd_cluster: Etcd) -> None:
    """What a hundred GPU servers say is more than the 4 MiB of which gRPC takes messages by itself."""
    prefix = fresh()

    async def main() -> None:
        store = EtcdStore(etcd_cluster.addresses)
        for number in range(5):
            await store.put(f"{prefix}{number}", bytes(1 << 20))
        assert len(await store.read(prefix)) == 5
        await store.close()

    _run(main())
