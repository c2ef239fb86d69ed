"""Which lane has what of a matrix, as CuTe writes it (cute/atom/mma_traits_sm80.hpp and its neighbours, which
say in words what the figures of the PTX ISA draw): sizes and strides of a lane's number and of a position
make an element's place, row + rows * column.
"""

from __future__ import annotations

import numpy as np

Mode = tuple[tuple[int, ...], tuple[int, ...]]  # sizes and strides
Layout = tuple[Mode, Mode]  # of a lane's number, and of positions

# C and D of 16x8.
SUMS: Layout = (((4, 8), (32, 1)), ((2, 2), (16, 8)))


def places(mode: Mode) -> list[int]:
    """What a layout makes of the numbers below its size, whose first digit turns fastest."""
    found = [0]
    for size, stride in zip(*mode, strict=True):
        found = [place + stride * digit for digit in range(size) for place in found]
    return found


def packed(codes: list[list[int]], bits: int) -> np.ndarray:
    """A lane's elements in 32-bit words."""
    words = np.zeros((len(codes), len(codes[0]) * bits // 32), np.uint64)
    for lane, each in enumerate(codes):
        for position, code in enumerate(each):
            words[lane, position * bits // 32] |= np.uint64(int(code) << position * bits % 32)
    return words.astype(np.uint32)


def elements(matrix: np.ndarray, layout: Layout) -> list[list[int]]:
    """A lane's elements of a matrix."""
    rows = matrix.shape[0]
    lanes, positions = (places(mode) for mode in layout)
    return [[matrix[(lane + at) % rows, (lane + at) // rows] for at in positions] for lane in lanes]
