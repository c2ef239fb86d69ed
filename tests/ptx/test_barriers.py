"""bar and barrier: ids, counts, arrivals, reductions, exits, divergence."""

from __future__ import annotations

import numpy as np
import pytest

from . import driver
from .ptx import UNITS, kernel, load, store

# %r20 is the tile, %r21 the thread's place in it.
TILE = """
    .shared .align 4 .b8 tile[4096];
    mov.u32 %r20, tile;
    shl.b32 %r21, %r0, 2;
    add.u32 %r21, %r20, %r21;
"""


@pytest.mark.parametrize(
    "form", ["bar.sync 0", "barrier.sync 3", "barrier.sync.aligned 1", "bar.cta.sync 15", "bar.sync 2, 128"]
)
@pytest.mark.parametrize("block", [(128,), (16, 8), (4, 4, 8)])
def test_reverse_through_shared_memory(form: str, block: tuple[int, ...]) -> None:
    body = f"""{TILE}
    mov.u32 %r13, %ctaid.x;
    mad.lo.u32 %r1, %r13, 128, %r0;
{load("%r10")}
    st.shared.u32 [%r21], %r10;
    {form};
    sub.u32 %r11, 127, %r0;
    shl.b32 %r11, %r11, 2;
    add.u32 %r11, %r20, %r11;
    ld.shared.u32 %r12, [%r11];
{store("%r12")}
    """
    data = np.arange(512, dtype=np.uint32)
    out, _ = driver.run(kernel(body), "k", np.zeros_like(data), data, grid=(4,), block=block)
    assert (out.reshape(4, 128) == data.reshape(4, 128)[:, ::-1]).all()


def test_many_rounds() -> None:
    """A running sum that every thread hands to the next, one barrier for each."""
    body = f"""{TILE}
    st.shared.u32 [%r21], 0;
    mov.u32 %r10, 0;
loop:
    bar.sync 0;
    setp.eq.u32 %p0, %r10, %r0;
    setp.eq.and.u32 %p1, %r10, 0, %p0;
    @%p1 st.shared.u32 [%r21], 1;
    not.pred %p2, %p1;
    and.pred %p2, %p2, %p0;
    @%p2 ld.shared.u32 %r11, [%r21+-4];
    @%p2 add.u32 %r11, %r11, 1;
    @%p2 st.shared.u32 [%r21], %r11;
    add.u32 %r10, %r10, 1;
    setp.lt.u32 %p3, %r10, 100;
    @%p3 bra loop;
    ld.shared.u32 %r12, [%r21];
{store("%r12")}
    """
    (out,) = driver.run(kernel(body, pointers=1), "k", np.zeros(100, np.uint32), block=(100,))
    assert (out == np.arange(1, 101)).all()


def test_producers_arrive_consumers_wait() -> None:
    """Warps 0 and 1 produce and only arrive; warps 2 and 3 wait for them."""
    body = f"""{TILE}
    setp.ge.u32 %p0, %r0, 64;
    @%p0 bra consume;
    add.u32 %r10, %r0, 1000;
    st.shared.u32 [%r21], %r10;
    bar.arrive 1, 128;
    bra end;
consume:
    bar.sync 1, 128;
    ld.shared.u32 %r11, [%r21+-256];
    sub.u32 %r12, %r0, 64;
{store("%r11", index="%r12")}
end:
    """
    (out,) = driver.run(kernel(body, pointers=1), "k", np.zeros(64, np.uint32), block=(128,))
    assert (out == np.arange(1000, 1064)).all()


def test_two_barriers_at_once() -> None:
    """Halves of a block at barriers of their own."""
    body = f"""{TILE}
    setp.ge.u32 %p0, %r0, 64;
    st.shared.u32 [%r21], %r0;
    @%p0 bra upper;
    bar.sync 1, 64;
    xor.b32 %r10, %r21, 252;
    bra both;
upper:
    bar.sync 2, 64;
    xor.b32 %r10, %r21, 4;
both:
    sub.u32 %r13, %r10, %r20;
    add.u32 %r10, %r20, %r13;
    ld.shared.u32 %r11, [%r10];
{store("%r11")}
    """
    (out,) = driver.run(kernel(body, pointers=1), "k", np.zeros(128, np.uint32), block=(128,))
    index = np.arange(128)
    assert (out == np.where(index < 64, index ^ 63, index ^ 1)).all()


@pytest.mark.parametrize(("operation", "expected"), [("popc.u32", 43), ("and.pred", 0), ("or.pred", 1)])
def test_reductions(operation: str, expected: int) -> None:
    predicate = "    rem.u32 %r10, %r0, 3;\n    setp.eq.u32 %p0, %r10, 0;\n"
    if operation.startswith("popc"):
        body = f"{predicate}    bar.red.{operation} %r11, 0, %p0;\n{store('%r11')}"
    else:
        vote = f"    barrier.red.{operation} %p1, 0, %p0;\n    selp.u32 %r11, 1, 0, %p1;\n"
        body = predicate + vote + store("%r11")
    (out,) = driver.run(kernel(body, pointers=1), "k", np.full(128, 99, np.uint32), block=(128,))
    assert (out == expected).all()


def test_a_reduction_of_all_in_a_partial_warp() -> None:
    body = f"""
    setp.lt.u32 %p0, %r0, 100;
    barrier.red.and.pred %p1, 0, %p0;
    selp.u32 %r11, 1, 0, %p1;
    {store("%r11")}
    """
    (out,) = driver.run(kernel(body, pointers=1), "k", np.full(100, 99, np.uint32), block=(100,))
    assert (out == 1).all()


@pytest.mark.parametrize("unit", UNITS)
def test_a_count_is_of_whole_warps(unit: str) -> None:
    """Of 48 threads the last 16 count as 32, beside the others and by themselves."""
    body = f"""{UNITS[unit]}{TILE}
    st.shared.u32 [%r21], %r0;
    bar.sync 1, 64;
    sub.u32 %r10, 47, %r0;
    shl.b32 %r10, %r10, 2;
    add.u32 %r10, %r20, %r10;
    ld.shared.u32 %r11, [%r10];
    setp.lt.u32 %p0, %r0, 32;
    @%p0 bra end;
    bar.sync 2, 32;
end:
{store("%r11")}
    """
    (out,) = driver.run(kernel(body, pointers=1), "k", np.zeros(48, np.uint32), block=(48,))
    assert out.tolist() == list(range(48))[::-1]


def test_exited_threads_are_not_waited_for() -> None:
    body = f"""
    and.b32 %r10, %r0, 1;
    setp.eq.u32 %p0, %r10, 1;
    @%p0 exit;
    bar.sync 0;
{store("%r0")}
    """
    (out,) = driver.run(kernel(body, pointers=1), "k", np.full(128, 999, np.uint32), block=(128,))
    assert (out[::2] == np.arange(0, 128, 2)).all()
    assert (out[1::2] == 999).all()


def test_divergent_places_of_one_barrier() -> None:
    """Threads of a warp reach the same barrier by different instructions."""
    body = f"""
    and.b32 %r10, %r0, 1;
    setp.eq.u32 %p0, %r10, 1;
    @%p0 bra odd;
    bar.sync 0;
    bra both;
odd:
    bar.sync 0;
both:
{store("%r0")}
    """
    (out,) = driver.run(kernel(body, pointers=1), "k", np.zeros(64, np.uint32), block=(64,))
    assert (out == np.arange(64)).all()


def test_deadlock_is_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    body = """
    setp.lt.u32 %p0, %r0, 32;
    @%p0 bra low;
    bar.sync 1;
    bra end;
low:
    bar.sync 2;
end:
    """
    with driver.own_context(), pytest.raises(driver.CudaError) as caught:
        driver.Module(kernel(body, pointers=1)).launch("k", 0, block=(64,))
    assert caught.value.status == driver.LAUNCH_FAILED
    assert "deadlock" in capfd.readouterr().err
