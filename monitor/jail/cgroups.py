"""Control groups of version 1 and 2: each jail's memory, number of processes and part of the processors."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

PARENT = "gpuferry"
REMOVE_SECONDS = (0.01, 0.1, 1.0)  # after the end of its last process it may take the kernel a moment
ONE_PROGRAM = 1024  # cpu.shares of a program without a group
PROGRAMS = 4  # as so many on each processor all jails together count, beside whatever else runs there


class Folder(NamedTuple):
    """Where groups of one controller, or of all, are made."""

    path: Path
    limits: dict[str, int]  # that are written there, by file, in this order


class Cgroups:
    """The folders in which groups are made: one (version 2), or one for each controller (version 1)."""

    def __init__(self, folders: Sequence[Folder], shares_processors: bool) -> None:
        self._folders = folders
        self.shares_processors = shares_processors  # whoever starts many threads has no more of them
        self._numbers = itertools.count(1)

    def make(self, pid: int) -> str:
        """Put a process into a group of its own. Returns its name. Raises OSError, which says where; then it
        is in none.
        """
        while True:
            name = f"{os.getpid()}-{next(self._numbers)}"
            if not any((folder.path / name).exists() for folder in self._folders):
                break  # or a killed monitor with our pid left it, maybe with somebody in it
        for folder in self._folders:
            try:
                _put(folder.path / name, folder.limits, pid)
            except OSError as error:
                self.remove(name)
                text = f"its control group in {folder.path}: {error.strerror}"
                raise OSError(error.errno, text) from None
        return name

    def remove(self, name: str) -> None:
        """Remove a group whose processes are gone."""
        self._remove(name, REMOVE_SECONDS)

    def _remove(self, name: str, pauses: Sequence[float]) -> None:
        left = False
        for folder in self._folders:
            try:
                (folder.path / name).rmdir()
            except FileNotFoundError:
                pass
            except OSError:
                left = True
        if left and pauses:
            asyncio.get_running_loop().call_later(pauses[0], self._remove, name, pauses[1:])

    def close(self) -> None:
        """Remove the groups that are left, but those which another monitor may just be making. The folders
        stay: it may make its next there.
        """
        for folder in self._folders:
            with contextlib.suppress(OSError):
                for group in [entry for entry in folder.path.iterdir() if entry.is_dir()]:
                    if not _anothers(group.name):
                        with contextlib.suppress(OSError):
                            group.rmdir()


def _put(group: Path, limits: Mapping[str, int], pid: int) -> None:
    """Make a group with these limits and put the process into it."""
    group.mkdir()
    for file, limit in limits.items():
        (group / file).write_text(str(limit))
    (group / "cgroup.procs").write_text(str(pid))


def _anothers(name: str) -> bool:
    maker = name.removeprefix("probe-").partition("-")[0]
    return maker != str(os.getpid()) and Path("/proc", maker).exists()


def own_limit(root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Bytes of memory that our own group may have; None: nobody says."""
    files = []
    for group in ("", _own("")):  # a container may see its own as the root
        files.append(root / group / "memory.max")
    for group in ("", _own("memory")):
        files.append(root / "memory" / group / "memory.limit_in_bytes")
    sizes = []
    for file in files:
        with contextlib.suppress(OSError, ValueError):  # "max", or no such group here
            sizes.append(int(file.read_text()))
    return min(sizes, default=None)


def memory_groups(root: Path = Path("/sys/fs/cgroup")) -> Iterator[Path]:
    """Iterate over the folders of groups whose limits of memory are ours too: our own, and those above it."""
    for base, own in ((root, _own("")), (root / "memory", _own("memory"))):
        for above in (Path(own), *Path(own).parents):
            yield base / above


def possible(root: Path = Path("/sys/fs/cgroup")) -> bool:
    """Whether a monitor in our place could have groups. It is only looked: nothing is made or moved."""
    if (root / "cgroup.controllers").exists():
        own = root / _own("")
        files = (own, own / "cgroup.procs", own / "cgroup.subtree_control")
        try:
            controllers = (own / "cgroup.controllers").read_text().split()
            can = {"memory", "pids"} <= set(controllers) and all(os.access(file, os.W_OK) for file in files)
            return can and not _shared(own)
        except OSError:  # a container may not see its own group
            return False
    own = root / "memory" / _own("memory")
    return (own / "memory.limit_in_bytes").exists() and os.access(own, os.W_OK)


def _shared(own: Path) -> bool:
    """Whether others are in our group of version 2 beside us: then it hands on no controller, unless it does
    so already or is the machine's own, the only one without events.
    """
    given = {"memory", "pids"} <= set((own / "cgroup.subtree_control").read_text().split())
    there = (own / "cgroup.procs").read_text().split()
    return (own / "cgroup.events").exists() and not given and there not in ([], [str(os.getpid())])


def find(memory: int, processes: int, root: Path = Path("/sys/fs/cgroup")) -> Cgroups | None:
    """The groups that can be made on this machine, with these limits of each; None: there are none."""
    if (root / "cgroup.controllers").exists():
        return _version_2(root, memory, processes)
    # memory and swap: both together
    counted = {"memory.limit_in_bytes": memory, "memory.memsw.limit_in_bytes": memory}
    found = list(_version_1(root, {"memory": counted, "pids": {"pids.max": processes}, "cpu": {}}))
    if not any("memory.limit_in_bytes" in folder.limits for folder in found):
        return None
    shares = [folder.path / "cpu.shares" for folder in found if not folder.limits]
    for file in shares:
        with contextlib.suppress(OSError):
            file.write_text(str(PROGRAMS * ONE_PROGRAM * (os.cpu_count() or 1)))
    return Cgroups(found, bool(shares))


def _version_1(root: Path, wanted: dict[str, dict[str, int]]) -> Iterator[Folder]:
    for controller, limits in wanted.items():
        folder = root / controller / _own(controller) / PARENT
        there = _files_of_groups(folder)
        if controller == "cpu" and "cpu.shares" in there:
            yield Folder(folder, {})  # by itself each group counts as one program
        elif can := {file: limit for file, limit in limits.items() if file in there}:
            yield Folder(folder, can)


def _version_2(root: Path, memory: int, processes: int) -> Cgroups | None:
    """Below our own group, which must be delegated to us, by systemd's Delegate=yes (but see our unit)."""
    own = root / _own("")
    folder = own / PARENT
    try:
        # A group with groups below it may have no processes itself.
        leaf = own / f"{PARENT}-monitor"
        leaf.mkdir(exist_ok=True)
        (leaf / "cgroup.procs").write_text(str(os.getpid()))
        folder.mkdir(exist_ok=True)
        for group in (own, folder):
            (group / "cgroup.subtree_control").write_text("+memory +pids")
            with contextlib.suppress(OSError):  # all jails together count as the monitor, each as each
                (group / "cgroup.subtree_control").write_text("+cpu")
    except OSError:
        return None
    there = _files_of_groups(folder)
    limits = {"memory.max": memory, "pids.max": processes}
    if not limits.keys() <= there:
        return None
    swap = {"memory.swap.max": 0} if "memory.swap.max" in there else {}
    return Cgroups([Folder(folder, limits | swap)], "cpu.weight" in there)


def _own(controller: str) -> str:
    """Our own group, as a path without the slash in front."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(",") and (controller or not controllers):
            return path.strip("/")
    return ""


def _files_of_groups(folder: Path) -> set[str]:
    """What a group in this folder has; nothing if none can be made."""
    probe = folder / f"probe-{os.getpid()}"
    try:
        folder.mkdir(exist_ok=True)
        probe.mkdir()
    except OSError:
        return set()
    try:
        return {entry.name for entry in probe.iterdir()}
    finally:
        probe.rmdir()
