"""The folder in which a monitor or a registry keeps what must survive it."""

from __future__ import annotations

import os
from pathlib import Path

from .errors import ConfigError

STORE = "gpuferry.db"


def state_directory(chosen: str | None = None) -> Path:
    """The folder: as `chosen`, else GPUFERRY_STATE_DIR, else where XDG says. Raises ConfigError if nobody
    says where.
    """
    explicit = chosen or os.environ.get("GPUFERRY_STATE_DIR")
    if explicit:
        return Path(explicit).absolute()
    base = os.environ.get("XDG_STATE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".local" / "state") / "gpuferry"
    except RuntimeError:  # as in a container, for a user that has no account there
        raise ConfigError(
            "no state folder was named, and this user has no home folder", "set GPUFERRY_STATE_DIR"
        ) from None


def store_path(chosen: str | None = None) -> Path:
    """The SQLite file in the state folder."""
    return state_directory(chosen) / STORE
