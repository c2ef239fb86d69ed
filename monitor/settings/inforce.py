"""The settings of a daemon that runs, in its runtime folder: for whoever judges it from outside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from .sources import fields_of

T = TypeVar("T")
NAME = "settings.json"


class InForce(NamedTuple):
    """What a daemon was told, whether its API servers are in jails, and whether the kernel counts the memory
    of those; None: it has none.
    """

    settings: Any
    jailed: bool | None
    counted: bool | None = None


def written(table: type[T], values: T, jailed: bool | None = None, counted: bool | None = None) -> str:
    """The file's content. No option holds a secret, only where one is."""
    said = fields_of(values)
    mine = {name: said[name] for name in table.__dataclass_fields__}  # type: ignore[attr-defined]
    return json.dumps(InForce(mine, jailed, counted)._asdict(), default=dict, indent=1)


def read(table: type[T], folder: Path) -> InForce | None:
    """What is in force, its settings as such a table. None: there is nothing, or of another version."""
    try:
        found = InForce(**json.loads((folder / NAME).read_text()))
        return found._replace(settings=table(**found.settings))
    except (OSError, ValueError, TypeError):
        return None
