"""What others say, as people may read it."""

from __future__ import annotations

TEXT_MOST = 1000  # characters


def shown(text: str) -> str:
    """The text without what would steer a terminal, and not longer than anybody reads."""
    return "".join(letter if letter.isprintable() else " " for letter in text[:TEXT_MOST])
