"""Room for a function that is passed over because it does not fit beside what runs."""

from __future__ import annotations

from collections.abc import Iterable

from .state import Card, Flow


class Room:
    """One GPU that is kept for one function: no other begins there, so what runs ends, and then it fits.

    Without this, small functions that are always busy would keep a large one out for ever where several
    invocations may run on a GPU at once. When it is passed over for too long is the policy's to say.
    """

    def __init__(self) -> None:
        self._flow: Flow | None = None
        self._card: Card | None = None

    def keep(self, flow: Flow, cards: Iterable[Card]) -> None:
        """Keep the GPU on which the least has to end first, unless some GPU holds the function now, or one is
        kept already.
        """
        if self._held():
            return
        large = [card for card in cards if card.memory >= flow.function.memory]
        if large and not any(card.holds(flow) for card in large):
            self._flow = flow
            self._card = min(large, key=lambda card: (card.others, card.pinned, card.index))

    def keeps(self, card: Card) -> bool:
        """Whether this GPU is kept, or was."""
        return card is self._card

    def bars(self, flow: Flow, card: Card) -> bool:
        """Whether the function may not begin on this GPU, which is kept for another one."""
        return card is self._card and flow is not self._flow and self._held()

    def release(self, flow: Flow) -> None:
        """The function has begun somewhere."""
        if flow is self._flow:
            self._flow = self._card = None

    def _held(self) -> bool:
        """Whether a GPU is kept, and still of use: neither it nor what waits for it has gone."""
        flow, card = self._flow, self._card
        if flow is None or card is None:
            return False
        waits = flow.waiting and not flow.removed and not flow.limited
        if waits and not card.gone and card.memory >= flow.function.memory:
            return True
        self._flow = self._card = None
        return False
