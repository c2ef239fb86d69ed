"""The settings files, the files of secrets that they name, and the ports that they ask for."""

from __future__ import annotations

import os
import socket
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

from gpuferry.guest.endpoint import runtime_directory

from ...cluster.registry.config import RegistryOptions
from ...functions.config import FunctionsOptions
from ...settings import inforce
from ...settings.errors import ConfigError
from ...settings.folders import state_directory
from ...settings.monitor import resolve
from ...settings.monitor_options import AUTO, MonitorOptions
from ...settings.sources import Settings, chosen_files, fits, load
from . import machine, secrecy
from .certificates import certificates
from .check import Check
from .permissions import replaceable_by_others

_TABLES: dict[str, Any] = {
    "monitor": MonitorOptions,
    "registry": RegistryOptions,
    "functions": FunctionsOptions,
}


def folder_of(program: str) -> Path:
    """The runtime folder of a daemon of this user."""
    base = Path(runtime_directory())
    return base if program == "monitor" else base / program


def in_force(program: str) -> inforce.InForce | None:
    """What a daemon that runs here goes by, whoever told it so. None: it does not run."""
    folder = folder_of(program)
    return inforce.read(_TABLES[program], folder) if machine.runs_in(folder) else None


def settings_checks(monitor_runs: bool) -> Iterator[Check]:
    """Check the settings of monitor, registry and function server, and the secrets and ports that they name:
    those of one that runs, else those that the next one would have.
    """
    states = {state_directory()}
    asked = _asked()
    for program in _TABLES:
        running = in_force(program)
        if running:
            values = running.settings
            yield Check(f"settings of the {program}", "ok", "those of the one that runs here")
            token = folder_of(program) / "token"
            yield secrecy.secret_file(f"token of the {program} that runs", token)
        else:
            values = (yield from _next_settings(program)) if program in asked else None
            if values is None:
                continue
        for file in chosen_files(program, None)[0]:
            if found := replaceable_by_others(f"settings of the {program}", file):
                yield found
        yield from secrecy.secrets(values)
        yield from certificates(program, values)
        yield from secrecy.asked_for(program, values)
        states.add(state_directory(values.state))
        if program == "monitor" and not monitor_runs:
            yield from _ports(values)
    yield from secrecy.variables()
    for folder in sorted(states):
        yield from secrecy.state(folder)
    yield from secrecy.running()


def _asked() -> list[str]:
    """The programs whose settings are asked for: a file that GPUFERRY_CONFIG names is one program's."""
    named = os.environ.get("GPUFERRY_CONFIG")
    if not named:
        return list(_TABLES)
    found = [program for program, table in _TABLES.items() if fits(table, program, Path(named))]
    return found or list(_TABLES)


def _next_settings(program: str) -> Generator[Check, None, Any]:
    """Check the settings that a daemon would start with. Returns them; None: it would not start."""
    try:
        settings: Settings[Any] = load(_TABLES[program], program)
    except ConfigError as error:
        what = f"settings of the {program}"
        yield Check(what, "failed", str(error), error.hint or "see `gpuferry config path`")
        return None
    given = sorted({source.rpartition(":")[0] or source for source in settings.sources.values()})
    origins = ", ".join(origin for origin in given if origin != "default")
    if origins or program == "monitor":
        yield Check(f"settings of the {program}", "ok", origins or "all by default")
    return settings.values


def _ports(values: MonitorOptions) -> Iterator[Check]:
    wanted = {"--listen": values.listen, "--http": None if values.http == AUTO else values.http}
    for flag, address in wanted.items():
        if not address:
            continue
        try:
            family, bound = resolve(address)
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(bound)
        except (ConfigError, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            holder = _holder(bound[1]) if isinstance(error, OSError) else ""
            step = f"give {flag} another address, or find who has it: `ss -ltnp`"
            # A registry, or somebody else's monitor: nothing is wrong unless a monitor is to run here too.
            result = "note" if "(gpuferry)" in holder else "failed"
            yield Check("port", result, f"{address}: {reason}{holder}", step)
        else:
            yield Check("port", "ok", f"{address} is free")


def _leads_to(descriptor: Path) -> str:
    """Nowhere, if it was closed meanwhile."""
    try:
        return os.readlink(descriptor)
    except FileNotFoundError:
        return ""


def _holder(port: int) -> str:
    """The process that listens there, if it is one that we may look at."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        if Path(table).exists():
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                    inodes.add(f"socket:[{fields[9]}]")
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(_leads_to(entry) in inodes for entry in (process / "fd").iterdir()):
                name = (process / "comm").read_text(errors="replace").strip()
                return f": process {process.name} ({name}) has it"
        except OSError:
            continue
    return ""
