"""The store in one file, for one machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import structlog

from ..service.rates import Sparing
from .interface import ABSENT, Entry, StoreError

SCHEMA = 1
POLL_SECONDS = 0.25  # how soon a watch sees what another process wrote
BUSY_SECONDS = 5.0
LEAST_ROOM = 64 << 10  # bytes of a disk that take what SQLite keeps beside its file
BOOT, BOOT_ID = "~boot", "/proc/sys/kernel/random/boot_id"
_NOW = "(expires IS NULL OR expires > ?)"

Result = TypeVar("Result")
log = structlog.get_logger()


def _opened(path: Path) -> sqlite3.Connection:
    """The file, which is made if need be. Raises StoreError."""
    try:
        return _open(path)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"{path}: {_reason(error, path)}") from None


def _reason(error: OSError | sqlite3.Error, path: Path) -> str:
    """Why the file cannot be used. Of a full disk SQLite says "disk I/O error" as of a broken one."""
    reason = str(error.strerror if isinstance(error, OSError) else error)
    with contextlib.suppress(OSError):
        if shutil.disk_usage(path.parent).free < LEAST_ROOM and "full" not in reason:
            reason += " (no space is left on its disk)"
    return reason


def _file_at(path: Path) -> tuple[int, int]:
    """Which file is there. Raises StoreError if there is none."""
    try:
        status = path.stat()
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from None
    return status.st_dev, status.st_ino


def _open(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))  # its -wal and -shm get this too
    connection = sqlite3.connect(path, BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        (schema,) = connection.execute("PRAGMA user_version").fetchone()
        if schema not in (0, SCHEMA):
            raise StoreError(f"{path} has schema {schema}, this gpuferry knows {SCHEMA}: use another folder")
        if schema != SCHEMA:  # to write what is there already takes room, which a full disk does not have
            connection.execute(
                "CREATE TABLE IF NOT EXISTS entries (key TEXT PRIMARY KEY, value BLOB NOT NULL,"
                " version INTEGER NOT NULL, expires REAL) WITHOUT ROWID"
            )
            connection.execute(f"PRAGMA user_version = {SCHEMA}")
        _forget_other_boots(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _forget_other_boots(connection: sqlite3.Connection) -> None:
    """Leases end by the clock that counts from the machine's start, which nobody sets: those of an earlier
    start, and of a gpuferry that took the time of day, are over.
    """
    boot = Path(BOOT_ID).read_bytes().strip()
    with _transaction(connection):
        (known,) = connection.execute("SELECT value FROM entries WHERE key = ?", (BOOT,)).fetchone() or (
            None,
        )
        if known != boot:
            connection.execute("DELETE FROM entries WHERE expires IS NOT NULL")
            connection.execute(
                "INSERT OR REPLACE INTO entries VALUES (?, ?, ?, NULL)", (BOOT, boot, _version())
            )


class SqliteStore:
    """Several processes of this machine may share the file: the registry, a monitor, `gpuferry token`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = _opened(path)
        self._file = _file_at(path)
        # SQLite waits for the disk: on a thread, in the order of the calls.
        self._worker = ThreadPoolExecutor(1, "store")
        self._watches: set[asyncio.Event] = set()
        self._notes = Sparing(log.warning)

    async def _do(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._worker, lambda: work(self._current()))
        except sqlite3.Error as error:
            raise StoreError(_reason(error, self._path)) from None

    def _current(self) -> sqlite3.Connection:
        """The connection to the file that is there now. In the one that was opened first, whose place another
        has taken, tokens would be good for ever: nobody else reaches it to revoke them.
        """
        if (file := _file_at(self._path)) != self._file:
            connection = _opened(self._path)
            self._connection.close()
            self._connection, self._file = connection, file
        return self._connection

    async def get(self, key: str) -> Entry | None:
        """The newest value of the key; None: there is no such key."""
        query = f"SELECT value, version FROM entries WHERE key = ? AND {_NOW}"
        row = await self._do(lambda sql: sql.execute(query, (key, time.monotonic())).fetchone())
        return Entry(*row) if row else None

    async def read(self, prefix: str) -> dict[str, Entry]:
        """All keys with this prefix in order, with their entries."""
        query = f"SELECT key, value, version FROM entries WHERE key >= ? AND key < ? AND {_NOW} ORDER BY key"
        bounds = (prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1))
        rows = await self._do(lambda sql: sql.execute(query, (*bounds, time.monotonic())).fetchall())
        return {key: Entry(value, version) for key, value, version in rows}

    async def put(self, key: str, value: bytes, ttl: float | None = None) -> None:
        """Write a value. One with `ttl` need not survive a power failure, so the disk is not waited for."""
        now = time.monotonic()
        expires = None if ttl is None else now + ttl

        def write(sql: sqlite3.Connection) -> None:
            sql.execute(f"PRAGMA synchronous = {'FULL' if ttl is None else 'NORMAL'}")
            with _transaction(sql):
                sql.execute("DELETE FROM entries WHERE expires <= ?", (now,))
                sql.execute(
                    "INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)", (key, value, _version(), expires)
                )

        await self._do(write)
        self._changed()

    async def swap(self, key: str, value: bytes | None, version: int) -> bool:
        """Write a value, or with None delete the key, if the key still has this version; else return
        False.
        """
        now = time.monotonic()

        def write(sql: sqlite3.Connection) -> bool:
            sql.execute("PRAGMA synchronous = FULL")
            with _transaction(sql):
                query = f"SELECT version FROM entries WHERE key = ? AND {_NOW}"
                (found,) = sql.execute(query, (key, now)).fetchone() or (ABSENT,)
                if found != version:
                    return False
                if value is None:
                    sql.execute("DELETE FROM entries WHERE key = ?", (key,))
                else:
                    sql.execute(
                        "INSERT OR REPLACE INTO entries VALUES (?, ?, ?, NULL)", (key, value, _version())
                    )
                return True

        done = await self._do(write)
        self._changed()
        return done

    def _changed(self) -> None:
        for event in self._watches:
            event.set()

    async def watch(self, prefix: str) -> AsyncIterator[Mapping[str, bytes]]:
        """All keys with this prefix and their values now, and again after every change."""
        event = asyncio.Event()
        self._watches.add(event)
        seen: dict[str, bytes] | None = None
        try:
            while True:
                event.clear()
                try:
                    state = {key: entry.value for key, entry in (await self.read(prefix)).items()}
                except StoreError as error:  # the next look may see more
                    self._notes.say("the store cannot be read", prefix, reason=str(error))
                else:
                    if state != seen:
                        seen = state
                        yield dict(state)
                look = asyncio.get_running_loop().call_later(POLL_SECONDS, event.set)
                await event.wait()
                look.cancel()
        finally:
            self._watches.discard(event)

    async def close(self) -> None:
        """Close the file once what is being written is there."""
        await asyncio.get_running_loop().run_in_executor(self._worker, lambda: self._connection.close())
        self._worker.shutdown()


def _version() -> int:
    return secrets.randbits(62) | 1


@contextlib.contextmanager
def _transaction(sql: sqlite3.Connection) -> Iterator[None]:
    sql.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if sql.in_transaction:  # a full disk, say, has ended it
            sql.execute("ROLLBACK")
        raise
    sql.execute("COMMIT")
