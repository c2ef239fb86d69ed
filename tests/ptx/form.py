"""What a form of an instruction is to a program of structured.py: how it is written, and what it computes.

The two are side by side and share nothing but numbers; `value` works on numpy's arrays, of all threads of a
block at once. structured.py says where forms may stand, forms.py which there are.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

Words = np.ndarray
Here = np.ndarray  # which threads

INPUTS = 64  # words, that any thread reads
AREA = 32  # bytes of each thread's own in shared, global and local memory
SIZES = (1, 2, 4, 8, 16)  # of elements that lie side by side, a thread's next to its neighbours'
MOST_THREADS = 256  # of a launch
# Where a thread finds what is behind the inputs, in bytes.
WORLD, HANDLES = 256, 264


@dataclass(frozen=True)
class Names:
    """The registers of a statement, its mask, and a number of its own."""

    d: list[str]
    a: list[str]
    mask: str
    k: int

    @property
    def choices(self) -> random.Random:
        return random.Random(self.k)


@dataclass
class Memory:
    """Of a block's threads: bytes of each."""

    areas: dict[str, np.ndarray]  # shared, global: [thread][AREA]
    rows: dict[tuple[str, int], np.ndarray]  # the same and an element's size: [thread][size]
    gathered: dict[str, np.ndarray]  # by operation, for the block
    surfaces: dict[str, np.ndarray]


@dataclass
class Scene:
    """Where a statement is executed."""

    block: int
    size: int
    here: Here
    k: int
    inputs: Words
    memory: Memory
    local: np.ndarray  # [thread][AREA], of the function

    @property
    def choices(self) -> random.Random:
        return random.Random(self.k)

    @property
    def threads(self) -> list[int]:
        return [int(each) for each in np.flatnonzero(self.here)]

    def warps(self) -> Iterator[tuple[int, list[int]]]:
        """The first thread of each warp, and those that are here."""
        for first in range(0, self.size, 32):
            members = [each for each in range(first, min(first + 32, self.size)) if self.here[each]]
            if members:
                yield first, members

    def nothing(self) -> Words:
        return np.zeros(self.size, np.uint32)


@dataclass(frozen=True)
class Form:
    """`where`: `thread` anywhere; `lanes` anywhere, told to those of the mask; `warp` and `block` where all
    threads come and none has ended, a warp's in whole warps."""

    name: str
    where: str
    results: int
    given: int
    code: Callable[[Names], str]
    value: Callable[..., Sequence[Words]]  # of a scene and as many words as are given


def mixed(to: Sequence[str], words: Sequence[str]) -> str:
    """PTX that makes one word or two of many."""
    lines = [f"mov.u32 {each}, 0;" for each in to]
    for index, word in enumerate(words):
        d = to[index % len(to)]
        lines.append(f"mad.lo.u32 {d}, {d}, 33, {word};")
    return " ".join(lines)


def mix(count: int, words: Sequence[Words]) -> list[Words]:
    made = [np.zeros_like(words[0]) for _ in range(count)]
    for index, word in enumerate(words):
        made[index % count] = made[index % count] * np.uint32(33) + word
    return made
