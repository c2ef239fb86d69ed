"""What a registry is told to do."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from ...settings import options
from ...settings.common import Encryption, Logs
from ...settings.options import option
from .choose import POLICIES

DEFAULT_CONTROL = "127.0.0.1:7701"
DEFAULT_PREFIX = "/gpuferry/"


def _store(text: str) -> str:
    if text != "sqlite" and not re.fullmatch(r"etcd:[^,\s]+(,[^,\s]+)*", text):
        raise ValueError("write sqlite, or etcd:HOST:PORT,HOST:PORT")
    return text


@dataclass(frozen=True, kw_only=True)
class RegistryOptions(Encryption, Logs):
    """What a user may set; each line is a flag, a variable, a key of registry.toml, help and a check."""

    listen: str = option(options.address(unix=False), "127.0.0.1:7700", "Where guests connect")
    control: str = option(options.address(unix=False), DEFAULT_CONTROL, "gRPC for GPU servers and the CLI")
    store: str = option(
        options.Kind("STORE", _store), "sqlite", "sqlite, or etcd:HOST:PORT,HOST:PORT… for several replicas"
    )
    etcd_ca: str | None = option(
        options.optional(options.path()), None, "Certificate of etcd's authority; none: no TLS towards etcd"
    )
    etcd_cert: str | None = option(
        options.optional(options.path()), None, "Certificate that is shown to etcd, if it asks for one"
    )
    etcd_key: str | None = option(
        options.optional(options.path()), None, "Private key of that certificate, mode 0600"
    )
    etcd_user: str | None = option(
        options.optional(options.text("NAME")), None, "Who etcd knows the registry as; none: nobody"
    )
    etcd_password_file: str | None = option(
        options.optional(options.path()), None, "The user's password, mode 0600"
    )
    etcd_prefix: str = option(options.text("PREFIX"), DEFAULT_PREFIX, "What all keys in etcd begin with")
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


@dataclass(frozen=True, kw_only=True)
class RegistryConfig(RegistryOptions):
    """The settings of one registry, all resolved."""

    runtime: Path
    token: bytes = field(repr=False)
    cluster_key: bytes = field(repr=False)
    cluster_key_path: str
