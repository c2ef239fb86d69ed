"""What the simulated device tells of a process in a jail (native/simdevice/nvml): a file for each."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from ..service.processes import start_time

PLACE = "/figures"  # where it is seen inside
LARGEST = 4 << 20  # bytes; struct live_file has half of that
START_BITS = 40  # live_file.c
START_MASK = (1 << START_BITS) - 1


class Figures:
    """The folder of these files, beside the common one."""

    def __init__(self, common: Path) -> None:
        self._folder = common.with_name(common.name + ".jails")
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._sweep()

    def make(self, uid: int) -> Path:
        """A file for a process of this user that is about to start."""
        self._sweep()
        maker = os.getpid()
        path = self._folder / f"new-{maker}-{start_time(maker)}-{secrets.token_hex(8)}"
        path.touch(0o600)
        if uid:
            os.chown(path, uid, uid)
        return path

    def owned(self, pid: int, began: int) -> Path:
        """The name under which the file of this process is read. `began`: in ticks since the machine did."""
        return self._folder / str(pid << START_BITS | began & START_MASK)

    def remove(self, path: Path) -> None:
        """Remove a file, under each name that it has."""
        with contextlib.suppress(FileNotFoundError):
            inode = path.stat().st_ino
            for entry in os.scandir(self._folder):
                if entry.inode() == inode:
                    os.unlink(entry)

    def _sweep(self) -> None:
        """Remove what nobody else will: a monitor that is killed while it starts a process has told no one of
        it, and the process dies with it.
        """
        for entry in os.scandir(self._folder):
            with contextlib.suppress(OSError, ValueError):  # removed meanwhile, unknown now, or none of ours
                if _abandoned(entry):
                    self.remove(Path(entry.path))

    def close(self) -> None:
        """Remove the folder, if nobody's file is there."""
        with contextlib.suppress(OSError):
            self._folder.rmdir()


def _abandoned(entry: os.DirEntry[str]) -> bool:
    """Whether the process that it is for is gone; before there is one, whether the monitor that made it is.
    Raises ValueError if its name is none that is given here.
    """
    if entry.name.startswith("new-"):
        _, pid, began, _ = entry.name.split("-")
        return entry.stat().st_nlink == 1 and start_time(int(pid)) != int(began)
    key = int(entry.name)
    return start_time(key >> START_BITS) & START_MASK != key & START_MASK
