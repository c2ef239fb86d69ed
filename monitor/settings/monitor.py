"""What a monitor is told to do, and the checks that need no running monitor."""

from __future__ import annotations

import ipaddress
import os
import secrets
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpuferry.guest.endpoint import read_token, runtime_directory, split_address
from gpuferry.specs._generated.frames import SEATS

from ..policy.names import DEFICITS, FITS, MOVERS, QUEUES, QUOTAS, SHARINGS
from ..policy.sharing import Sharing
from . import limits, options, scopes
from .errors import ConfigError
from .options import option
from .tokens import check_strength

DEFAULT_LISTEN = "127.0.0.1:7700"
DEFAULT_HTTP = "127.0.0.1:7780"
AUTO = "auto"
MIB = 1 << 20
NANO = 10**9


def default_socket() -> str:
    """The Unix socket where guests of the same user connect."""
    return str(Path(runtime_directory(), "session.sock"))


def default_control() -> str:
    """The address where the CLI of the same user connects."""
    return f"unix:{runtime_directory()}/control.sock"


@dataclass(frozen=True)
class MonitorOptions:
    """What a user may set; each line is a flag, a variable, a key of monitor.toml, help and a check."""

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
        options.optional(options.text("HOST:PORT")),
        AUTO,
        f"Page, metrics and health; auto: {DEFAULT_HTTP} or any free port; none: off",
    )
    sample: float = option(options.seconds(), 0.2, "Time between two questions to NVML; 0: never")
    pool: int = option(options.count(1), 2, "API servers per device, created ahead")
    device: str = option(options.choice("auto", "gpu", "sim"), "auto", "What to offer", "GPUFERRY_DEVICE")
    check_kernels: str = option(
        options.choice("auto", "on", "off"),
        "auto",
        "Whether kernels on the simulated device are held to their own memory; auto: where there are tenants",
    )
    memory: int = option(options.size(), 0, "Quota of a session that asks for none; 0: an equal share")
    processes: int = option(
        options.count(1, SEATS), 64, "Processes of one program that may share its lease at once"
    )
    host_memory: int = option(
        options.size(),
        4 << 30,
        "Host memory that a session may make its API server keep: code, objects, replies",
    )
    oversubscribe: float = option(
        options.factor(1.0),
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
    headroom: int | None = option(
        options.optional(options.size()),
        None,
        "Memory per device that is never granted; none: what API servers themselves need",
    )
    token_file: str | None = option(
        options.optional(options.path()), None, "The token's file, mode 0600", "GPUFERRY_TOKEN_FILE"
    )
    page_key_file: str | None = option(
        options.optional(options.path()), None, "The page's key, mode 0600; none: it follows from the token"
    )
    registry: str | None = option(
        options.optional(options.text("HOST:PORT,…")),
        None,
        "Control ports of the registry's replicas",
        "GPUFERRY_REGISTRY",
    )
    advertise: str | None = option(
        options.optional(options.address(unix=False)),
        None,
        "The address that the registry gives to guests; none: what --listen bound",
    )
    cluster_key_file: str | None = option(
        options.optional(options.path()),
        None,
        "The file of the key that the cluster's registries and servers share, mode 0600",
        "GPUFERRY_CLUSTER_KEY_FILE",
    )
    snapshot_key_file: str | None = option(
        options.optional(options.path()),
        None,
        "The file of the key of files into which sessions are suspended, mode 0600; none: it follows from the"
        " cluster's key, or is made in the state folder",
        "GPUFERRY_SNAPSHOT_KEY_FILE",
    )
    state: str | None = option(
        options.optional(options.path("FOLDER")),
        None,
        "What must survive a restart; none: where XDG says",
        "GPUFERRY_STATE_DIR",
    )
    max_wait: float = option(options.seconds(), 60.0, "How long a guest may wait for an API server")
    handshake_timeout: float = option(
        options.seconds(0.01), 5.0, "How long a guest may take to introduce itself"
    )
    ready_timeout: float = option(options.seconds(0.01), 60.0, "How long an API server may take to start")
    start_timeout: float = option(options.seconds(0.01), 10.0, "How long it may take to accept a session")
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
    migration: str = option(
        options.choice(*MOVERS),
        "off",
        "Whether sessions move to other devices by themselves: never, as in DGSF, or where it pays",
    )
    sharing: str = option(
        options.choice(*SHARINGS),
        "free",
        "How sessions share a GPU's time: all at once, by requests and limits, or in turns",
    )
    tokens: int = option(options.count(1), 1, "With --sharing turns: sessions that may work on a GPU at once")
    quota: float = option(
        options.seconds(),
        0.1,
        "How long a turn lasts while others wait; 0, with --sharing turns: until there is nothing left to do",
    )
    quota_rule: str = option(
        options.choice(*QUOTAS), "fixed", "With --sharing time: --quota, or as long as a session's bursts are"
    )
    window: float = option(options.seconds(0.001), 10.0, "The time in which requests and limits must hold")
    overrun: float = option(
        options.seconds(0.001),
        2.0,
        "For how long a kernel that cannot be stopped may hold up the next turn; it is charged in any case",
    )
    deficit: str = option(
        options.choice(*DEFICITS),
        "relative",
        "By what those compare that had less than their request: to the request, or in seconds as KubeShare",
    )
    gemini: bool = option(
        options.switch(), False, "With --sharing time: as Gemini's scheduler does it, where that differs"
    )
    wall_limit: float = option(options.seconds(), 0.0, "How long a session may live; 0: no limit")
    idle_limit: float = option(options.seconds(), 0.0, "How long a session may make no calls; 0: no limit")
    tenants: Mapping[str, str] | None = option(
        options.optional(limits.tenants()),
        None,
        "What tenants may have: sessions, memory, queue, connections, calls, wall, weight, processes; of "
        "`default`: those of whom nothing else is said",
    )
    min_idle: int = option(
        options.count(0), 0, "API servers per device that are idle at any time, as far as memory allows"
    )
    orphan_grace: float = option(
        options.seconds(), 60.0, "How long API servers wait for a new monitor when this one is killed"
    )
    resume_grace: float = option(
        options.seconds(most=86400),
        10.0,
        "How long a session is kept, with its memory, whose guest lost the connection and asked for that"
        " (GPUFERRY_ON_LOSS=reconnect)",
    )
    jail: str = option(
        options.choice("auto", "on", "off"),
        "auto",
        "Whether API servers are kept in jails: if it can be had, always, or never",
    )
    jail_uids: str = option(
        options.numbers(),
        "200000:4096",
        "Users, one for each jail, where the monitor is root; nobody else's on this machine",
    )
    jail_memory: int = option(
        options.size(), 4 << 30, "Host memory that a jail may take, beside a simulated device's"
    )
    grace: float = option(options.seconds(), 5.0, "What running sessions get when the monitor stops")
    tls_cert: str | None = options.tls_cert()
    tls_key: str | None = options.tls_key()
    tls_ca: str | None = options.tls_ca()
    insecure: bool = options.insecure()
    log_level: str = options.log_level()
    log_format: str = options.log_format()


@dataclass(frozen=True, kw_only=True)
class Config(MonitorOptions):
    """The settings of one monitor, all resolved."""

    runtime: Path
    token: bytes
    simulated: bool
    devices: int
    device_names: tuple[str, ...] = ()  # in CUDA_VISIBLE_DEVICES, where numbers will not do (MIG)
    server_command: tuple[str, ...] = (sys.executable, "-m", "gpuferry.apiserver")
    keeper_command: tuple[str, ...] = (sys.executable, "-m", "gpuferry.apiserver.keeper")
    has_tenants: bool = False  # whether tokens, or a registry, let in others than the operator
    own_command: bool = False  # server_command or keeper_command was given, and is not ours
    status_descriptor: int | None = None  # see service/parent.py

    @property
    def uids(self) -> range:
        """The user ids for jails; each jail gets one of its own."""
        return options.span(self.jail_uids)

    @property
    def turns(self) -> Sharing | None:
        """How sessions take turns on a GPU; None: all work at once."""
        if self.sharing == "free":
            return None
        return Sharing(
            kind=self.sharing,
            tokens=self.tokens,
            quota=round(self.quota * NANO),
            window=round(self.window * NANO),
            rule=self.quota_rule,
            deficit=self.deficit,
            gemini=self.gemini,
        )

    @property
    def checks_tenants(self) -> bool:
        """Whether kernels are held to their own memory from the first tenant on."""
        return self.simulated and self.check_kernels != "off"

    @property
    def context_cost(self) -> int:
        """Bytes that an API server's context takes of a real GPU (DGSF: 303 MB; newer drivers: more)."""
        return 0 if self.simulated else 640 * MIB

    @property
    def reserved(self) -> int:
        """Bytes of each device that are never granted."""
        return self.context_cost * self.pool if self.headroom is None else self.headroom


def check_turns(options: MonitorOptions) -> None:
    """Raise ConfigError for turns that nobody could take."""
    if options.sharing == "time" and not 0 < options.quota <= options.window:
        raise ConfigError(
            f"with --sharing time no turn can last {options.quota:g} s in a window of {options.window:g} s",
            "give a --quota above 0 and up to --window",
        )


def resolve(address: str) -> tuple[socket.AddressFamily, tuple[str, int]]:
    """Address family and address to bind for `host:port`. Raises ConfigError."""
    try:
        parts = split_address(address)
        if isinstance(parts, str):
            raise ValueError(f"{address!r} is a Unix socket; HOST:PORT is wanted here")
        family, _, _, _, bound = socket.getaddrinfo(*parts, type=socket.SOCK_STREAM)[0]
    except ValueError as error:
        raise ConfigError(str(error)) from None
    except socket.gaierror as error:
        raise ConfigError(f"{address}: {error.strerror}") from None
    return socket.AddressFamily(family), (str(bound[0]), int(bound[1]))


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach `host:port` or `unix:/path`."""
    if address.startswith("unix:"):
        return True
    _, (host, _) = resolve(address)
    return ipaddress.ip_address(host.partition("%")[0]).is_loopback


def choose_token(token_file: str | None) -> tuple[bytes, bool]:
    """The token, and whether someone gave it; else one is made up for this start. Raises ConfigError."""
    path = token_file
    try:
        given = read_token(path) if path else os.environ.get("GPUFERRY_TOKEN", "")
    except OSError as error:
        raise ConfigError(f"token file {path}: {error.strerror}") from None
    if not given and path:
        raise ConfigError(f"token file {path}: its first line is empty")
    if given:
        check_strength(f"the token in {path}" if path else "the token in GPUFERRY_TOKEN", given)
    return (given.encode(), True) if given else (secrets.token_hex(32).encode(), False)


def check_clear(flag: str, address: str, tls: bool, insecure: bool) -> None:
    """Raise ConfigError if what is said at this address could leave the machine in the clear."""
    if not (tls or insecure or is_loopback(address)):
        raise ConfigError(
            f"{flag} {address} can be reached from other machines, and would speak in the clear",
            "give --tls-cert, --tls-key and --tls-ca, which `gpuferry tls init` and `gpuferry tls issue NAME`"
            " make, or listen on 127.0.0.1; --insecure does without",
        )


def check_exposure(options: MonitorOptions, token_given: bool) -> None:
    """Raise ConfigError if other machines could reach this one in the clear, or with no token chosen."""
    http = None if options.http == AUTO else options.http
    for flag, address in (("--listen", options.listen), ("--control", options.control), ("--http", http)):
        if not address:
            continue
        check_clear(flag, address, bool(options.tls_cert), options.insecure)
        if not (token_given or is_loopback(address)):
            raise ConfigError(
                f"{address} can be reached from other machines, and no token was given: "
                "`gpuferry token create TENANT`, or set GPUFERRY_TOKEN or --token-file, "
                "or listen on 127.0.0.1"
            )
