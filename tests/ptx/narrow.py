"""Floats of eight bits and fewer: the numbers of each format, from what the PTX ISA says of its bits."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Narrow:
    """A format of `exponent` and `fraction` bits. `special`: codes of magnitudes that are no numbers."""

    exponent: int
    fraction: int
    bias: int
    special: frozenset[int] = frozenset()

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.fraction

    def value(self, code: int) -> float:
        """Of a magnitude."""
        power, fraction = code >> self.fraction, code & (1 << self.fraction) - 1
        if power == 0:
            return math.ldexp(fraction, 1 - self.bias - self.fraction)
        return math.ldexp(fraction + (1 << self.fraction), power - self.bias - self.fraction)

    @property
    def numbers(self) -> list[int]:
        return [code for code in range(1 << self.bits - 1) if code not in self.special]

    def round(self, size: float, mode: str) -> int:
        """The code of a magnitude, the largest for what is beyond."""
        values = {code: self.value(code) for code in self.numbers}
        below = max((code for code in values if values[code] <= size), key=values.__getitem__)
        above = min((code for code in values if values[code] >= size), key=values.__getitem__, default=below)
        if mode == "rz" or above == below:
            return below
        low, high = size - values[below], values[above] - size
        if low == high:
            return below if below % 2 == 0 else above
        return below if low < high else above


FORMATS = {
    "e4m3": Narrow(4, 3, 7, frozenset({0x7F})),
    "e5m2": Narrow(5, 2, 15, frozenset({0x7C, 0x7D, 0x7E, 0x7F})),
    "e2m1": Narrow(2, 1, 1),
    "e2m3": Narrow(2, 3, 1),
    "e3m2": Narrow(3, 2, 3),
}
