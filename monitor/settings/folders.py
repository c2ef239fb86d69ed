"""The folder in which a monitor or a registry keeps what must survive it."""

from __future__ import annotations

import os
from pathlib import Path

STORE = "gpuferry.db"


def state_directory(chosen: str | None = None) -> Path:
    """The folder: as `chosen`, else GPUFERRY_STATE_DIR, else where XDG says."""
    explicit = chosen or os.environ.get("GPUFERRY_STATE_DIR")
    if explicit:
        return Path(explicit).absolute()
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "gpuferry"


def store_path(chosen: str | None = None) -> Path:
    """The SQLite file in the state folder."""
    return state_directory(chosen) / STORE
