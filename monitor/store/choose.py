"""From a name to a store."""

from __future__ import annotations

from pathlib import Path

from ..settings import ConfigError
from .interface import Store


def open_store(name: str, path: Path) -> Store:
    """`sqlite`, which uses the path, or `etcd:HOST:PORT,…`; ConfigError if it is neither."""
    if name == "sqlite":
        from .sqlite import SqliteStore

        return SqliteStore(path)
    kind, _, addresses = name.partition(":")
    if kind != "etcd" or not addresses:
        raise ConfigError(f"--store {name}: write sqlite, or etcd:HOST:PORT,HOST:PORT")
    from .etcd import EtcdStore

    return EtcdStore([address.strip() for address in addresses.split(",")])
