"""The files in which copies of sessions' memory lie: in memory, or on a disk without a name.

A file in memory is sealed at its size. Nothing seals a file on a disk, so whoever made it keeps it, looks how
large it is, and empties it when the copies are given up, whoever else has it open.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..pool.channel import HasFileno

PAGE = 2 << 20
BLOCK = 512  # bytes, of which stat counts
OVERHEAD = 1 << 20  # that a file system may take to know where a file lies
SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


class CopyFile:
    """An open file that nobody else can open, of a size that is settled."""

    def __init__(self, descriptor: int, size: int, on_disk: bool) -> None:
        self._descriptor = descriptor
        self.size = size
        self.on_disk = on_disk
        self.taken = True  # whoever was given it has said so, and has it until it is told to give it back

    def fileno(self) -> int:
        """The number of its descriptor."""
        return self._descriptor

    @property
    def name(self) -> str:
        """What tells it from all other files, as long as anybody has it open."""
        found = os.fstat(self._descriptor)
        return f"{found.st_dev}:{found.st_ino}"

    def close(self) -> None:
        """Close the descriptor. The file is there as long as somebody has another."""
        os.close(self._descriptor)

    @property
    def outgrown(self) -> bool:
        """Whether somebody has made it larger, or has given it more of the disk."""
        found = os.fstat(self._descriptor)
        return found.st_size > self.size or found.st_blocks * BLOCK > self.size + OVERHEAD

    def empty(self) -> None:
        """Give its room back, and close it."""
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
        self.close()


def let_go(files: Iterable[CopyFile]) -> None:
    """Close them soon. Those on a disk give their room back, whoever else has them open. It is done on
    another thread: a disk may be slow, and memory takes a tenth of a second for each gigabyte.
    """
    asyncio.get_running_loop().run_in_executor(None, _close, files)


def _close(files: Iterable[CopyFile]) -> None:
    for file in files:
        if file.on_disk:
            file.empty()
        else:
            file.close()


def handed_back(files: Iterable[HasFileno], folder: Path, sizes: Mapping[str, int]) -> list[CopyFile]:
    """Those files that an earlier monitor made; what else an API server hands us is not ours. `sizes`: how
    large they may be, by name, as far as that monitor said it; others are ours if they lie in this folder, or
    could.
    """
    found = []
    for file in files:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_nlink:
            continue
        ours = CopyFile(os.dup(file.fileno()), status.st_size, on_disk=True)
        if ours.name in sizes or status.st_dev == _device_of(folder):
            ours.size = sizes.get(ours.name, ours.size)
            found.append(ours)
        else:
            ours.close()
    return found


def _device_of(folder: Path) -> int | None:
    """Where files in the folder would lie; None: nowhere, for it is needed no more."""
    try:
        return os.stat(folder).st_dev
    except OSError:
        return None


def in_memory(size: int) -> CopyFile:
    """A file in memory, sealed at its size: nobody makes it larger or smaller. Raises OSError."""
    descriptor = os.memfd_create("gpuferry-copy", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, size)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS)
    except OSError:
        os.close(descriptor)
        raise
    return CopyFile(descriptor, size, on_disk=False)


async def on_disk(folder: Path, size: int) -> CopyFile:
    """A file in this folder that has no name, and its room on the disk. Raises OSError."""
    made = asyncio.get_running_loop().run_in_executor(None, _on_disk, folder, size)
    try:
        return await asyncio.shield(made)
    except asyncio.CancelledError:
        made.add_done_callback(_unmake)
        raise


def _unmake(made: asyncio.Future[CopyFile]) -> None:
    if not (made.cancelled() or made.exception()):
        let_go([made.result()])


def _on_disk(folder: Path, size: int) -> CopyFile:
    descriptor = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError:
        os.close(descriptor)
        raise
    return CopyFile(descriptor, size, on_disk=True)
