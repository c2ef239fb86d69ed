"""Where replicas' memory is, and who moves it: what the engine needs of a GPU server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from ..policy.invocations import Limit
from .replica import Replica


class Where(NamedTuple):
    """Where a replica's memory is."""

    gpu: int
    resident: bool
    also: tuple[int, ...] = ()  # its other GPUs, if it has several

    @property
    def gpus(self) -> tuple[int, ...]:
        """The ordinals of all GPUs of the program, whether its memory is there or away: `gpu` first."""
        return (self.gpu, *self.also)


class Gpus(NamedTuple):
    """What the GPU server has."""

    memory: Mapping[int, int]  # bytes, by ordinal
    elastic: bool  # who is sent away leaves room: it need not end
    more: bool = False  # GPUs are there of which it is not known yet if they work
    promised: Mapping[int, int] = {}  # bytes that programs may be granted together, where that is known
    usual: int = 0  # bytes that a program is granted which asks for none; 0: not known
    limit: Limit = Limit()  # of all replicas together


class Memory(Protocol):
    """Moves the memory of replicas, and knows where it is: the GPU server."""

    @property
    def gpus(self) -> Gpus | None:
        """The GPUs; None: they are not known."""

    @property
    def tells(self) -> bool:
        """Whether it is heard: what it has not said of a replica is not so."""

    def bring(self, replica: Replica) -> None:
        """Bring the replica's memory back to the GPU where it was last."""

    def move(self, replica: Replica, gpu: int) -> None:
        """Bring the replica's memory to this GPU."""

    def send(self, replica: Replica) -> None:
        """Send the replica's memory away from its GPU."""

    def where(self, replica: Replica) -> Where | None:
        """Where the replica's memory is; None: it has none, or that is not known."""

    def when_back(self, replica: Replica, gpu: int, call: Callable[[], None]) -> None:
        """Call `call` once the replica's memory is on this GPU, is said to stay on another, or cannot be
        known.
        """
