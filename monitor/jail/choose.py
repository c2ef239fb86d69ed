"""Whether API servers get jails: what this machine has for them, tried once at the monitor's start."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ..devices.choice import CHECKED, simulated_memory
from ..settings.errors import ConfigError
from ..settings.monitor import Config
from . import cache, cgroups, command, nvidia, view
from .command import Cell, Rules
from .figures import Figures
from .filter import NoFilter, program
from .jail import Jail

TRIAL_SECONDS = 30.0
INSTALL = "install Debian's packages bubblewrap and libseccomp2"

# What every process of ours does first in a jail, and what it must find there.
_TRIAL = """
import os, sys
if uid := int(sys.argv[1]):
    os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)
for folder in sys.argv[2:]:
    os.listdir(folder)
import json, encodings.ascii
"""


@dataclass(frozen=True)
class NoJail:
    """Why API servers have no jail, and what to do about it."""

    reason: str
    next_step: str


def choose(config: Config, environment: Mapping[str, str]) -> Jail | NoJail:
    """The jails that this monitor's settings ask for. Raises ConfigError if they must be had and cannot."""
    found: Jail | NoJail
    if config.jail == "off":
        return NoJail("--jail off", "give no --jail, if programs of people who do not trust each other come")
    if config.own_command:
        found = NoJail("GPUFERRY_APISERVER or GPUFERRY_KEEPER names a command of its own", "unset it")
    else:
        rules = look(config, environment)
        found = rules if isinstance(rules, NoJail) else _make(config, environment, rules)
    if config.jail == "on" and isinstance(found, NoJail):
        raise ConfigError(f"--jail on, and there can be none: {found.reason}", found.next_step)
    return found


def look(config: Config, environment: Mapping[str, str]) -> Rules | NoJail:
    """The rules of jails on this machine, once a process has lived in one. Nothing is left of it."""
    bwrap = shutil.which("bwrap")
    if not bwrap:
        return NoJail("bubblewrap (bwrap) is not installed", INSTALL)
    try:
        code = program(not config.simulated)
    except NoFilter as error:
        return NoJail(str(error), INSTALL)
    root = os.geteuid() == 0
    rules = Rules(
        bwrap,
        root,
        files=list(view.files(environment, config.simulated)),
        nodes=[*view.DEVICES, *([] if config.simulated else nvidia.nodes())],
        environment={**view.environment(environment), **cache.settings(None)},
        data_bytes=config.jail_memory,
        filter=code,
    )
    if why := trial(rules, config.uids[-1] if root else 0):
        next_step = (
            'see monitor/OPERATING.md, "Jails"'
            if root
            else "run the monitor as root, or allow user namespaces"
        )
        return NoJail(why, next_step)
    return rules


def _make(config: Config, environment: Mapping[str, str], rules: Rules) -> Jail:
    group, uids = config.uids[0], config.uids[1:]
    # Copies of a session's memory are counted where they are written, beside the session's own.
    device = simulated_memory() if config.simulated else 0
    copies = min(config.away_memory, device) if config.simulated else config.away_memory
    limit = config.jail_memory + device + copies
    figures = None
    if config.simulated:
        figures = Figures(Path(environment.get("GPUFERRY_SIM_STATS") or config.runtime / "simdevice"))
    apart = replace(rules, environment={**rules.environment, **(CHECKED if config.checks_tenants else {})})
    return Jail(
        apart,
        _sharing(rules, environment, group if rules.root else 0),
        uids,
        cgroups.find(limit, command.PROCESSES),
        figures,
    )


def _sharing(rules: Rules, environment: Mapping[str, str], group: int) -> Rules:
    """The same rules, with a folder of compiled kernels for all that are in this group."""
    folder = cache.prepare(environment, group)
    if folder is None:
        return rules
    return replace(
        rules,
        writable={cache.PLACE: str(folder)},
        environment={**rules.environment, **cache.settings(folder)},
        group=group,
    )


def trial(rules: Rules, uid: int) -> str:
    """Why a process cannot live in such a jail; empty: it can."""
    folders = [path for path in rules.files if os.path.isdir(path)]
    try:
        done = subprocess.run(
            [
                *(rules.bwrap, *command.arguments(rules, Cell(uid)), "--"),
                *(sys.executable, "-ISc", _TRIAL, str(uid), *folders),
            ],
            env={},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TRIAL_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    lines = done.stderr.strip().splitlines()
    return (lines[-1] if lines else f"bwrap ended with status {done.returncode}") if done.returncode else ""
