"""The secret that registries, GPU servers and operators of one cluster share."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from gpuferry.guest.endpoint import first_line, read_token

from ..service.files import make_once
from ..settings.errors import ConfigError
from ..settings.tokens import check_strength

NAME = "cluster.key"


def read_cluster_key(file: str | None, state: Path) -> bytes | None:
    """The key from this file, else GPUFERRY_CLUSTER_KEY, else the state folder; None: there is none.

    Raises ConfigError if it cannot be read or is too short.
    """
    given = first_line(os.environ.get("GPUFERRY_CLUSTER_KEY", ""))
    path = file or (None if given else str(state / NAME))
    try:
        key = read_token(path) if path else given
    except OSError as error:
        if not file and isinstance(error, (FileNotFoundError, NotADirectoryError)):
            return None
        hint = "" if file else "the state folder must be this user's: --state names another"
        raise ConfigError(f"cluster key file {path}: {error.strerror}", hint) from None
    check_strength(f"the cluster key in {path}" if path else "the key in GPUFERRY_CLUSTER_KEY", key)
    return key.encode()


def make_cluster_key(state: Path) -> bytes:
    """Make a key in the state folder, for the first registry of a cluster. Raises ConfigError."""
    key = secrets.token_hex(32)
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        make_once(state / NAME, key + "\n")
    except OSError as error:
        raise ConfigError(
            f"cannot write {state / NAME}: {error.strerror}", "choose a folder: --state"
        ) from None
    return key.encode()
