"""Small files that others read or write meanwhile: they survive a full disk, and fill none."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from pathlib import Path

_FULL = (errno.ENOSPC, errno.EDQUOT)
_BLOCK = 512  # bytes, of which stat counts


def make_folder(path: Path) -> None:
    """Make a private folder, and those above it that are missing, which are private too: the state folder may
    be one of them. Raises OSError.
    """
    missing = [one for one in (path, *path.parents) if not one.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)


def _make(path: Path, content: str) -> None:
    """Make a private file, whose content is on the disk then. Raises OSError; then it is not there."""
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:  # as it is read, whatever the locale
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        path.unlink(missing_ok=True)  # its blocks may be what others lack
        raise


def write_atomically(path: Path, content: str) -> None:
    """Replace a private file: readers, and whoever comes after a crash, find all of the new content or all of
    the old. Raises OSError; then it is the old.
    """
    scratch = path.with_name(f".{path.name}.new")
    scratch.unlink(missing_ok=True)
    _make(scratch, content)
    try:
        scratch.replace(path)
    except OSError:
        scratch.unlink(missing_ok=True)
        raise


def make_once(path: Path, content: str) -> None:
    """Make a private file that is not there: all of it, or none where the disk is full. Raises OSError;
    FileExistsError if it is there.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    _make(draft, content)
    try:
        os.link(draft, path)
    finally:
        draft.unlink()


def write_where_there_is_room(path: Path, content: str) -> None:
    """As `write_atomically`; on a full disk over the file that is there, whose block it takes. Only for
    content of one block, which a crash of the process cannot tear. Raises OSError if there is no file to
    write over.
    """
    try:
        write_atomically(path, content)
    except OSError as error:
        if error.errno not in _FULL or not path.exists():
            raise
        data = content.encode()
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            if os.pwrite(descriptor, data, 0) != len(data):
                raise
            os.ftruncate(descriptor, len(data))
        finally:
            os.close(descriptor)


def emptied_if_larger(path: Path, most: int) -> bool:
    """Whether somebody has made the file larger than so many bytes, or has given it more of the disk. Then
    nothing of it is left. False, too, if there is no such file. It waits for nobody: where
    somebody holds a lease of the file, it stays.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        return False
    if max(found.st_size, found.st_blocks * _BLOCK) <= most:
        return False
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.ftruncate(descriptor, 0)
        finally:
            os.close(descriptor)
    return True
