"""The settings of a daemon that runs, in its runtime folder: for whoever judges it from outside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple, TypeVar

from .sources import fields_of

T = TypeVar("T")
NAME = "settings.json"


class InForce(NamedTuple):
    """What a daemon was told, and whether its API servers are in jails; None: it has none."""

    settings: dict[str, object]
    jailed: bool | None


def written(table: type[T], values: T, jailed: bool | None = None) -> str:
    """The file's content. No option holds a secret, only where one is."""
    said = fields_of(values)
    mine = {name: said[name] for name in table.__dataclass_fields__}  # type: ignore[attr-defined]
    return json.dumps(InForce(mine, jailed)._asdict(), default=dict, indent=1)


def read(table: type[T], folder: Path) -> tuple[T, bool | None] | None:
    """The settings in force, and whether there are jails. None: there are none, or of another version."""
    try:
        found = InForce(**json.loads((folder / NAME).read_text()))
        return table(**found.settings), found.jailed
    except (OSError, ValueError, TypeError):
        return None
