"""Files of an authority and of what it issued."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from gpuferry.monitor.service import authority
from gpuferry.monitor.service.tls import Identity


@dataclass(frozen=True)
class Certificates:
    """The folder of one authority."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> Certificates:
        """An authority, a server on loopback, and somebody who only calls."""
        authority.make_authority(folder)
        authority.issue(folder, "server", ["localhost", "127.0.0.1"])
        authority.issue(folder, "client", [], client=True)
        return cls(folder)

    @property
    def authority(self) -> Path:
        return self.folder / "ca.crt"

    def identity(self, name: str = "server") -> Identity:
        return Identity(self.folder / f"{name}.crt", self.folder / f"{name}.key", self.authority)

    def flags(self, name: str = "server") -> tuple[str, ...]:
        """Options of a daemon that name these files."""
        given = {"cert": f"{name}.crt", "key": f"{name}.key", "ca": "ca.crt"}
        return tuple(
            word for flag, file in given.items() for word in (f"--tls-{flag}", str(self.folder / file))
        )

    def variables(self, name: str = "client") -> dict[str, str]:
        """Environment of the CLI that names these files."""
        given = {"CERT": f"{name}.crt", "KEY": f"{name}.key", "CA": "ca.crt"}
        return {f"GPUFERRY_TLS_{what}": str(self.folder / file) for what, file in given.items()}


@functools.cache
def certificates() -> Certificates:
    """The certificates that this test process made, removed at its exit."""
    folder = Path(tempfile.mkdtemp(prefix="gpuferry-tls-", dir="/tmp"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Certificates.make(folder)
