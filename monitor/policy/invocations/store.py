"""What a cache manager publishes, so that several dispatchers share it and one that died is replaced.

Keys (policies.md §4.1): `gpu/<node>/<i>/status` is "busy" or "idle"; `gpu/<node>/<i>/lru` is a JSON list of
the functions that are resident, the last used first; `model/<function>/load` and `/infer` are seconds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Protocol

from .books import Books
from .interface import Function
from .state import Card


class Store(Protocol):
    """Texts by key, as in etcd: whoever connects it to one adds leases and watches."""

    def put(self, key: str, value: str) -> None:
        """Set the key."""

    def delete(self, key: str) -> None:
        """Remove the key, if it is there."""

    def items(self, prefix: str) -> Iterator[tuple[str, str]]:
        """The keys that begin so, with their values."""


class Memory:
    """A store in this process."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}

    def put(self, key: str, value: str) -> None:
        self._values[key] = value

    def delete(self, key: str) -> None:
        self._values.pop(key, None)

    def items(self, prefix: str) -> Iterator[tuple[str, str]]:
        return iter([(key, value) for key, value in self._values.items() if key.startswith(prefix)])


class Publisher:
    """Writes the state of a policy's books into a store: what changed since the last time.

    `node`: of a GPU's number, the name of its server. To be called after the decisions of an event.
    """

    def __init__(self, store: Store, node: Callable[[int], str] = lambda gpu: "0") -> None:
        self._store = store
        self._node = node
        self._written: dict[str, str] = {}

    def publish(self, policy: Books) -> None:
        """Bring the store up to date."""
        wanted: dict[str, str] = {}
        for card in policy.cards():
            key = f"gpu/{self._node(card.index)}/{card.index}"
            wanted[f"{key}/status"] = "busy" if card.open <= 0 else "idle"
            wanted[f"{key}/lru"] = json.dumps(lru(card))
        for flow in policy.flows():
            if flow.removed:  # what runs of it ends, and nobody is to hear how
                continue
            name = flow.function.name
            for what, mean in (("load", flow.load), ("infer", flow.run)):
                if mean.value is not None:
                    wanted[f"model/{name}/{what}"] = repr(mean.value)
        for key in self._written.keys() - wanted.keys():
            self._store.delete(key)
        for key, value in wanted.items():
            if self._written.get(key) != value:
                self._store.put(key, value)
        self._written = wanted


def lru(card: Card) -> list[str]:
    """The functions that are resident on this GPU, the last used first: those that run before idle ones."""
    names = [replica.flow.function.name for replica in (*card.idle, *card.busy)]
    return list(dict.fromkeys(reversed(names)))


def measured(store: Store, function: Function) -> Function:
    """The function with the load and inference times that another dispatcher measured, where it did."""
    found = dict(store.items(f"model/{function.name}/"))
    load = found.get(f"model/{function.name}/load")
    infer = found.get(f"model/{function.name}/infer")
    return function._replace(
        load=float(load) if load else function.load, run=float(infer) if infer else function.run
    )
