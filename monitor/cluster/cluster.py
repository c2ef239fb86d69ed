"""What a monitor was told of the cluster that it belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..service.dial import check_way
from ..service.logs import hide
from ..service.tls import Identity
from ..settings.errors import ConfigError
from ..settings.folders import state_directory
from ..settings.monitor_options import MonitorOptions
from .key import NAME, read_cluster_key


@dataclass(frozen=True)
class Cluster:
    """Key, registries and the way to them; a monitor for itself has neither."""

    key: bytes | None = field(repr=False)
    registries: Sequence[str]  # control ports of the replicas, as HOST:PORT or tls://HOST:PORT
    identity: Identity | None = None
    insecure: bool = False


def cluster_of(config: MonitorOptions, identity: Identity | None) -> Cluster:
    """Read the cluster key, and hide it from log lines. ConfigError: a registry is named without a key, or
    would be spoken to in the clear.
    """
    key = read_cluster_key(config.cluster_key_file, state_directory(config.state))
    registries = [name.strip() for name in config.registry.split(",")] if config.registry else []
    if key:
        hide(key.decode())
    elif registries:
        raise ConfigError(
            "--registry needs the cluster key",
            f"copy the registry's {NAME} here and give it with --cluster-key-file",
        )
    for registry in registries:
        check_way(registry, identity, config.insecure)
    return Cluster(key, registries, identity, config.insecure)
