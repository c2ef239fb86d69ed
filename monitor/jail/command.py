"""The outer half of a jail: bubblewrap makes namespaces and an empty root, in which a process begins."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SCRATCH = "/tmp"
SCRATCH_BYTES = 256 << 20  # of a jail's own folder, which is memory
PROCESSES = 512  # and threads: 128 waiters, workers, a compiler
DESCRIPTORS = 16384
FILE_BYTES = 4 << 40  # the simulated device's memory is a file that only grows
# Until it has become somebody else; then none is left.
CAPABILITIES = ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP")


@dataclass(frozen=True)
class Rules:
    """What holds for all jails of a monitor."""

    bwrap: str  # its path
    root: bool  # whether the monitor is root: then each jail has a user of its own
    files: Sequence[str]  # seen read-only
    nodes: Sequence[str]  # device files that may be used
    environment: Mapping[str, str]
    data_bytes: int  # private memory of each process
    filter: bytes = field(repr=False)  # of system calls
    writable: Mapping[str, str] = field(default_factory=dict)  # what is outside, by where all jails see it
    group: int = 0  # that all jails are in; 0: none


@dataclass(frozen=True)
class Cell:
    """One jail: whose it is, and what is seen there besides."""

    uid: int  # 0: the monitor's
    writable: Mapping[str, str] = field(default_factory=dict)  # what is outside, by where it is seen
    environment: Mapping[str, str] = field(default_factory=dict)


def arguments(rules: Rules, cell: Cell) -> list[str]:
    """What bubblewrap is told of the jail, without the command."""
    made = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net", "--unshare-cgroup-try"]
    # No --die-with-parent: a half that dies before it told the other to go on leaves it waiting for ever.
    made += ["--as-pid-1", "--hostname", "gpuferry", "--clearenv"]
    made += _rights(rules)
    made += ["--proc", "/proc", "--perms", "1777", "--size", str(SCRATCH_BYTES), "--tmpfs", SCRATCH]
    made += _mounts(rules.files, rules.nodes)  # of which some may lie there
    for place, outside in {**rules.writable, **cell.writable}.items():
        made += ["--bind", outside, place]
    made += ["--remount-ro", "/", "--chdir", SCRATCH]
    for name, value in {**rules.environment, **cell.environment}.items():
        made += ["--setenv", name, value]
    return made


def _rights(rules: Rules) -> list[str]:
    if not rules.root:
        return ["--unshare-user"]
    made = ["--cap-drop", "ALL"]
    for name in CAPABILITIES:
        made += ["--cap-add", name]
    return made


def _mounts(files: Iterable[str], nodes: Iterable[str]) -> list[str]:
    made: list[str] = []
    shown: set[str] = set()
    folders = {"/", SCRATCH}  # made by us: bubblewrap's own are nobody else's to enter

    def make_folders(path: str) -> None:
        for folder in reversed(Path(path).parents):
            if str(folder) not in folders:
                made.extend(["--perms", "0755", "--dir", str(folder)])
                folders.add(str(folder))

    for path in files:
        if path in shown or any(path.startswith(other + "/") for other in shown):
            continue
        make_folders(path)
        if os.path.islink(path):
            made += ["--symlink", os.readlink(path), path]
        else:
            made += ["--ro-bind", path, path]
        shown.add(path)
    for node in nodes:
        make_folders(node)
        made += ["--dev-bind", node, node]
    return made


def confinement(rules: Rules, uid: int, nice: int) -> str:
    """What the process is told to give up by itself: what its option `--confine-fd` leads to."""
    limits = {"processes": PROCESSES, "descriptors": DESCRIPTORS, "file_bytes": FILE_BYTES}
    return json.dumps(
        {
            "uid": uid,
            "groups": [rules.group] if rules.group else [],
            "limits": limits,
            "nice": nice,
            "data_bytes": rules.data_bytes,
            "filter": rules.filter.hex(),
        }
    )
