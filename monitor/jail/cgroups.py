"""Control groups of version 1 and 2: each jail's memory and number of processes, limited by the kernel."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

PARENT = "gpuferry"
REMOVE_SECONDS = (0.01, 0.1, 1.0)  # after the end of its last process it may take the kernel a moment


class Cgroups:
    """The folders in which groups are made: one (version 2), or one for each controller (version 1)."""

    def __init__(self, folders: Sequence[tuple[Path, dict[str, int]]]) -> None:
        self._folders = folders  # with the limits that are written there, by file

    def make(self, name: str, pid: int) -> str:
        """Put a process into a group of this name of its own. Returns the name. Raises OSError."""
        for folder, limits in self._folders:
            group = folder / name
            group.mkdir()
            for file, limit in limits.items():
                (group / file).write_text(str(limit))
            (group / "cgroup.procs").write_text(str(pid))
        return name

    def remove(self, name: str) -> None:
        """Remove a group whose processes are gone."""
        self._remove(name, REMOVE_SECONDS)

    def _remove(self, name: str, pauses: Sequence[float]) -> None:
        left = False
        for folder, _ in self._folders:
            try:
                (folder / name).rmdir()
            except FileNotFoundError:
                pass
            except OSError:
                left = True
        if left and pauses:
            asyncio.get_running_loop().call_later(pauses[0], self._remove, name, pauses[1:])

    def close(self) -> None:
        """Remove the folders, unless somebody else's groups are in them."""
        for folder, _ in self._folders:
            with contextlib.suppress(OSError):
                for group in [entry for entry in folder.iterdir() if entry.is_dir()]:
                    with contextlib.suppress(OSError):
                        group.rmdir()
                folder.rmdir()


def find(memory: int, processes: int, root: Path = Path("/sys/fs/cgroup")) -> Cgroups | None:
    """The groups that can be made on this machine, with these limits of each; None: there are none."""
    if (root / "cgroup.controllers").exists():
        return _version_2(root, memory, processes)
    found = []
    for controller, limits in (
        ("memory", {"memory.limit_in_bytes": memory}),
        ("pids", {"pids.max": processes}),
    ):
        folder = root / controller / _own(controller) / PARENT
        if _can_make(folder, limits):
            found.append((folder, limits))
    return Cgroups(found) if any("memory.limit_in_bytes" in limits for _, limits in found) else None


def _version_2(root: Path, memory: int, processes: int) -> Cgroups | None:
    """Below our own group, which must be delegated to us, as systemd's Delegate=yes does."""
    own = root / _own("")
    limits = {"memory.max": memory, "pids.max": processes}
    try:
        # A group with groups below it may have no processes itself.
        leaf = own / f"{PARENT}-monitor"
        leaf.mkdir(exist_ok=True)
        (leaf / "cgroup.procs").write_text(str(os.getpid()))
        (own / "cgroup.subtree_control").write_text("+memory +pids")
        folder = own / PARENT
        folder.mkdir(exist_ok=True)
        (folder / "cgroup.subtree_control").write_text("+memory +pids")
    except OSError:
        return None
    return Cgroups([(folder, limits)]) if _can_make(folder, limits) else None


def _own(controller: str) -> str:
    """Our own group, as a path without the slash in front."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(",") and (controller or not controllers):
            return path.strip("/")
    return ""


def _can_make(folder: Path, limits: dict[str, int]) -> bool:
    probe = folder / f"probe-{os.getpid()}"
    try:
        folder.mkdir(exist_ok=True)
        probe.mkdir()
    except OSError:
        return False
    try:
        return all((probe / file).exists() for file in limits)
    finally:
        probe.rmdir()
