"""Module variables that lie elsewhere at the destination: whether anything knows where they were."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .abc import Movable
from .errors import Refused

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


class Elsewhere:
    """Variables that have another address there. Each method raises Refused where that could be noticed."""

    def __init__(self, core: Movable, variables: Iterable[Variable]) -> None:
        self._core = core
        self._variables = list(variables)
        self._ranges = merged(each.range for each in self._variables)

    def __len__(self) -> int:
        return len(self._variables)

    def check(self, alone: bool, indirect: bool, forbidden: bool) -> None:
        """Whether such variables may be moved at all. `alone`: no other process shares memory with it.
        `indirect`: its code may call functions by their addresses. `forbidden`: the operator wants none.
        """
        if not self._variables:
            return
        for each in self._variables:
            if each.told:
                raise Refused(
                    f"the variable {each.name} lies elsewhere there, and the program was told its address"
                )
        why = ""
        if not alone:
            why = "it shares memory with other processes"
        elif len(self._core.devices) != 1:
            why = "it has several devices"
        elif forbidden:
            why = "this monitor moves no session then (--move-variables same)"
        elif indirect:
            why = "its code may call functions by their addresses, which may be others as well"
        if why:
            raise Refused(f"the variable {self._variables[0].name} lies elsewhere there, and {why}")

    def look(self, data: bytes | bytearray | memoryview, what: str, anywhere: bool = False) -> None:
        """In host memory; `anywhere`: also where words are not aligned."""
        if self._ranges:
            self._judge(self._core.pointing_here(data, self._ranges, anywhere), what)

    def look_at_pages(self, pages: Sequence[int]) -> None:
        """In the session's device memory."""
        if self._ranges:
            self._judge(self._core.pointing(list(pages), self._ranges), "its memory")

    def _judge(self, word: int, what: str) -> None:
        if word:
            raise Refused(
                f"the variable {self._nearest(word)} lies elsewhere there, and {what} holds its address"
            )

    def _nearest(self, word: int) -> str:
        at = [each for each in self._variables if each.range[0] <= word <= each.range[1]]
        return min(at, key=lambda each: abs(word - each.address)).name


def merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same addresses by as few ranges as can be."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return found
