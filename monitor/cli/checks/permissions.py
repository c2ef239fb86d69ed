"""What others than its owner can do to a file."""

from __future__ import annotations

import stat
from pathlib import Path

from .check import Check


def readable_by_others(what: str, file: Path) -> Check | None:
    """A finding if others than the owner can read the file; None: they cannot, or it is not there."""
    try:
        mode = stat.S_IMODE(file.stat().st_mode)
    except OSError:
        return None
    if not mode & 0o077:
        return None
    digits = "700" if file.is_dir() else "600"
    return Check(what, "failed", f"{file}: others can read it (mode {mode:04o})", f"`chmod {digits} {file}`")


def replaceable_by_others(what: str, path: Path) -> Check | None:
    """A finding if anybody can write the file or folder, or put another in its place. Folders in which each
    may only touch what is his (`/tmp`) are none, nor are devices (`/dev/null`), which keep nothing. None:
    nobody can, or it is not there.
    """
    try:
        real = path.resolve(strict=True)
        for place in (real, *real.parents):
            mode = place.stat().st_mode
            if mode & stat.S_IWOTH and not mode & stat.S_ISVTX and not stat.S_ISCHR(mode):
                detail = f"{place}: anybody can write there (mode {stat.S_IMODE(mode):04o})"
                if place != real:
                    detail += f", and put another in the place of {path}"
                return Check(what, "failed", detail, f"`chmod o-w {place}`")
    except (OSError, RuntimeError):  # not there, or links in a circle
        pass
    return None
