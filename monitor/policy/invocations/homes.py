"""Which GPUs are whose, as long as others have no more to gain there."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import cycle

from .state import Card, Flow


def pack(flows: Iterable[Flow], cards: Iterable[Card]) -> dict[Flow, list[Card]]:
    """Give each function the GPU with the most room left of those that hold it, then each GPU that has none a
    function. Without GPUs nobody has one.
    """
    ordered = sorted(cards, key=lambda card: card.index)
    homes: dict[Flow, list[Card]] = {flow: [] for flow in flows}
    if not ordered:
        return homes
    room = {card: card.memory for card in ordered}
    taken = set()
    for flow, own in homes.items():
        large = [card for card in ordered if card.memory >= flow.function.memory]
        card = max(large or ordered, key=lambda one: (room[one], -one.index))
        room[card] -= flow.function.memory
        taken.add(card)
        own.append(card)
    for card, flow in zip((one for one in ordered if one not in taken), cycle(homes), strict=False):
        homes[flow].append(card)
    return homes
