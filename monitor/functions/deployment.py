"""What a function is: what was deployed, with its limits, checked."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..jail.cgroups import own_limit

NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
SOURCE_MOST = 4 << 20  # bytes of a Python file
REPLICAS_MOST = 64
QUEUE_MOST = 100_000
BODY_MOST = 1 << 30
NAME_MOST = 250  # bytes of a file's name, with which a draft of it is there for a moment
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
CANCELS = ("tell", "kill")


class WrongDeployment(ValueError):
    """What was asked for cannot be; the text says why."""


@dataclass(frozen=True)
class Deployment:
    """One revision of one function."""

    name: str
    source: str = ""  # of a Python file with `handle`
    file: str = "handler.py"  # how it is called
    command: tuple[str, ...] = ()  # of a program that speaks HTTP on $PORT, in place of a Python file
    folder: str = "/"  # in which replicas begin; a Python file finds its neighbours there
    python: str = ""  # the interpreter; empty: the server's own
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    least: int = 0  # replicas that are always there
    most: int = 4
    idle: float = 60.0  # seconds after which a replica that nobody needs ends
    concurrency: int = 1  # invocations that one replica may have at once
    queue: int = 100  # that may wait
    timeout: float = 60.0  # seconds of a handler
    wait: float = 60.0  # seconds in the queue
    start: float = 60.0  # seconds until a replica is ready
    memory: int = 0  # bytes of a replica; 0: half of what this machine has
    body: int = 16 << 20  # bytes of a request's body, and of an answer's
    gpu_memory: int = 0
    gpus: int = 0
    weight: float = 1.0
    cancel: str = "tell"
    grace: float = 1.0  # seconds that a replica has after it was told that the caller has gone
    revision: int = 0

    @property
    def memory_limit(self) -> int:
        """Bytes of memory with which a replica is ended."""
        return self.memory or machine_memory() // 2

    def as_json(self) -> dict[str, Any]:
        """All of it, for a file."""
        return {**dataclasses.asdict(self), "command": list(self.command)}

    def shown(self) -> dict[str, Any]:
        """What others may see: neither the source nor values of variables, which may be secrets."""
        shown = self.as_json()
        shown["environment"] = sorted(self.environment)
        shown["memory_limit"] = self.memory_limit
        shown["file"] = "" if self.command else self.file
        del shown["source"]
        return shown


_NUMBERS: Mapping[str, tuple[float, float]] = {
    "least": (0, 1 << 53),
    "most": (0, 1 << 53),
    "idle": (0, 86400 * 30),
    "concurrency": (1, 1000),
    "queue": (0, QUEUE_MOST),
    "timeout": (0.001, 86400),
    "wait": (0.001, 86400),
    "start": (0.001, 3600),
    "memory": (0, 1 << 50),
    "body": (0, BODY_MOST),
    "gpu_memory": (0, 1 << 50),
    "gpus": (0, 32),
    "weight": (0.001, 1000),
    "grace": (0, 3600),
    "revision": (0, 1 << 53),
}


@functools.cache
def machine_memory() -> int:
    """Bytes of memory of this machine, or of this process's control group where that may have less."""
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(whole, own_limit() or whole)


def is_name(text: str) -> bool:
    """Whether a function may be called so: as a host of DNS, so that nothing needs quoting anywhere."""
    return NAME.fullmatch(text) is not None


def read(said: object) -> Deployment:
    """A deployment from JSON. Raises WrongDeployment."""
    if not isinstance(said, dict):
        raise WrongDeployment("an object is wanted")
    fields = {entry.name: entry for entry in dataclasses.fields(Deployment)}
    if unknown := sorted(set(said) - set(fields)):
        raise WrongDeployment(f"unknown: {', '.join(unknown)[:200]}")
    if not isinstance(said.get("name"), str) or not is_name(said["name"]):
        raise WrongDeployment("name: 1 to 63 of a to z, 0 to 9 and -, neither first nor last a -")
    for name, value in said.items():
        if name in _NUMBERS:
            _check_number(name, value, whole=fields[name].type == "int")
        elif name not in ("command", "environment") and not isinstance(value, str):
            raise WrongDeployment(f"{name}: text is wanted")
    deployment = Deployment(
        **{
            **said,
            "command": _command(said.get("command", ())),
            "environment": _environment(said.get("environment", {})),
        }
    )
    _check(deployment)
    return deployment


def _check_number(name: str, value: object, whole: bool) -> None:
    wanted = (int,) if whole else (int, float)
    least, most = _NUMBERS[name]
    if isinstance(value, bool) or not isinstance(value, wanted):
        raise WrongDeployment(f"{name}: a {'whole ' if whole else ''}number is wanted")
    if not least <= value <= most:  # an integer may be too large for a float
        raise WrongDeployment(f"{name}: {str(value)[:40]} is not from {least} to {most}")


def _command(said: object) -> tuple[str, ...]:
    if not isinstance(said, (list, tuple)) or not all(
        isinstance(word, str) and "\0" not in word for word in said
    ):
        raise WrongDeployment("command: a list of texts is wanted")
    return tuple(said)


def _environment(said: object) -> dict[str, str]:
    if not isinstance(said, dict):
        raise WrongDeployment("environment: an object is wanted")
    for name, value in said.items():
        if not VARIABLE.fullmatch(name) or not isinstance(value, str) or "\0" in value:
            raise WrongDeployment(f"environment: {name!r} is no name of a variable, or has no text")
    return dict(said)


def _check(wanted: Deployment) -> None:
    if bool(wanted.source) == bool(wanted.command):
        raise WrongDeployment("either a Python file or a program is wanted")
    if wanted.command and not wanted.command[0]:
        raise WrongDeployment("command: the program has no name")
    _check_texts(wanted)
    if len(wanted.source.encode()) > SOURCE_MOST:
        raise WrongDeployment(f"the file is larger than {SOURCE_MOST >> 20} MiB")
    if not 1 <= wanted.most <= REPLICAS_MOST:
        range_ = f"{wanted.least}..{wanted.most}"
        raise WrongDeployment(f"replicas {range_}: at least 1 and at most {REPLICAS_MOST} may be allowed")
    if wanted.least > wanted.most:
        raise WrongDeployment(f"replicas {wanted.least}..{wanted.most}: the first is more than the second")
    if wanted.concurrency > 1 and wanted.source:
        raise WrongDeployment("concurrency: a Python handler answers one at a time; use more replicas")
    if wanted.cancel not in CANCELS:
        raise WrongDeployment(f"cancel: {' or '.join(CANCELS)} is wanted")
    if not wanted.folder.startswith("/") or "\0" in wanted.folder + wanted.python:
        raise WrongDeployment("folder: an absolute path is wanted")
    named = re.fullmatch(r"[^/\0]+", wanted.file) and wanted.file not in (".", "..")
    if not named or len(wanted.file.encode()) > NAME_MOST:
        raise WrongDeployment("file: a file's name is wanted")


def _check_texts(wanted: Deployment) -> None:
    """What JSON can say and neither a file nor the system takes: half of a pair of surrogates."""
    system = (wanted.folder, wanted.python, *wanted.command, *wanted.environment.values())
    try:
        for text in (wanted.source, wanted.file):
            text.encode()
        for text in system:
            os.fsencode(text)
    except UnicodeEncodeError as error:
        raise WrongDeployment(f"{error.object[error.start : error.end]!a} is no text") from None
