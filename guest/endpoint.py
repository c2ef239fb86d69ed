"""Which monitor to use, with what token: flag, environment, then what a monitor or registry here published.

Standard library only. The published file is an environment file (`set -a; . endpoint` works in a shell).
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

TLS_SCHEME = "tls://"  # of an address whose server must speak TLS
ADDRESSES = ("GPUFERRY_MONITOR", "GPUFERRY_TCP", "GPUFERRY_CONTROL", "GPUFERRY_CONTROL_HERE")
REGISTRY = "registry"  # the registry's folder within a monitor's
STARTING_SECONDS = 15.0  # in which a monitor that somebody has just started publishes itself
LOOK_SECONDS = 0.05


class Endpoint(NamedTuple):
    """A monitor as its user named it."""

    address: str  # host:port, tls://host:port or unix:/path
    source: str  # where the address came from, for messages
    token: str | None
    authority: str | None = None  # file of the certificate that its own says, where it is this machine's


class NoMonitor(Exception):
    """No monitor was named and none published itself here."""


class Damaged(OSError):
    """What was published here is no text, or lacks a part."""


def runtime_directory() -> str:
    """The private folder in which a monitor publishes its endpoint and token. Absolute: what lies there is
    named to programs, which begin elsewhere, or go there before their first call.
    """
    return os.path.abspath(_named(os.environ))


def _named(environment: Mapping[str, str]) -> str:
    if explicit := environment.get("GPUFERRY_RUNTIME_DIR"):
        return explicit
    base = environment.get("XDG_RUNTIME_DIR")
    return os.path.join(base, "gpuferry") if base else f"/tmp/gpuferry-{os.getuid()}"


def _is_starting(process: str, command: Sequence[str], directory: str) -> bool:
    """Whether /proc knows this process as a `gpuferry COMMAND` of ours whose runtime folder that is."""
    try:
        with open(f"/proc/{process}/cmdline", "rb") as file:
            words = [os.fsdecode(word) for word in file.read().split(b"\0")]
        begins = [place for place, word in enumerate(words[:2], 1) if word.endswith("/gpuferry")]
        if not any(words[begin : begin + len(command)] == [*command] for begin in begins):
            return False
        with open(f"/proc/{process}/environ", "rb") as file:
            pairs = [os.fsdecode(pair).partition("=") for pair in file.read().split(b"\0")]
        folder = os.readlink(f"/proc/{process}/cwd")
    except OSError:  # somebody else's, or gone
        return False
    named = _named({name: value for name, _, value in pairs})
    return os.path.normpath(os.path.join(folder, named)) == directory


def _is_left(found: Mapping[str, str]) -> bool:
    """Whether this was published by a daemon that is gone, as after a crash."""
    pids = [value for name, value in found.items() if name.endswith("_PID")]
    return bool(pids) and not any(os.path.exists(f"/proc/{pid}") for pid in pids)


def soon_published(command: Sequence[str], room: str = "") -> dict[str, str]:
    """What the daemon that was started as `gpuferry COMMAND` published in this folder of the runtime folder.
    Of one that begins the next command of a script waits for it, also where one that is gone has left its
    own. Empty if there is none. Raises OSError, Damaged too.
    """
    base = runtime_directory()
    until = time.monotonic() + STARTING_SECONDS
    while True:
        found = published(os.path.join(base, room))
        if (found and not _is_left(found)) or time.monotonic() >= until:
            break
        processes = [name for name in os.listdir("/proc") if name.isdecimal()]
        if not any(_is_starting(name, command, base) for name in processes):
            break
        time.sleep(LOOK_SECONDS)
    return found


def _is_mine(path: str) -> bool:
    """False for a file that another user could have put there: its addresses and token prove nothing."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return status.st_uid == os.getuid() and status.st_mode & 0o022 == 0


def published(directory: str | None = None) -> dict[str, str]:
    """What the monitor on this machine published; empty if there is none. Raises OSError, Damaged too."""
    directory = directory or runtime_directory()
    path = os.path.join(directory, "endpoint")
    if not (_is_mine(directory) and _is_mine(path)):
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            pairs = [line.rstrip("\n").partition("=") for line in file]
    except UnicodeDecodeError:
        raise Damaged(errno.EILSEQ, "it is no text", path) from None
    return {key: value for key, _, value in pairs if value}


def first_line(text: str) -> str:
    """The token in a text: its first line, without the blanks that secrets' keepers like to add."""
    return text.partition("\n")[0].strip()


def read_token(path: str) -> str:
    """The token in a file: its first line. Raises OSError, for what is no text too."""
    try:
        with open(path, encoding="utf-8") as file:
            return first_line(file.readline())
    except UnicodeDecodeError:
        raise OSError(errno.EILSEQ, "it is no text", path) from None


def _same(one: str, other: str) -> bool:
    return one.replace("localhost:", "127.0.0.1:") == other.replace("localhost:", "127.0.0.1:")


def _token_for(address: str, here: list[dict[str, str]], token_file: str | None) -> str | None:
    if token_file:
        return read_token(token_file)
    if token := first_line(os.environ.get("GPUFERRY_TOKEN", "")):
        return token
    if os.environ.get("GPUFERRY_TOKEN_FILE"):
        return read_token(os.environ["GPUFERRY_TOKEN_FILE"])
    # The token of this machine's monitor or registry goes there and to no other address.
    for local in here:
        ours = [local.get(key, "") for key in ADDRESSES]
        if any(_same(address, candidate) for candidate in ours):
            if not (file := local.get("GPUFERRY_TOKEN_FILE")):
                where = f"what is published in {runtime_directory()}"  # by the monitor, or by a registry
                raise Damaged(errno.EINVAL, "it does not say GPUFERRY_TOKEN_FILE", where)
            return read_token(file)
    return None


def _authority_of(address: str, here: list[dict[str, str]]) -> str | None:
    for local in here:
        if any(_same(address, local.get(key, "")) for key in ADDRESSES):
            return local.get("GPUFERRY_TLS_CA")
    return None


def find(
    flag: str | None = None,
    token_file: str | None = None,
    variable: str = "GPUFERRY_MONITOR",
    patient: bool = True,
) -> Endpoint:
    """The monitor's session address (with `variable="GPUFERRY_CONTROL"`: its control address) and token. One
    that has just been started is waited for if this is `patient`. Raises NoMonitor and OSError, Damaged too.
    """
    folders = [runtime_directory(), os.path.join(runtime_directory(), REGISTRY)]
    here = [published(folder) for folder in folders]
    if patient and not (flag or os.environ.get(variable)) and all(not one or _is_left(one) for one in here):
        soon_published(["monitor"])
        here = [published(folder) for folder in folders]
    if flag:
        address, source = flag, "command line"
    elif os.environ.get(variable):
        address, source = os.environ[variable], f"environment variable {variable}"
    else:
        places = zip(folders, here, strict=True)
        found = [
            (local[variable], os.path.join(folder, "endpoint"))
            for folder, local in places
            if local.get(variable)
        ]
        if not found:
            raise NoMonitor(f"no monitor: none was named, and none published itself in {runtime_directory()}")
        address, source = found[0]
    return Endpoint(address, source, _token_for(address, here, token_file), _authority_of(address, here))


def is_name(host: str) -> bool:
    """Whether there can be a machine of this name: no part of it is empty, or longer than 63 letters."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True


def split_address(address: str) -> tuple[str, int] | str:
    """`host:port` or `[v6]:port` as a pair, without a `tls://` before it; `unix:/path` as the path.
    ValueError otherwise.
    """
    if address.startswith("unix:"):
        path = address[len("unix:") :]
        if not path:
            raise ValueError(f"{address!r} names no path")
        return path
    host, colon, port = address.removeprefix(TLS_SCHEME).rpartition(":")
    if not (colon and host and port.isdecimal() and int(port) < 65536):
        raise ValueError(f"{address!r} is neither HOST:PORT, tls://HOST:PORT nor unix:PATH")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    return host, int(port)
