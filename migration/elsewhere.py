"""Module variables that lie, or may lie, elsewhere at the destination: whether anything knows where."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .abc import Movable
from .errors import Refused

LOOKS = 32  # for what knows of a variable, each through all of memory perhaps
TEXTS = 64 << 10  # how far from an image's variables its texts may lie, which nobody finds by name


@dataclass(frozen=True)
class Variable:
    """A variable of a module or library, as it is in a context of the source."""

    owner: int
    context: int
    name: str
    address: int
    size: int
    told: bool  # the program knows its address
    texts: bool = False  # its image has texts too

    @property
    def range(self) -> tuple[int, int]:
        """The first and the last address by which something may point to it, that behind its end too."""
        reach = TEXTS if self.texts else 0
        return max(self.address - reach, 1), self.address + self.size + reach


class Sought(ABC):
    """Variables, and the search for what knows where they lie."""

    def __init__(self, core: Movable, variables: Iterable[Variable]) -> None:
        self._core = core
        self._seek(variables)

    def _seek(self, variables: Iterable[Variable]) -> None:
        self._variables = list(variables)
        self._ranges = merged(each.range for each in self._variables)

    def __bool__(self) -> bool:
        return bool(self._variables)

    def look(self, data: bytes | bytearray | memoryview, what: str, anywhere: bool = False) -> None:
        """In host memory; `anywhere`: also where words are not aligned."""
        while self._ranges and (word := self._core.pointing_here(data, self._ranges, anywhere)):
            self._found(word, what)

    def look_at_pages(self, pages: Sequence[int]) -> None:
        """In the session's device memory."""
        while self._ranges and (word := self._core.pointing(list(pages), self._ranges)):
            self._found(word, "its memory")

    @abstractmethod
    def _found(self, word: int, what: str) -> None:
        """Something holds the address of a variable. Raises, or seeks that one no more."""


class Elsewhere(Sought):
    """Variables that have another address there. Each method raises Refused where that could be noticed."""

    def __len__(self) -> int:
        return len(self._variables)

    def check(self, bound: str) -> None:
        """Whether such variables may be moved at all. `bound`: why none may lie elsewhere."""
        for each in self._variables:
            if each.told:
                raise Refused(
                    f"the variable {each.name} lies elsewhere there, and the program was told its address"
                )
        if self._variables and bound:
            raise Refused(f"the variable {self._variables[0].name} lies elsewhere there, and {bound}")

    def _found(self, word: int, what: str) -> None:
        at = [each for each in self._variables if each.range[0] <= word <= each.range[1]]
        nearest = min(at, key=lambda each: abs(word - each.address)).name
        raise Refused(f"the variable {nearest} lies elsewhere there, and {what} holds its address")


class Free(Sought):
    """Variables that may lie anywhere, wherever the session goes on: whoever is found to know where one lies
    keeps it there. Where many are known, all are kept.
    """

    def __init__(self, core: Movable, variables: Iterable[Variable], bound: str) -> None:
        """`bound`: why none may lie elsewhere."""
        super().__init__(core, [each for each in variables if not (each.told or bound)])
        self._looks = LOOKS

    def left(self) -> frozenset[Variable]:
        """Those of which nothing was found that knows where they lie."""
        return frozenset(self._variables)

    def _found(self, word: int, what: str) -> None:
        self._looks -= 1
        unknown = [each for each in self._variables if not each.range[0] <= word <= each.range[1]]
        self._seek(unknown if self._looks > 0 else [])


def bound(core: Movable, alone: bool, indirect: bool, forbidden: bool) -> str:
    """Why no variable may lie elsewhere; empty: one may. `alone`: no other process shares memory with it.
    `indirect`: its code may call functions by their addresses. `forbidden`: the operator wants none.
    """
    if not alone:
        return "it shares memory with other processes"
    if len(core.devices) != 1:
        return "it has several devices"
    if forbidden:
        return "this monitor moves no session then (--move-variables same)"
    return "its code may call functions by their addresses, which may be others as well" if indirect else ""


def merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same addresses by as few ranges as can be."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return found
