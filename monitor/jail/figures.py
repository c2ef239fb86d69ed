"""What the simulated device tells of a process in a jail (native/simdevice/nvml): a file for each."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

PLACE = "/figures"  # where it is seen inside
START_BITS = 40  # live_file.c


class Figures:
    """The folder of these files, beside the common one."""

    def __init__(self, common: Path) -> None:
        self._folder = common.with_name(common.name + ".jails")
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def make(self, uid: int) -> Path:
        """A file for a process of this user that is about to start."""
        path = self._folder / f"new-{secrets.token_hex(8)}"
        path.touch(0o600)
        if uid:
            os.chown(path, uid, uid)
        return path

    def owned(self, pid: int, began: int) -> Path:
        """The name under which the file of this process is read. `began`: in ticks since the machine did."""
        return self._folder / str(pid << START_BITS | began & ((1 << START_BITS) - 1))

    def remove(self, path: Path) -> None:
        """Remove a file, under each name that it has."""
        with contextlib.suppress(FileNotFoundError):
            inode = path.stat().st_ino
            for entry in os.scandir(self._folder):
                if entry.inode() == inode:
                    os.unlink(entry)

    def close(self) -> None:
        """Remove the folder, if nobody's file is there."""
        with contextlib.suppress(OSError):
            self._folder.rmdir()
