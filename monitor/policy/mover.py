"""When a session should move: one GPU is shared while another stands empty (DGSF, policies.md §1.1)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from .company import rooted, takes
from .gpu import Gpu
from .interface import Request
from .session import Session

COOLDOWN = 5.0


class Mover(Protocol):
    """Looks at the books and says who moves where; never enters anything there."""

    pending: tuple[Gpu, Gpu] | None  # crowded, empty: while the next launch on the first matters

    def on_tick(
        self, now: float, gpus: Collection[Gpu], sessions: Collection[Session], head: Request | None
    ) -> tuple[Session, Gpu] | None:
        """A session and the GPU that it should move to, or None. Asked until it is None.

        `gpus` by ascending index, so that the first of equals is the lowest; `head` waits for room.
        """

    def on_launch(self, session: Session, now: float) -> Gpu | None:
        """The GPU to which a session that is about to launch a kernel should move instead, or None."""

    def on_complete(self, session: Session, now: float) -> None:
        """Note that the session ended."""

    def on_moved(self, session: Session, seconds: float) -> None:
        """Note that the session has moved, and stood still for so many seconds."""

    def gone(self, gpu: Gpu) -> None:
        """Note that the GPU failed or left."""


@dataclass
class Trigger:
    """DGSF's rule: a tick finds an imbalance; the next launch on the crowded GPU resolves it, whosever it
    is.
    """

    cooldown: float = COOLDOWN
    pending: tuple[Gpu, Gpu] | None = None
    _quiet_until: float = 0.0

    def on_tick(
        self, now: float, gpus: Collection[Gpu], sessions: Collection[Session], head: Request | None
    ) -> tuple[Session, Gpu] | None:
        self.pending = None
        if now < self._quiet_until:
            return None
        over = max((gpu for gpu in gpus if gpu.busy > 1), key=lambda gpu: gpu.utilisation, default=None)
        under = next((gpu for gpu in gpus if gpu.busy == 0 and gpu.idle), None)
        if over and under:
            self.pending = over, under
        return None

    def on_launch(self, session: Session, now: float) -> Gpu | None:
        if not self.pending or session.moves or len(session.gpus) > 1:
            return None
        over, under = self.pending
        if session.gpus != [over] or rooted(session.request, session.gpus):
            return None
        if under.busy or not takes(session.request, under):
            return None
        self.pending = None
        self._quiet_until = now + self.cooldown
        return under

    def on_complete(self, session: Session, now: float) -> None:
        pass

    def on_moved(self, session: Session, seconds: float) -> None:
        pass

    def gone(self, gpu: Gpu) -> None:
        if self.pending and gpu in self.pending:
            self.pending = None
