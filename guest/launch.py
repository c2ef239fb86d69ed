"""Starts a program under the guest library or the simulated device: environment, then execve.

Standard library only.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
from typing import NoReturn

from . import paths
from .endpoint import TLS_SCHEME, Endpoint

SEARCHED = (
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "PATH",
    "ASAN_OPTIONS",
)  # where programs and the loader look; inject adds to them
GPUS_MOST = 32  # of one session (specs/gpuferry/frames.yaml, DEVICES_MAX)
TLS_SETTINGS = ("GPUFERRY_TLS_CA", "GPUFERRY_TLS_NAME")


def clean_environment() -> dict[str, str]:
    """This process's environment without what the interpreter added to it (PEP 538 sets LC_CTYPE)."""
    environment = dict(os.environ)
    try:
        with open("/proc/self/environ", "rb") as file:
            original = {item.partition(b"=")[0] for item in file.read().split(b"\0")}
    except OSError:
        return environment
    if b"LC_CTYPE" not in original:
        environment.pop("LC_CTYPE", None)
    return environment


def preload(environment: dict[str, str], *libraries: str) -> dict[str, str]:
    """Have `libraries` preloaded by what is started with this environment, in the place of any driver."""
    # Last, because a sanitizer's runtime insists on being first.
    others = environment.get("LD_PRELOAD", "").replace(" ", ":").split(":")
    kept = [other for other in others if other and os.path.basename(other) not in (*paths.NAMES, paths.FRONT)]
    environment["LD_PRELOAD"] = ":".join([*kept, *libraries])
    if not environment["LD_PRELOAD"]:
        del environment["LD_PRELOAD"]
    return environment


def _tell_sanitizer(environment: dict[str, str], option: str = "verify_asan_link_order=0") -> None:
    """Have programs with AddressSanitizer's library begin behind a preloaded one, unless somebody set it."""
    options = environment.get("ASAN_OPTIONS", "")
    if option.partition("=")[0] not in options:
        environment["ASAN_OPTIONS"] = f"{options}:{option}" if options else option


def without_driver(environment: dict[str, str]) -> dict[str, str]:
    """The environment without what `inject` adds: what is started with it finds the machine's own driver."""
    preload(environment)
    for name in ("LD_LIBRARY_PATH", "PATH"):
        if name in environment:
            others = [folder for folder in environment[name].split(":") if not paths.is_ours(folder)]
            environment[name] = ":".join(others)
    return environment


def inject(environment: dict[str, str], driver: str) -> dict[str, str]:
    """Make `driver` what programs find that are started with this environment, however they look for it
    (guest/DESIGN.md): by name, in folders, in the loader's cache, with `nvidia-smi`.
    """
    folder = os.path.dirname(driver)
    without_driver(environment)
    preload(environment, paths.front(driver))
    others = [environment["LD_LIBRARY_PATH"]] if environment.get("LD_LIBRARY_PATH") else []
    environment["LD_LIBRARY_PATH"] = ":".join([folder, *others])
    # A program without PATH finds its commands in execvp's own, which is to be had by naming it.
    environment["PATH"] = ":".join([paths.tools(), environment.get("PATH") or os.defpath, paths.fallbacks()])
    environment["GPUFERRY_PYTHON"] = sys.executable  # of our nvidia-smi
    _tell_sanitizer(environment)
    return environment


def guest_settings(
    endpoint: Endpoint,
    memory: int = 0,
    function: str | None = None,
    stats: str | None = None,
    gpus: int = 0,
) -> dict[str, str]:
    """What the guest library reads from its environment."""
    settings = {"GPUFERRY_MONITOR": endpoint.address}
    if endpoint.address.startswith(TLS_SCHEME):
        settings |= {"GPUFERRY_TLS_CA": endpoint.authority} if endpoint.authority else {}
        settings |= {name: value for name in TLS_SETTINGS if (value := os.environ.get(name))}
    if endpoint.token:
        settings["GPUFERRY_TOKEN"] = endpoint.token
    if memory:
        settings["GPUFERRY_MEMORY"] = str(memory)
    if function:
        settings["GPUFERRY_FUNCTION"] = function
    if stats:
        settings["GPUFERRY_STATS"] = os.path.abspath(stats)
    if gpus:
        settings["GPUFERRY_GPUS"] = str(gpus)
    return settings


def guest_environment(settings: dict[str, str]) -> dict[str, str]:
    """The environment of a program that is to run remotely."""
    environment = clean_environment() | settings
    # What is started by a program is part of it, whoever starts it (specs/WIRE.md 14).
    environment.setdefault("GPUFERRY_PROGRAM", secrets.token_hex(32))
    return inject(environment, paths.guest_library())


def simulated_environment() -> dict[str, str]:
    """The environment of a server of ours that is to use the simulated device of this machine."""
    environment = without_driver(clean_environment())
    environment.setdefault("GPUFERRY_SIM_PYTHON", sys.executable)  # its compiler is written in Python
    return preload(environment, paths.simulated_driver())


def simulating_environment(
    devices: int | None = None, variance: int | None = None, skip_code: bool = False
) -> dict[str, str]:
    """The environment of a program that is to run on simulated devices of this machine: on so many, with what
    CUDA leaves open chosen by this seed, and without running any kernel; without these as the caller's
    environment says."""
    environment = simulated_environment()
    if devices is not None:
        environment["GPUFERRY_SIM_DEVICES"] = str(devices)
    if variance is not None:
        environment["GPUFERRY_SIM_VARIANCE"] = str(variance)
    if skip_code:
        environment["GPUFERRY_SIM_CODE"] = "skip"
    return inject(environment, paths.simulated_driver())


def cannot_execute(program: str, error: OSError) -> int:
    """Says on stderr why a program does not start and what to do; returns a shell's status for that."""
    missing = isinstance(error, FileNotFoundError)
    reason = "program not found" if missing else (error.strerror or str(error))
    print(f"gpuferry: {program}: {reason}", file=sys.stderr)
    if missing and "/" not in program and os.path.isfile(program):  # such a name is looked up in PATH only
        print(f"  the program in this folder is ./{program}", file=sys.stderr)
    elif isinstance(error, PermissionError) and os.path.isfile(program) and not os.access(program, os.X_OK):
        print(
            "  not an executable file: name the compiled program, or the interpreter first", file=sys.stderr
        )
    return 127 if missing else 126


def execute(command: list[str], environment: dict[str, str]) -> NoReturn:
    """Become the program. Python ignores SIGPIPE and SIGXFSZ; the program must not inherit that."""
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_DFL)
    try:
        os.execvpe(command[0], command, environment)
    except OSError as error:
        sys.exit(cannot_execute(command[0], error))
