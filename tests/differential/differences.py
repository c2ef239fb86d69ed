"""Where a remote run may differ from a native one, each with its reason. All else must be equal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Difference:
    """A line that matches `line` may read otherwise on the other side."""

    line: str
    reason: str


DIFFERENCES: dict[str, tuple[Difference, ...]] = {}


def comparable(program: str, stdout: str, *, in_any_order: bool) -> list[str]:
    """The lines of a run without those that may differ."""
    allowed: Sequence[Difference] = DIFFERENCES.get(program, ())
    lines = [line for line in stdout.splitlines() if not any(re.search(d.line, line) for d in allowed)]
    return sorted(lines) if in_any_order else lines
