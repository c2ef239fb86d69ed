"""Times products of matrices by mma and wmma on the driver at hand, and the same in C on one thread: a line
`name seconds twin` each, processor time of all cores for 10^9 multiplications and additions.

Its argument is the library made of twin.c.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from tests.ptx import driver

ROUNDS = 5
BLOCKS, WARPS, REPEATS, STREAMS = 16, 4, 50, 4  # STREAMS: products that do not depend on each other
TWIN_ROUNDS = 20_000
MUCH = 10**9


@dataclass(frozen=True)
class Product:
    """`registers`: of A, B and of C."""

    name: str
    types: str
    shape: tuple[int, int, int]
    registers: tuple[int, int, int]
    floats: bool

    @property
    def operations(self) -> int:
        rows, columns, depth = self.shape
        return rows * columns * depth * BLOCKS * WARPS * REPEATS * STREAMS


PRODUCTS = (
    Product("mma_f16", "f32.f16.f16.f32", (16, 8, 16), (4, 2, 4), True),
    Product("mma_bf16", "f32.bf16.bf16.f32", (16, 8, 16), (4, 2, 4), True),
    Product("mma_tf32", "f32.tf32.tf32.f32", (16, 8, 8), (4, 2, 4), True),
    Product("mma_s8", "s32.s8.s8.s32", (16, 8, 32), (4, 2, 4), False),
    Product("wmma_f16", "f32.f32", (16, 16, 16), (8, 8, 8), True),
    Product("wmma_bf16", "f32.bf16.bf16.f32", (16, 16, 16), (4, 4, 8), True),
    Product("wmma_tf32", "f32.tf32.tf32.f32", (16, 16, 8), (4, 4, 8), True),
    Product("wmma_s8", "s32.s8.s8.s32", (16, 16, 16), (2, 2, 8), False),
)


def _vector(letter: str, first: int, count: int) -> str:
    return "{" + ", ".join(f"%{letter}{first + each}" for each in range(count)) + "}"


def _text(product: Product) -> str:
    """A kernel of a pointer to one word a thread, which says that something was computed."""
    rows, columns, depth = product.shape
    a, b, c = product.registers
    letter = "f" if product.floats else "c"
    shape = f"m{rows}n{columns}k{depth}"
    name = f"mma.sync.aligned.{shape}.row.col.{product.types}"
    if product.name.startswith("wmma"):
        name = f"wmma.mma.sync.aligned.row.col.{shape}.{product.types}"
    lines = []
    for stream in range(STREAMS):
        sums = _vector(letter, stream * c, c)
        lines.append(f"{name} {sums}, {_vector('a', 0, a)}, {_vector('b', 0, b)}, {sums};")
    begins = "".join(f" add.u32 %{x}{i}, %t, {i};" for x, n in (("a", a), ("b", b)) for i in range(n))
    kind = "f32" if product.floats else "b32"
    steps = "\n".join(lines)
    return f"""
.visible .entry {product.name}(.param .u64 out)
{{
    .reg .pred %p; .reg .b32 %t, %i, %a<8>, %b<8>, %c<{STREAMS * c}>; .reg .f32 %f<{STREAMS * c}>;
    .reg .b64 %x, %o;
    mov.u32 %t, %tid.x;{begins}
    mov.u32 %i, {REPEATS};
again:
{steps}
    sub.u32 %i, %i, 1;
    setp.ne.u32 %p, %i, 0;
    @%p bra again;
    ld.param.u64 %x, [out]; mul.wide.u32 %o, %t, 4; add.u64 %x, %x, %o;
    st.global.{kind} [%x], %{letter}0;
    ret;
}}
"""


def shortest(run: Callable[[], object]) -> float:
    """The least processor time that a call takes, in seconds."""
    run()
    times = []
    for _ in range(ROUNDS):
        began = time.process_time()
        run()
        times.append(time.process_time() - began)
    return min(times)


def twin_seconds(twin: ctypes.CDLL, product: Product) -> float:
    """Seconds that the twin in C takes for the same number of operations."""
    rows, columns, depth = product.shape
    kind, sums = (np.float32, np.float32) if product.floats else (np.int8, np.int32)
    arrays = np.ones((rows, depth), kind), np.ones((columns, depth), kind), np.zeros((rows, columns), sums)
    pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in arrays]
    function = twin.of_floats if product.floats else twin.of_bytes
    seconds = shortest(lambda: function(*pointers, rows, columns, depth, TWIN_ROUNDS))
    return seconds * MUCH / (rows * columns * depth * TWIN_ROUNDS)


def main() -> None:
    module = driver.Module(".version 8.0\n.target sm_80\n.address_size 64\n" + "".join(map(_text, PRODUCTS)))
    out = driver.Buffer(np.zeros(32 * WARPS, np.uint32))
    twin = ctypes.CDLL(sys.argv[1])
    for product in PRODUCTS:
        run = partial(module.launch, product.name, out, grid=(BLOCKS,), block=(32 * WARPS,))
        seconds = shortest(run) * MUCH / product.operations
        print(product.name, seconds, twin_seconds(twin, product), flush=True)


if __name__ == "__main__":
    main()
