"""What is made once, whoever needs it first: by any worker of this run, or by an earlier run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path


@contextmanager
def made_once(mark: Path) -> Iterator[bool]:
    """Whether it is to be made in the block. The file `mark` says that it was; it stays away if that fails.

    Two pytest workers wait for each other."""
    mark.parent.mkdir(parents=True, exist_ok=True)
    with mark.with_name(f"{mark.name}.lock").open("w") as lock:
        flock(lock, LOCK_EX)
        missing = not mark.exists()
        yield missing
        mark.touch()
