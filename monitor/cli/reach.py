"""Finding the monitor and a first look whether it is there. Imports nothing that takes long."""

from __future__ import annotations

import argparse
import os
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpuferry.guest import endpoint
from gpuferry.guest.endpoint import Endpoint
from gpuferry.specs._generated.frames import MAGIC, Greeting, Header

from .errors import CliError, Exit

if TYPE_CHECKING:
    import ssl

GREETING_SIZE = Header.SIZE + Greeting.SIZE
SECONDS = 3.0  # to connect: the kernel answers, however busy whoever listens is
SERVICE = "/run/gpuferry"  # the runtime folder of a monitor that systemd started, which is its own user's
ANSWER_SECONDS = 30.0  # for a monitor that has much else to do to say its first word


# What to do about a certificate, by OpenSSL's number for what is wrong with it.
_OTHER = "check GPUFERRY_TLS_CA, GPUFERRY_TLS_NAME"
_LATE = dict.fromkeys((9, 10), "the server needs another (`gpuferry tls issue`), or a clock is wrong")


def add_tls_option(options: argparse.ArgumentParser) -> None:
    """Add the flag with which a user says whose certificates to believe."""
    text = "authority of a tls:// address; none: the system's [GPUFERRY_TLS_CA]"
    options.add_argument("--tls-ca", metavar="FILE", help=text)


def take_tls_option(chosen: argparse.Namespace) -> None:
    """Make the flag hold for this process and the program that it becomes."""
    if chosen.tls_ca:
        os.environ["GPUFERRY_TLS_CA"] = os.path.abspath(chosen.tls_ca)


def published(room: str = "", starting: Sequence[str] | None = None) -> dict[str, str]:
    """What a daemon of this machine published in this folder of the runtime folder; empty if there is none.
    `starting`: the command of one that is waited for if it has just been started. Raises CliError if its file
    is damaged.
    """
    try:
        if starting:
            return endpoint.soon_published(starting, room)
        return endpoint.published(os.path.join(endpoint.runtime_directory(), room))
    except endpoint.Damaged as error:
        raise _damaged(error) from None


def _damaged(error: endpoint.Damaged) -> CliError:
    hint = "start the monitor or registry again: it writes `endpoint` anew; or remove that file"
    return CliError(Exit.FAILED, f"{error.filename} is damaged: {error.strerror}", hint)


def locate(flag: str | None, token_file: str | None, variable: str = "GPUFERRY_MONITOR") -> Endpoint:
    """The monitor that flag, environment or this machine names, with a token for it."""
    try:
        found = endpoint.find(flag, token_file, variable)
    except endpoint.NoMonitor as error:
        raise CliError(Exit.UNREACHABLE, str(error), _where_else(variable)) from None
    except endpoint.Damaged as error:
        raise _damaged(error) from None
    except OSError as error:
        raise CliError(
            Exit.DENIED,
            f"cannot read the token: {error.filename}: {error.strerror}",
            "name another with GPUFERRY_TOKEN_FILE or --token-file; a monitor writes its own when it starts",
        ) from None
    try:
        endpoint.split_address(found.address)
    except ValueError as error:
        raise CliError(Exit.USAGE, f"{found.source}: {error}", "as in gpu-server:7700") from None
    if not found.token:
        raise CliError(
            Exit.DENIED,
            f"no token for {found.address} (from {found.source})",
            "set GPUFERRY_TOKEN or GPUFERRY_TOKEN_FILE; on the monitor's machine it is in the file `token` "
            "beside its `endpoint`",
        )
    return found


def _where_else(variable: str) -> str:
    """What to do where no monitor published itself for this user."""
    start = f"start one with `gpuferry monitor`, or set {variable}=HOST:PORT"
    if variable != "GPUFERRY_CONTROL" or not os.path.isdir(SERVICE):
        return start
    return f"{start}; for systemd's: `sudo -u gpuferry GPUFERRY_RUNTIME_DIR={SERVICE} gpuferry …`"


def check_token(token: str, whose: str) -> None:
    """Raise CliError for a token that a call cannot carry: gRPC and HTTP take what ASCII has letters for."""
    if not (token.isascii() and token.isprintable()):
        raise CliError(
            Exit.DENIED,
            f"the token for {whose} holds characters that no token has",
            "it may have been copied from a page or a letter: `gpuferry token new` and `create` print ASCII",
        )


def unreachable(found: Endpoint, reason: str) -> CliError:
    """The error for a monitor that does not answer, in the same words everywhere."""
    return CliError(
        Exit.UNREACHABLE,
        f"cannot reach the monitor at {found.address} (from {found.source}): {reason}",
        "is it running? `gpuferry doctor` says more; `gpuferry run --local` needs none",
    )


def connect(found: Endpoint) -> socket.socket:
    """Connect to a monitor's session port, as a guest with this environment would. Raises OSError after 3 s
    if nobody is there, and what is read later, after 30 s without an answer.
    """
    target = endpoint.split_address(found.address)
    if not isinstance(target, str):
        try:
            connection = socket.create_connection(target, SECONDS)
        except UnicodeError:  # as of gpu..example
            raise OSError(f"{target[0]!r} is no name of a machine") from None
        connection.settimeout(ANSWER_SECONDS)
        if not found.address.startswith(endpoint.TLS_SCHEME):
            return connection
        return _secured(connection, target[0], found.authority)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(SECONDS)
    try:
        connection.connect(target)
    except OSError:
        connection.close()
        raise
    connection.settimeout(ANSWER_SECONDS)
    return connection


def _secured(connection: socket.socket, host: str, authority: str | None) -> socket.socket:
    import ssl  # only who goes on with TLS pays for it

    name = os.environ.get("GPUFERRY_TLS_NAME") or host
    try:
        if not endpoint.is_name(name):
            raise OSError(f"{name!r} is no name of a machine: check GPUFERRY_TLS_NAME")
        return _context(authority).wrap_socket(connection, server_hostname=name)
    except ssl.SSLCertVerificationError as error:
        connection.close()
        raise OSError(f"{error.verify_message}: {_LATE.get(error.verify_code, _OTHER)}") from None
    except ssl.SSLError as error:
        connection.close()
        raise OSError(f"no TLS there ({(error.reason or 'it hung up').lower().replace('_', ' ')})") from None
    except BaseException:
        connection.close()
        raise


def _context(published: str | None) -> ssl.SSLContext:
    import ssl

    authority = os.environ.get("GPUFERRY_TLS_CA") or published
    try:
        context = ssl.create_default_context(cafile=authority)
    except OSError as error:
        why = "it holds no certificate in PEM" if isinstance(error, ssl.SSLError) else error.strerror
        raise OSError(f"GPUFERRY_TLS_CA: {authority}: {why}") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


def read_greeting(connection: socket.socket) -> Greeting | None:
    """The GREETING of what answers there; None: it does not speak the protocol."""
    data = b""
    while len(data) < GREETING_SIZE and (part := connection.recv(GREETING_SIZE - len(data))):
        data += part
    greeting = Greeting.unpack(data, Header.SIZE) if len(data) == GREETING_SIZE else None
    return greeting if greeting and greeting.magic == MAGIC else None


def greet(found: Endpoint) -> Greeting:
    """Connect and read GREETING. Raises CliError."""
    try:
        with connect(found) as connection:
            greeting = read_greeting(connection)
    except OSError as error:
        raise unreachable(found, error.strerror or str(error)) from None
    if greeting is None:
        raise unreachable(found, "what answers there is no gpuferry monitor")
    return greeting
