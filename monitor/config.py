"""What a monitor is told to do, and the checks that need no running monitor."""

from __future__ import annotations

import ipaddress
import os
import secrets
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

from gpuferry.guest.endpoint import read_token, split_address

DEFAULT_LISTEN = "127.0.0.1:7700"
TOKEN_MIN = 16
MIB = 1 << 20


class ConfigError(Exception):
    """A setting that cannot work; the text says what to do about it."""


@dataclass(frozen=True)
class Config:
    """The settings of one monitor, all resolved."""

    runtime: Path
    token: bytes
    simulated: bool
    devices: int
    control: str  # host:port or unix:/path
    listen: str | None = DEFAULT_LISTEN
    socket: str | None = None  # path of the Unix socket
    pool: int = 2  # API servers per device
    memory: int = 0  # default quota in bytes; 0: the device's memory divided by the pool
    headroom: int | None = (
        None  # bytes per device that are never granted; None: what API servers themselves need
    )
    max_wait: float = 60.0  # seconds a guest waits for an API server
    handshake_timeout: float = 5.0
    ready_timeout: float = 60.0
    start_timeout: float = 10.0  # from Grant to SessionStarted
    grace: float = 5.0  # seconds that running sessions have to end when the monitor stops
    server_command: tuple[str, ...] = (sys.executable, "-m", "gpuferry.apiserver")
    status_descriptor: int | None = None  # see `Parent`

    def headroom_of(self, simulated: bool) -> int:
        """Contexts on a real GPU take memory of their own (DGSF measured 303 MB, newer drivers more)."""
        if self.headroom is not None:
            return self.headroom
        return 0 if simulated else 640 * MIB * self.pool


def resolve(address: str) -> tuple[socket.AddressFamily, tuple[str, int]]:
    """What to bind for `host:port`."""
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
    """The token, and whether someone gave it; one is made up for this start otherwise."""
    path = token_file or os.environ.get("GPUFERRY_TOKEN_FILE")
    try:
        given = read_token(path) if path else os.environ.get("GPUFERRY_TOKEN", "")
    except OSError as error:
        raise ConfigError(f"token file {path}: {error.strerror}") from None
    if not given and path:
        raise ConfigError(f"token file {path}: its first line is empty")
    if given and len(given) < TOKEN_MIN:
        raise ConfigError(
            f"the token has {len(given)} characters: {TOKEN_MIN} at least (`openssl rand -hex 32`)"
        )
    return (given.encode(), True) if given else (secrets.token_hex(32).encode(), False)


def check_exposure(listen: str | None, control: str, token_given: bool) -> None:
    """Nothing is reachable from other machines unless someone chose a token and said so."""
    if listen and not is_loopback(listen) and not token_given:
        raise ConfigError(
            f"{listen} can be reached from other machines, and no token was given: "
            "set GPUFERRY_TOKEN or --token-file, or listen on 127.0.0.1"
        )
    if not is_loopback(control):
        raise ConfigError(
            f"--control {control}: the control port carries its token in the clear, and stays here: "
            "use a loopback address or unix:PATH (from elsewhere: ssh -L)"
        )
