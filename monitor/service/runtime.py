"""The private folder in which a monitor leaves its address and token for programs of the same user."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from ..settings.errors import ConfigError
from .files import write_where_there_is_room

OTHER = "set GPUFERRY_RUNTIME_DIR to another folder"
LOOPBACK = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}


def from_here(address: str) -> str:
    """The address by which this machine reaches what listens everywhere: no certificate is for `0.0.0.0`."""
    before, _, port = address.rpartition(":")
    scheme, separator, host = before.rpartition("://")
    return f"{scheme}{separator}{LOOPBACK.get(host, host)}:{port}"


class RuntimeDirectory:
    """The folder, held by one daemon at a time. Raises ConfigError if it cannot be had."""

    def __init__(
        self, path: Path, private: bool = False, whose: str = "a monitor", shows: str = "gpuferry status"
    ) -> None:
        """`whose`: what a daemon that has it is called, and `shows`: the command that shows it."""
        self.path = path
        self._private = private  # made for one `gpuferry run --local`, which may be gone already
        self._published: set[Path] = set()
        self._left: set[Path] = set()
        self._prepare()
        try:
            self._lock = os.open(path / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(f"cannot write in {path}: {error.strerror}", OTHER) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise ConfigError(
                f"{whose} already runs here ({path} is in use): see `{shows}`, "
                "or set GPUFERRY_RUNTIME_DIR to another folder"
            ) from None
        except OSError as error:  # some file systems have no locks
            os.close(self._lock)
            raise ConfigError(f"cannot lock {path}: {error.strerror}", OTHER) from None

    def _prepare(self) -> None:
        before = os.umask(0o077)  # for parents too: a registry's folder is inside a monitor's
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            status = self.path.lstat()
        except OSError as error:
            raise ConfigError(f"cannot make {self.path}: {error.strerror}", OTHER) from None
        finally:
            os.umask(before)
        # In /tmp anyone could have made it first, as a link or with open permissions.
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
            raise ConfigError(
                f"{self.path} must be a folder of yours with mode 0700: it will hold the token "
                "(or set GPUFERRY_RUNTIME_DIR to another folder)"
            )

    def publish(self, name: str, content: str) -> Path:
        """Write a file that only this user can read; readers see all of it or none. Raises OSError."""
        path = self.path / name
        write_where_there_is_room(path, content)
        self._published.add(path)
        return path

    @contextlib.contextmanager
    def must_publish(self) -> Iterator[None]:
        """A daemon of which nobody could know does not start. Raises ConfigError for an OSError within."""
        try:
            yield
        except OSError as error:
            hint = f"make room there, or {OTHER}"
            raise ConfigError(f"cannot write in {self.path}: {error.strerror}", hint) from None

    def leave(self, name: str, left: bool) -> None:
        """Whether this file stays at the end, for the next one."""
        (self._left.add if left else self._left.discard)(self.path / name)

    def publish_endpoint(self, entries: Mapping[str, object]) -> Path:
        """Write the variables by which commands of the same user find this daemon. Raises OSError."""
        return self.publish("endpoint", "".join(f"{name}={value}\n" for name, value in entries.items()))

    def close(self) -> None:
        """Remove what was published and is left to nobody, then let another daemon in."""
        for path in self._published - self._left:
            path.unlink(missing_ok=True)
        os.close(self._lock)
        if self._private:
            shutil.rmtree(self.path, ignore_errors=True)
