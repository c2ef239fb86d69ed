"""A session as a policy sees it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from .gpu import Gpu
from .interface import Request


@dataclass(slots=True, eq=False)
class Session:
    """What a session holds. Its GPUs may have left meanwhile: then nobody looks at their books."""

    request: Request
    gpus: list[Gpu]
    since: float  # when it was placed
    overtaken: int = 0  # by how many that came later, before it was placed
    leaving: list[Gpu] = field(default_factory=list)  # where it still holds memory while it moves
    moves: int = 0
    moved_at: float = -math.inf
    done: float = 0.0  # seconds of a GPU of its own that its progress is worth, as far as known
