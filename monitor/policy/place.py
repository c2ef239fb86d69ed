"""Where the memory of a session is, as far as its turns depend on that."""

from __future__ import annotations

import enum
from typing import NamedTuple


class Place(enum.Enum):
    """Where a session's memory is, as its arbiter sees it."""

    HERE = "here"
    COMING = "coming"  # there is room for it, and it is being brought
    LEAVING = "leaving"
    AWAY = "away"


class Residence(NamedTuple):
    """Where a session's memory is, and how long it takes to bring it back and to send it away again."""

    place: Place
    seconds: float = 0.0
