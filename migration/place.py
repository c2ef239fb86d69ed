"""Where a snapshot file lies: a new one, which gets its name when it is complete, and one that is there."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from .errors import Refused, SnapshotError

Result = TypeVar("Result")
PUBLISH, WITHDRAW, DONE = b"publish", b"withdraw", b"done"
ANSWER_MOST = 4096
STAT_BLOCK = 512  # bytes, of which stat counts


class _Written:
    """A file that is being written."""

    path: Path
    _descriptor: int

    def fileno(self) -> int:
        """The number of the file's open descriptor."""
        return self._descriptor

    def write(self, data: bytes | memoryview) -> None:
        """Append. Raises Refused, with what the system says, if it does not fit."""
        view = memoryview(data)
        while view:
            written = self._try(lambda rest=view: os.write(self._descriptor, rest))  # type: ignore[misc]
            view = view[written:]

    def _try(self, do: Callable[[], Result]) -> Result:
        try:
            return do()
        except OSError as error:
            raise Refused(f"cannot write {self.path}: {error.strerror}") from None


class NewFile(_Written):
    """A file that nobody finds under its name before it is complete. Only its owner may read it.

    Until then it has no name at all, where the file system knows such files: then nothing is left of it if
    whoever writes it is killed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._partial: Path | None = None  # its name until it is complete
        if not path.is_absolute():
            raise Refused(f"{path} is no absolute path")
        if os.path.lexists(path):
            raise Refused(f"{path} exists already: choose another name")
        self._descriptor = self._try(self._open)
        self._published = self._discarded = False

    def _open(self) -> int:
        try:
            return os.open(self.path.parent, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR):
                raise
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._partial = self.path.with_name(f".{self.path.name}.{os.getpid()}.partial")
        return os.open(self._partial, flags, 0o600)

    @property
    def size(self) -> int:
        """Bytes that it has, or takes of the disk."""
        found = os.fstat(self._descriptor)
        return max(found.st_size, found.st_blocks * STAT_BLOCK)

    def oblige(self, word: bytes) -> bytes:
        """Do what whoever writes the file in our place asks for. Returns the answer for him."""
        try:
            if word == PUBLISH:
                self.publish()
            elif word == WITHDRAW:
                self.withdraw()
        except (Refused, OSError) as error:
            return str(error).encode()
        return DONE

    def publish(self) -> None:
        """Sync what was written, and give it its name, unless something has got that name meanwhile."""
        self._try(lambda: os.fsync(self._descriptor))
        try:
            # With a folder beside it os.link follows the link of /proc, which names a file without a name.
            here = self._partial or f"/proc/self/fd/{self._descriptor}"
            os.link(here, self.path, src_dir_fd=self._descriptor)
        except FileExistsError:
            raise Refused(f"{self.path} came meanwhile and is not overwritten: choose another name") from None
        except OSError as error:
            raise Refused(f"cannot give {self.path} its name: {error.strerror}") from None
        self._published = True
        self._remove_partial()
        self._sync_folder()

    def withdraw(self) -> None:
        """Remove the published file: the session did not leave after all, and must not be resumed from it."""
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(self._descriptor), os.lstat(self.path)):
                self.path.unlink()

    def discard(self) -> None:
        """Let nothing be left of a file that was not published, whoever else has it open."""
        if self._published or self._discarded:
            return
        self._discarded = True
        self.empty()
        self._remove_partial()

    def _remove_partial(self) -> None:
        if self._partial:
            self._partial.unlink(missing_ok=True)

    def empty(self) -> None:
        """Give back the room that it takes."""
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)

    def close(self) -> None:
        """Close the file. One that was not published is gone."""
        self.discard()
        os.close(self._descriptor)

    def _sync_folder(self) -> None:
        with contextlib.ExitStack() as stack:
            folder = self._try(lambda: os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            stack.callback(os.close, folder)
            self._try(lambda: os.fsync(folder))


class GivenFile(_Written):
    """A new file of somebody else's, which we write: he has opened it, and gives it its name when we say so.
    `desk`: a SOCK_SEQPACKET socket to him.
    """

    def __init__(self, descriptor: int, desk: socket.socket, path: Path) -> None:
        self.path = path
        self._descriptor = descriptor
        self._desk = desk

    def publish(self) -> None:
        """Have what was written synced, and get it its name. Raises Refused."""
        answer = self._ask(PUBLISH)
        if answer != DONE:
            raise Refused(answer.decode() or f"whoever should give {self.path} its name is gone")

    def withdraw(self) -> None:
        """Have the published file removed: the session did not leave after all."""
        self._ask(WITHDRAW)

    def _ask(self, word: bytes) -> bytes:
        try:
            self._desk.send(word)
            return self._desk.recv(ANSWER_MOST)
        except OSError:
            return b""

    def close(self) -> None:
        """Close the file. One that was not published is gone."""
        os.close(self._descriptor)
        self._desk.close()


class ExistingFile:
    """A file to read from. `name`: for messages. The descriptor is closed with it."""

    def __init__(self, descriptor: int, name: str) -> None:
        self.name = name
        self._descriptor = descriptor
        self.size = os.fstat(descriptor).st_size

    def fileno(self) -> int:
        """The number of the file's open descriptor."""
        return self._descriptor

    def read(self, size: int, at: int) -> bytes:
        """So many bytes from there on; fewer at the end of the file. Raises SnapshotError."""
        data = bytearray()
        while len(data) < size:
            try:
                piece = os.pread(self._descriptor, size - len(data), at + len(data))
            except OSError as error:
                raise SnapshotError(f"cannot read {self.name}: {error.strerror}") from None
            if not piece:
                break
            data += piece
        return bytes(data)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def __enter__(self) -> ExistingFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def existing(path: Path) -> ExistingFile:
    """Open a file to read from. Raises SnapshotError."""
    try:  # a pipe would keep us waiting
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise SnapshotError(f"cannot read {path}: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise SnapshotError(f"{path} is no file")
    return ExistingFile(descriptor, str(path))
