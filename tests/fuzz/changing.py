"""Changes inputs of the parsers in Python, as fuzz.c does for those in C. The same seed, the same inputs."""

from __future__ import annotations

import random
from collections.abc import Sequence

NUMBERS = (
    0,
    1,
    2,
    7,
    8,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0xFFFF,
    1 << 31,
    (1 << 32) - 1,
    1 << 36,
    1 << 63,
    (1 << 64) - 1,
)
LONGEST = 1 << 16


class Changing:
    """Makes inputs of sound ones: numbers, pieces and ends change, and pieces of two are put together."""

    def __init__(self, sound: Sequence[bytes], seed: int, words: Sequence[bytes] = ()) -> None:
        self._chance = random.Random(seed)
        self._sound = list(sound)
        self._words = list(words) or [b"\0"]

    def next(self) -> bytes:
        """An input that was not there before, most likely."""
        chance = self._chance
        data = bytearray(chance.choice(self._sound))
        for _ in range(chance.randrange(0, 5)):
            self._change(data)
        return bytes(data[:LONGEST])

    def _change(self, data: bytearray) -> None:
        chance = self._chance
        at = chance.randrange(len(data) + 1)
        end = min(len(data), at + chance.randrange(1, 64))
        kind = chance.randrange(8)
        if kind == 0 and data:
            data[at % len(data)] ^= 1 << chance.randrange(8)
        elif kind == 1:
            width = 1 << chance.randrange(4)
            number = chance.choice((*NUMBERS, len(data), len(data) - at)) + chance.randrange(-1, 2)
            data[at : at + width] = (number % (1 << 8 * width)).to_bytes(width, "little")
        elif kind == 2:
            del data[at:]
        elif kind == 3:
            del data[at:end]
        elif kind == 4:
            data[at:at] = data[at:end]
        elif kind == 5:
            piece = data[at:end]
            del data[at:end]
            data[chance.randrange(len(data) + 1) :][:0] = piece
        elif kind == 6:
            data[at:end] = chance.choice(self._words)
        else:
            other = chance.choice(self._sound)
            data[at:] = other[chance.randrange(len(other) + 1) :]
