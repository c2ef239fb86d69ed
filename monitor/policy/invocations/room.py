"""Room for a function that is passed over because it does not fit beside what runs."""

from __future__ import annotations

from collections.abc import Iterable

from .state import Card, Flow


class Room:
    """GPUs that are kept for one function, as many as a replica of it has: no other begins there, so what
    runs ends, and then it fits.

    Without this, small functions that are always busy would keep a large one out for ever where several
    invocations may run on a GPU at once. When it is passed over for too long is the policy's to say.
    """

    def __init__(self) -> None:
        self._flow: Flow | None = None
        self._kept: list[Card] = []

    def keep(self, flow: Flow, cards: Iterable[Card]) -> None:
        """Keep the GPUs on which the least has to end first, unless some GPU holds the function now, or one
        is kept already.
        """
        if self._held():
            return
        large = [card for card in cards if card.memory >= flow.function.memory]
        if len(large) >= flow.function.gpus and not any(card.holds(flow) for card in large):
            self._flow = flow
            large.sort(key=lambda card: (card.others, card.pinned, card.index))
            self._kept = large[: flow.function.gpus]

    @property
    def keeps(self) -> bool:
        """Whether a GPU is kept, or was."""
        return bool(self._kept)

    def bars(self, flow: Flow, card: Card) -> bool:
        """Whether the function may not begin on this GPU, which is kept for another one; who has several GPUs
        begins nowhere meanwhile.
        """
        if flow is self._flow or not (card in self._kept or flow.function.gpus > 1):
            return False
        return self._held()

    def release(self, flow: Flow) -> None:
        """The function has begun somewhere."""
        if flow is self._flow:
            self._forget()

    def _held(self) -> bool:
        """Whether GPUs are kept, and still of use: neither they nor what waits for them has gone."""
        flow = self._flow
        if flow is None:
            return False
        waits = flow.waiting and not flow.removed and not flow.limited
        if waits and all(not card.gone and card.memory >= flow.function.memory for card in self._kept):
            return True
        self._forget()
        return False

    def _forget(self) -> None:
        self._flow, self._kept = None, []
