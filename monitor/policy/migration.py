"""When a session should move: one GPU is shared while another stands empty (DGSF, policies.md §1.1)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from .gpu import Gpu

COOLDOWN = 5.0


@dataclass
class Trigger:
    """A tick finds an imbalance; the next launch on the crowded GPU resolves it, whosever it is."""

    cooldown: float = COOLDOWN
    pending: tuple[Gpu, Gpu] | None = None
    _quiet_until: float = 0.0

    def on_tick(self, now: float, gpus: Collection[Gpu]) -> None:
        """`gpus` by ascending index, so that the first of equals is the lowest."""
        self.pending = None
        if now < self._quiet_until:
            return
        over = max((gpu for gpu in gpus if gpu.busy > 1), key=lambda gpu: gpu.utilisation, default=None)
        under = next((gpu for gpu in gpus if gpu.busy == 0), None)
        if over and under:
            self.pending = over, under

    def target(self, gpu: Gpu, memory: int, labels: frozenset[str]) -> Gpu | None:
        """Where a session of that GPU, about to launch, should go instead."""
        if not self.pending:
            return None
        over, under = self.pending
        if gpu is not over or under.busy or under.free < memory or not labels <= under.labels:
            return None
        return under

    def moved(self, now: float) -> None:
        """One moved: leave the others alone for a while."""
        self.pending = None
        self._quiet_until = now + self.cooldown

    def gone(self, gpu: Gpu) -> None:
        """A GPU left."""
        if self.pending and gpu in self.pending:
            self.pending = None
