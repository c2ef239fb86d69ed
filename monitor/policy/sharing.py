"""How a GPU's time is shared, by the names that options use."""

from __future__ import annotations

from dataclasses import dataclass

SECOND = 10**9


@dataclass(frozen=True)
class Sharing:
    """What an operator says of it. Times in nanoseconds."""

    kind: str = "free"  # of names.SHARINGS
    tokens: int = 1  # who may work at once; by time it is one
    quota: int = SECOND // 10  # 0: turns last until there is nothing left to do
    window: int = 10 * SECOND
    rule: str = "fixed"  # of names.QUOTAS
    deficit: str = "relative"  # of names.DEFICITS
    gemini: bool = False  # as its source does it, where that differs

    @property
    def at_once(self) -> int:
        """How many may work at once."""
        return 1 if self.kind == "time" else self.tokens
