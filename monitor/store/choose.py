"""From a name to a store."""

from __future__ import annotations

from pathlib import Path

from .interface import Store


def open_store(name: str, path: Path) -> Store:
    """Open a store: `sqlite`, a file at `path`, or `etcd:HOST:PORT,…`."""
    if name == "sqlite":
        from .sqlite import SqliteStore

        return SqliteStore(path)
    from .etcd import EtcdStore

    return EtcdStore(name.removeprefix("etcd:").split(","))
