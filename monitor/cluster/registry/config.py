"""What a registry is told to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ...settings import options
from ...settings.common import Encryption, Logs
from ...settings.options import option
from ...store.settings import EtcdOptions, store_name
from .choose import POLICIES

DEFAULT_CONTROL = "127.0.0.1:7701"


@dataclass(frozen=True, kw_only=True)
class RegistryOptions(Encryption, Logs, EtcdOptions):
    """What a user may set; each line is a flag, a variable, a key of registry.toml, help and a check."""

    listen: str = option(options.address(unix=False), "127.0.0.1:7700", "Where guests connect")
    control: str = option(options.address(unix=False), DEFAULT_CONTROL, "gRPC for GPU servers and the CLI")
    store: str = option(
        options.Kind("STORE", store_name),
        "sqlite",
        "sqlite, or etcd:HOST:PORT,HOST:PORT… for several replicas",
    )
    policy: str = option(options.choice(*POLICIES), POLICIES[0], "Which GPU server a guest is sent to")
    lease: float = option(options.seconds(0.1), 5.0, "A GPU server that is silent for so long gets no guests")
    max_wait: float = option(options.seconds(), 10.0, "How long a guest may wait for a GPU server to appear")
    handshake_timeout: float = option(
        options.seconds(0.01), 5.0, "How long a guest may take to introduce itself"
    )
    token_file: str | None = option(
        options.optional(options.path()),
        None,
        "The token of guests without a tenant, mode 0600; none: one that is made up at each start",
        "GPUFERRY_TOKEN_FILE",
    )
    cluster_key_file: str | None = option(
        options.optional(options.path()),
        None,
        "The key shared with GPU servers; none: cluster.key in the state folder, made at the first start",
        "GPUFERRY_CLUSTER_KEY_FILE",
    )
    state: str | None = option(
        options.optional(options.path("FOLDER")),
        None,
        "What must survive a restart; none: where XDG says",
        "GPUFERRY_STATE_DIR",
    )


@dataclass(frozen=True, kw_only=True)
class RegistryConfig(RegistryOptions):
    """The settings of one registry, all resolved."""

    runtime: Path
    token: bytes = field(repr=False)
    cluster_key: bytes = field(repr=False)
    cluster_key_path: str
