"""Grids: blocks that wait for each other, several at once from several threads, shapes at the limits."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from . import driver
from .ptx import HEADER, entry, kernel, load, store

GRID_BARRIER = """
    setp.ne.u32 %p0, %r0, 0;
    mov.u32 %r10, 0;
    mov.u32 %r11, %nctaid.x;
round:
    bar.sync 0;
    @%p0 bra together;
    atom.global.add.u32 %r12, [%x1], 1;
    add.u32 %r13, %r10, 1;
    mul.lo.u32 %r13, %r13, %r11;
wait:
    ld.acquire.gpu.global.u32 %r14, [%x1];
    setp.lt.u32 %p1, %r14, %r13;
    @%p1 bra wait;
together:
    bar.sync 0;
    add.u32 %r10, %r10, 1;
    setp.lt.u32 %p2, %r10, 3;
    @%p2 bra round;
"""


@pytest.mark.parametrize("blocks", [2, 6, 108])
def test_blocks_that_wait_for_each_other(blocks: int) -> None:
    """More of them than there are threads in the pool, and one for each of the device's multiprocessors."""
    out, arrived = driver.run(
        kernel(GRID_BARRIER + store("%r10")), "k", np.zeros(64 * blocks, np.uint32), np.zeros(1, np.uint32),
        grid=(blocks,), block=(64,),
    )  # fmt: skip
    assert (out == 3).all()
    assert arrived[0] == 3 * blocks


REDUCTION = f"""
    .shared .align 4 .b8 sums[128];
{load("%r10")}
    mov.u32 %r11, 16;
loop:
    shfl.sync.bfly.b32 %r12, %r10, %r11, 0x1f, 0xffffffff;
    add.u32 %r10, %r10, %r12;
    shr.u32 %r11, %r11, 1;
    setp.ne.u32 %p0, %r11, 0;
    @%p0 bra loop;
    shr.u32 %r13, %r0, 5;
    mov.u32 %r14, sums;
    mad.lo.u32 %r15, %r13, 4, %r14;
    st.shared.u32 [%r15], %r10;
    bar.sync 0;
    and.b32 %r16, %r0, 3;
    mad.lo.u32 %r15, %r16, 4, %r14;
    ld.shared.u32 %r17, [%r15];
{store("%r17")}
"""


def test_many_threads_and_streams() -> None:
    """Fiber kernels, loop kernels and faulty kernels of other contexts at once."""
    module = driver.Module(HEADER + entry(REDUCTION, "reduce") + entry(load("%r10") + store("%r10"), "copy"))
    context = ctypes.c_void_p()
    driver.call("cuCtxGetCurrent", ctypes.byref(context))

    def work(seed: int) -> None:
        driver.call("cuCtxSetCurrent", context)
        stream = ctypes.c_void_p()
        driver.call("cuStreamCreate", ctypes.byref(stream), 1)
        rng = np.random.default_rng(seed)
        for _ in range(12):
            blocks = int(rng.integers(1, 30))
            data = rng.integers(0, 1000, (blocks, 128), dtype=np.uint32)
            out, source = driver.Buffer(np.zeros_like(data)), driver.Buffer(data)
            module.launch("reduce", out, source, grid=(blocks,), block=(128,), stream=stream)
            sums = data.reshape(blocks, 4, 32).sum(axis=2, dtype=np.uint32)
            assert (out.read().reshape(blocks, 32, 4) == sums[:, None, :]).all()
            module.launch("copy", out, source, grid=(blocks,), block=(128,), stream=stream)
            assert (out.read() == data).all()
        driver.call("cuStreamDestroy_v2", stream)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))


@pytest.mark.parametrize(
    ("grid", "block"),
    [((65536, 1), (1,)), ((1, 65535), (1,)), ((1, 1, 65535), (1,)), ((2, 3, 4), (64, 4, 4))],
)
def test_shapes(grid: tuple[int, ...], block: tuple[int, ...]) -> None:
    (out,) = driver.run(
        kernel("    red.global.add.u32 [%x0], 1;", pointers=1),
        "k",
        np.zeros(1, np.uint32),
        grid=grid,
        block=block,
    )
    assert out[0] == np.prod(grid) * np.prod(block)


@pytest.mark.parametrize("directive", ["8, 8, 2", "8", "4, 16"])
def test_a_block_that_is_required(directive: str) -> None:
    """In each direction, not as so many threads."""
    text = kernel("    red.global.add.u32 [%x0], 1;", pointers=1, directives=f".reqntid {directive}")
    required = [*map(int, directive.split(", ")), 1, 1][:3]
    out = driver.Buffer(np.zeros(1, np.uint32))
    module = driver.Module(text)
    module.launch("k", out, block=required)
    assert out.read()[0] == np.prod(required)
    for other in ((1, *required[:2]), (1, int(np.prod(required))), (64, 2)):
        if [*other, 1, 1][:3] != required:
            with pytest.raises(driver.CudaError) as caught:
                module.launch("k", out, block=other)
            assert caught.value.status == driver.INVALID_VALUE


def test_a_full_block_of_fibers() -> None:
    body = f"    bar.sync 0;\n    vote.sync.ballot.b32 %r10, 1, 0xffffffff;\n{store('%r10')}"
    (out,) = driver.run(kernel(body, pointers=1), "k", np.zeros(8192, np.uint32), grid=(8,), block=(1024,))
    assert (out == 0xFFFFFFFF).all()
