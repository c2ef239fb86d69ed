"""What a user may tell a monitor, by topic: a line is flag, variable, key in monitor.toml, help and check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpuferry.guest.endpoint import runtime_directory
from gpuferry.specs._generated.frames import SEATS

from ..policy.names import DEFICITS, FITS, MOVERS, QUEUES, QUOTAS, SHARINGS
from . import limits, options, scopes
from .common import Encryption, Logs
from .options import option

USER_MOST = 2**32 - 2  # the last user that there can be
TOKENS_MOST = 2**32 - 1  # as control.proto can tell
OVERSUBSCRIBE_MOST = 1e6  # of a terabyte, as control.proto can tell
POOL_MOST = 4096  # as many as jails have users; with absurd numbers a monitor hung, and heeded no SIGTERM

DEFAULT_LISTEN = "127.0.0.1:7700"
DEFAULT_HTTP = "127.0.0.1:7780"
AUTO = "auto"


def default_socket() -> str:
    """The Unix socket where guests of the same user connect."""
    return str(Path(runtime_directory(), "session.sock"))


def default_control() -> str:
    """The address where the CLI of the same user connects."""
    return f"unix:{runtime_directory()}/control.sock"


@dataclass(frozen=True, kw_only=True)
class Addresses:
    """Where it listens, and the cluster that it belongs to."""

    listen: str | None = option(
        options.optional(options.address(unix=False)),
        DEFAULT_LISTEN,
        "Where guests connect; none: only the Unix socket",
    )
    socket: str | None = option(
        options.optional(options.path("PATH")), default_socket, "Unix socket for guests; none: only TCP"
    )
    control: str = option(options.address(), default_control, "gRPC for the CLI: unix:PATH or HOST:PORT")
    http: str | None = option(
        options.optional(options.address(unix=False, word=AUTO)),
        AUTO,
        f"Page, metrics and health; auto: {DEFAULT_HTTP} or any free port; none: off",
    )
    advertise: str | None = option(
        options.optional(options.address(unix=False)),
        None,
        "The address that the registry gives to guests; none: what --listen bound",
    )
    registry: str | None = option(
        options.optional(options.text("HOST:PORT,…")),
        None,
        "Control ports of the registry's replicas",
        "GPUFERRY_REGISTRY",
    )
    cluster_key_file: str | None = option(
        options.optional(options.path()),
        None,
        "The file of the key that the cluster's registries and servers share, mode 0600",
        "GPUFERRY_CLUSTER_KEY_FILE",
    )


@dataclass(frozen=True, kw_only=True)
class Devices:
    """Devices, and the API servers that are kept ready on them."""

    device: str = option(options.choice("auto", "gpu", "sim"), "auto", "What to offer", "GPUFERRY_DEVICE")
    pool: int = option(options.count(1, POOL_MOST), 2, "API servers per device, created ahead")
    min_idle: int = option(
        options.count(0, POOL_MOST),
        0,
        "API servers per device that are idle at any time, as far as memory allows",
    )
    memory: int = option(options.size(), 0, "Quota of a session that asks for none; 0: an equal share")
    headroom: int | None = option(
        options.optional(options.size()),
        None,
        "Memory per device that is never granted; none: what API servers themselves need",
    )
    sample: float = option(options.seconds(), 0.2, "Time between two questions to NVML; 0: never")
    check_kernels: str = option(
        options.choice("auto", "on", "off"),
        "auto",
        "Whether kernels on the simulated device are held to their own memory; auto: where there are tenants",
    )


@dataclass(frozen=True, kw_only=True)
class Admission:
    """Who gets a session, where, and what it may have."""

    policy: str = option(options.choice(*FITS), "best-fit", "Which device a session gets")
    queue: str = option(
        options.choice(*QUEUES), "fcfs", "Who is next: strictly the first, or the first that fits"
    )
    label_scope: str = option(
        options.choice(*scopes.SCOPES),
        scopes.TENANT,
        "Whose sessions the labels of --affinity, --anti-affinity and --exclusive are about: the tenant's "
        "own, or everybody's",
    )
    max_wait: float = option(options.seconds(), 60.0, "How long a guest may wait for an API server")
    processes: int = option(
        options.count(1, SEATS), 64, "Processes of one program that may share its lease at once"
    )
    host_memory: int = option(
        options.size(),
        4 << 30,
        "Host memory that a session may make its API server keep: code, objects, replies",
    )
    wall_limit: float = option(options.seconds(), 0.0, "How long a session may live; 0: no limit")
    idle_limit: float = option(options.seconds(), 0.0, "How long a session may make no calls; 0: no limit")
    tenants: Mapping[str, str] | None = option(
        options.optional(limits.tenants()),
        None,
        f"What tenants may have: {', '.join(limits.NAMES)}; of `default`: those of whom nothing else is said",
    )
    move_variables: str = option(
        options.choice("follow", "same"),
        "follow",
        "A move to where module variables have other addresses: made if nothing is found that holds the old "
        "ones, or refused",
    )
    migration: str = option(
        options.choice(*MOVERS),
        "off",
        "Whether sessions move to other devices by themselves: never, as in DGSF, or where it pays",
    )


@dataclass(frozen=True, kw_only=True)
class TimeSharing:
    """How sessions share a GPU's time."""

    sharing: str = option(
        options.choice(*SHARINGS),
        "free",
        "How sessions share a GPU's time: all at once, by requests and limits, or in turns",
    )
    tokens: int = option(
        options.count(1, TOKENS_MOST), 1, "With --sharing turns: sessions that may work on a GPU at once"
    )
    quota: float = option(
        options.seconds(),
        0.1,
        "How long a turn lasts while others wait; 0, with --sharing turns: until there is nothing left to do",
    )
    quota_rule: str = option(
        options.choice(*QUOTAS), "fixed", "With --sharing time: --quota, or as long as a session's bursts are"
    )
    window: float = option(options.seconds(0.001), 10.0, "The time in which requests and limits must hold")
    mps: bool = option(
        options.switch(),
        False,
        "Let API servers share GPUs by NVIDIA's MPS, and run its daemon; a limit below 1 is a percentage of "
        "a GPU's threads. Needs --jail off",
    )
    overrun: float = option(
        options.seconds(0.001),
        2.0,
        "For how long a kernel that cannot be stopped may hold up the next turn; it is charged in any case",
    )
    deficit: str = option(
        options.choice(*DEFICITS),
        "relative",
        "How those rank that had less than their request: by the part of it that they lack, or by seconds as "
        "with KubeShare",
    )
    gemini: bool = option(
        options.switch(), False, "With --sharing time: as Gemini's scheduler does it, where that differs"
    )


@dataclass(frozen=True, kw_only=True)
class Residency:
    """Where memory goes that does not fit on a GPU."""

    oversubscribe: float = option(
        options.factor(1.0, OVERSUBSCRIBE_MOST),
        1.0,
        "How many times a device's memory leases may add up to; what does not fit is kept in host memory",
    )
    away_memory: int = option(
        options.size(), 8 << 30, "Host memory for memory of sessions that is not on their device, in all"
    )
    disk: int = option(options.size(), 0, "Room on a disk for what does not fit there, in all; 0: none")
    disk_folder: str | None = option(
        options.optional(options.path("FOLDER")),
        None,
        "Where on the disk, in files without a name; none: in the state folder",
    )


@dataclass(frozen=True, kw_only=True)
class Safety:
    """Who is let in, and jails."""

    token_file: str | None = option(
        options.optional(options.path()),
        None,
        "The token's file, mode 0600; none: a token that is made up at each start",
        "GPUFERRY_TOKEN_FILE",
    )
    page_key_file: str | None = option(
        options.optional(options.path()), None, "The page's key, mode 0600; none: it follows from the token"
    )
    jail: str = option(
        options.choice("auto", "on", "off"),
        "auto",
        "Whether API servers are kept in jails: if it can be had, always, or never",
    )
    jail_uids: str = option(
        options.numbers(USER_MOST),
        "200000:4096",
        "Users, one for each jail, where the monitor is root; nobody else's on this machine",
    )
    jail_memory: int = option(
        options.size(), 4 << 30, "Host memory that a jail may take, beside a simulated device's"
    )
    address_space: str = option(
        options.choice("auto", "fixed", "random"),
        "auto",
        "Whether API servers have the same address space, so that sessions find their module variables at the"
        " same addresses when they move, or one at random; auto: the same with NVIDIA's driver",
    )


@dataclass(frozen=True, kw_only=True)
class Patience:
    """What is kept, and for how long."""

    state: str | None = option(
        options.optional(options.path("FOLDER")),
        None,
        "What must survive a restart; none: where XDG says",
        "GPUFERRY_STATE_DIR",
    )
    snapshot_key_file: str | None = option(
        options.optional(options.path()),
        None,
        "The file of the key of files into which sessions are suspended, mode 0600; none: it follows from the"
        " cluster's key, or is made in the state folder",
        "GPUFERRY_SNAPSHOT_KEY_FILE",
    )
    handshake_timeout: float = option(
        options.seconds(0.01), 5.0, "How long a guest may take to introduce itself"
    )
    ready_timeout: float = option(options.seconds(0.01), 60.0, "How long an API server may take to start")
    start_timeout: float = option(options.seconds(0.01), 10.0, "How long it may take to accept a session")
    orphan_grace: float = option(
        options.seconds(), 60.0, "How long API servers wait for a new monitor when this one is killed"
    )
    resume_grace: float = option(
        options.seconds(most=86400),
        10.0,
        "How long a session is kept, with its memory, whose guest lost the connection and asked for that"
        " (GPUFERRY_ON_LOSS=reconnect)",
    )
    grace: float = option(options.seconds(), 5.0, "What running sessions get when the monitor stops")


@dataclass(frozen=True, kw_only=True)
class MonitorOptions(
    Addresses, Devices, Admission, TimeSharing, Residency, Safety, Patience, Encryption, Logs
):
    """All that a user may set."""
