"""Where a daemon keeps what must survive it, and whether the clock that all of it is judged by is right."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from gpuferry.guest.units import format_size

from .check import Check

ROOM_NEEDED = 1 << 20  # bytes for tokens, limits, usage and what the next monitor finds
MOUNTS = Path("/proc/self/mountinfo")
IN_MEMORY = ("tmpfs", "ramfs")
ELSEWHERE = ("nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "fuse.sshfs")
APART_SECONDS = 60.0  # what clocks of a machine and of its disks' servers may differ by


def with_room(name: str, path: Path, other: str) -> Check:
    """The folder is there; whether something can be written. `other`: what to do beside making room."""
    free = shutil.disk_usage(path).free
    if free < ROOM_NEEDED:
        return Check(
            name, "failed", f"{path}: only {format_size(free)} free", f"make room on that disk, {other}"
        )
    return Check(name, "ok", str(path))


def disk(folder: Path) -> Iterator[Check]:
    """Say if a state folder is where it does not last, or where a database in it does not work."""
    kind = file_system(folder)
    name, step = "disk of the state folder", "name a folder on a disk of this machine with --state"
    if kind in IN_MEMORY:
        detail = (
            f"{folder} is in memory ({kind}): tokens, limits and usage are gone when the machine restarts"
        )
        yield Check(name, "note", detail, step)
    elif kind in ELSEWHERE:
        detail = f"{folder} is on another machine ({kind}): SQLite's locks may not hold there"
        yield Check(name, "note", detail, step)


def file_system(path: Path, mounts: Path = MOUNTS) -> str:
    """The kind of file system that a path is on; empty: nobody says."""
    real, found = path.resolve(), ("", "")
    try:
        lines = mounts.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return ""
    for line in lines:  # a later mount lies over an earlier one
        fields, _, kind = line.partition(" - ")
        place = re.sub(r"\\([0-7]{3})", lambda escaped: chr(int(escaped[1], 8)), fields.split()[4])
        if real.is_relative_to(place) and len(place) >= len(found[0]):
            found = place, kind.split()[0]
    return found[1]


def clock(folder: Path) -> Iterator[Check]:
    """Say if something was written here at a time that has not come yet: then the clock was ahead, or is
    behind, and every certificate is judged by it.
    """
    try:
        written = {file: file.stat().st_mtime for file in folder.iterdir() if file.is_file()}
    except OSError:  # it is not there, or another check says so
        return
    newest = max(written, key=lambda file: written[file], default=None)
    if newest and written[newest] > time.time() + APART_SECONDS:
        hours = (written[newest] - time.time()) / 3600
        detail = f"it is {hours:.1f} h behind what it was when {newest} was written"
        yield Check("clock", "note", detail, "see `timedatectl`; certificates begin and end by it")
