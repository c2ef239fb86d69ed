"""What a registry is told to do."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from ...settings import options
from ...settings.options import option
from .choose import POLICIES

DEFAULT_CONTROL = "127.0.0.1:7701"


def _store(text: str) -> str:
    if text != "sqlite" and not re.fullmatch(r"etcd:[^,\s]+(,[^,\s]+)*", text):
        raise ValueError("write sqlite, or etcd:HOST:PORT,HOST:PORT")
    return text


@dataclass(frozen=True, kw_only=True)
class RegistryOptions:
    """What a user may set; each line is a flag, a variable, a key of registry.toml, help and a check."""

    listen: str = option(options.address(unix=False), "127.0.0.1:7700", "Where guests connect")
    control: str = option(
        options.address(unix=False), DEFAULT_CONTROL, "gRPC for GPU servers and the CLI; calls are signed"
    )
    store: str = option(
        options.Kind("STORE", _store), "sqlite", "sqlite, or etcd:HOST:PORT,HOST:PORT… for several replicas"
    )
    policy: str = option(options.choice(*POLICIES), POLICIES[0], "Which GPU server a guest is sent to")
    lease: float = option(options.seconds(0.1), 5.0, "A GPU server that is silent for so long gets no guests")
    max_wait: float = option(options.seconds(), 10.0, "How long a guest may wait for a GPU server to appear")
    handshake_timeout: float = option(
        options.seconds(0.01), 5.0, "How long a guest may take to introduce itself"
    )
    token_file: str | None = option(
        options.optional(options.path()), None, "A token for guests without tenant", "GPUFERRY_TOKEN_FILE"
    )
    cluster_key_file: str | None = option(
        options.optional(options.path()),
        None,
        "The key shared with GPU servers; none: cluster.key in the state folder, made at the first start",
        "GPUFERRY_CLUSTER_KEY_FILE",
    )
    state: str | None = option(
        options.optional(options.path("FOLDER")), None, "What must survive", "GPUFERRY_STATE_DIR"
    )
    tls_cert: str | None = options.tls_cert()
    tls_key: str | None = options.tls_key()
    tls_ca: str | None = options.tls_ca()
    insecure: bool = options.insecure()
    log_level: str = options.log_level()
    log_format: str = options.log_format()


@dataclass(frozen=True, kw_only=True)
class RegistryConfig(RegistryOptions):
    """The settings of one registry, all resolved."""

    runtime: Path
    token: bytes = field(repr=False)
    cluster_key: bytes = field(repr=False)
    cluster_key_path: str
