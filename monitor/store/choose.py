"""From a name to a store."""

from __future__ import annotations

from pathlib import Path

from ..service.dial import stays_here
from ..settings.errors import ConfigError
from .etcd_access import Access
from .interface import Store


def open_store(name: str, path: Path, access: Access, insecure: bool = False) -> Store:
    """Open a store: `sqlite`, a file at `path`, or `etcd:HOST:PORT,…`, reached as `access` says.

    Raises ConfigError if what is stored would travel to other machines in the clear.
    """
    if name == "sqlite":
        from .sqlite import SqliteStore

        return SqliteStore(path)
    from .etcd import EtcdStore

    addresses = name.removeprefix("etcd:").split(",")
    for address in addresses:
        if not (access.ca or insecure or stays_here(address)):
            raise ConfigError(
                f"--store {name}: {address} is another machine, and would be spoken to in the clear",
                "give etcd's authority with --etcd-ca; --insecure does without",
            )
    return EtcdStore(addresses, access)
