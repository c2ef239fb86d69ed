"""Finding the monitor and a first look whether it is there. Imports nothing that takes long."""

from __future__ import annotations

import socket

from gpuferry.guest import endpoint
from gpuferry.guest.endpoint import Endpoint
from gpuferry.specs._generated.frames import MAGIC, Greeting, Header

from .errors import CliError, Exit

GREETING_SIZE = Header.SIZE + Greeting.SIZE
SECONDS = 3.0


def locate(flag: str | None, token_file: str | None, variable: str = "GPUFERRY_MONITOR") -> Endpoint:
    """The monitor that flag, environment or this machine names, with a token for it."""
    try:
        found = endpoint.find(flag, token_file, variable)
        endpoint.split_address(found.address)
    except endpoint.NoMonitor as error:
        raise CliError(
            Exit.UNREACHABLE, str(error), f"start one with `gpuferry monitor`, or set {variable}=HOST:PORT"
        ) from None
    except ValueError as error:
        source = "command line" if flag else variable
        raise CliError(Exit.USAGE, f"{source}: {error}", "as in gpu-server:7700") from None
    except OSError as error:
        raise CliError(Exit.DENIED, f"cannot read the token: {error.filename}: {error.strerror}") from None
    if not found.token:
        raise CliError(
            Exit.DENIED,
            f"no token for {found.address} (from {found.source})",
            "set GPUFERRY_TOKEN or GPUFERRY_TOKEN_FILE; on the monitor's machine it is in the file `token` "
            "beside its `endpoint`",
        )
    return found


def unreachable(found: Endpoint, reason: str) -> CliError:
    """The error for a monitor that does not answer, in the same words everywhere."""
    return CliError(
        Exit.UNREACHABLE,
        f"cannot reach the monitor at {found.address} (from {found.source}): {reason}",
        "is it running? `gpuferry doctor` says more; `gpuferry run --local` needs none",
    )


def connect(address: str) -> socket.socket:
    """Connect to a monitor's session port. Raises OSError after 3 s without an answer."""
    target = endpoint.split_address(address)
    if not isinstance(target, str):
        return socket.create_connection(target, SECONDS)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(SECONDS)
    try:
        connection.connect(target)
    except OSError:
        connection.close()
        raise
    return connection


def read_greeting(connection: socket.socket) -> Greeting | None:
    """The GREETING of what answers there; None: it does not speak the protocol."""
    data = connection.recv(GREETING_SIZE, socket.MSG_WAITALL)
    greeting = Greeting.unpack(data, Header.SIZE) if len(data) == GREETING_SIZE else None
    return greeting if greeting and greeting.magic == MAGIC else None


def greet(found: Endpoint) -> Greeting:
    """Connect and read GREETING. Raises CliError."""
    try:
        with connect(found.address) as connection:
            greeting = read_greeting(connection)
    except OSError as error:
        raise unreachable(found, error.strerror or str(error)) from None
    if greeting is None:
        raise unreachable(found, "what answers there is no gpuferry monitor")
    return greeting
