"""What a monitor is told to do, and the checks that need no running monitor."""

from __future__ import annotations

import ipaddress
import os
import secrets
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

from gpuferry.guest.endpoint import first_line, read_token, split_address

from ..policy.sharing import Sharing
from . import options
from .errors import ConfigError
from .monitor_options import AUTO, MonitorOptions
from .tokens import check_strength

MIB = 1 << 20
NANO = 10**9


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
    def fixes_addresses(self) -> bool:
        """Whether API servers have no randomised address space."""
        return not self.own_command and (
            self.address_space == "fixed" or (self.address_space == "auto" and not self.simulated)
        )

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


def without_effect(options: MonitorOptions) -> list[str]:
    """What was set that means nothing with this --sharing, in words."""
    usual = MonitorOptions()
    only = {"tokens": ("turns",), "quota": ("turns", "time"), "overrun": ("turns", "time")}
    only |= dict.fromkeys(("quota_rule", "window", "deficit", "gemini"), ("time",))
    return [
        f"--{name.replace('_', '-')} means nothing with --sharing {options.sharing}"
        for name, kinds in only.items()
        if options.sharing not in kinds and getattr(options, name) != getattr(usual, name)
    ]


def check_mps(options: MonitorOptions, simulated: bool, has_tenants: bool) -> None:
    """Raise ConfigError if --mps cannot be, or not be safe."""
    if not options.mps:
        return
    if simulated:
        raise ConfigError("--mps is for NVIDIA's GPUs: the simulated device has no MPS", "leave --mps out")
    if has_tenants:
        raise ConfigError(
            "under --mps a fault in one program's kernel ends all programs on the GPU, and tenants come here",
            "leave --mps out, or divide GPUs by MIG",
        )
    if options.jail != "off":
        raise ConfigError(
            "--mps: clients of MPS share memory and a user with its server, which jails keep apart",
            "give --jail off, if all programs may do what the monitor may",
        )
    if options.sharing == "time":
        raise ConfigError(
            "--mps and --sharing time: both would hold sessions to their limits",
            "give --sharing free or turns",
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
        given = read_token(path) if path else first_line(os.environ.get("GPUFERRY_TOKEN", ""))
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
