"""Where replicas' memory is, and who moves it: what the engine needs of a GPU server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from .replica import Replica


class Where(NamedTuple):
    """Where a replica's memory is."""

    gpu: int
    resident: bool


class Gpus(NamedTuple):
    """What the GPU server has."""

    memory: Mapping[int, int]  # bytes, by ordinal
    elastic: bool  # who is sent away leaves room: it need not end


class Memory(Protocol):
    """Who moves replicas' memory: the GPU server."""

    @property
    def gpus(self) -> Gpus | None:
        """What it has; None: nobody knows."""

    def bring(self, replica: Replica) -> None:
        """It comes back to its GPU."""

    def move(self, replica: Replica, gpu: int) -> None:
        """It comes to this GPU."""

    def send(self, replica: Replica) -> None:
        """It leaves its GPU."""

    def where(self, replica: Replica) -> Where | None:
        """Where it is; None: nobody knows."""

    def when_back(self, replica: Replica, gpu: int, call: Callable[[], None]) -> None:
        """Call this once it is on this GPU, or stays on another, or nobody can tell."""
