"""Local memory that is taken while a function runs: alloca, stacksave, stackrestore."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from tests.helpers import paths

from . import driver
from .ptx import kernel, store

FILL = """
    mov.u32 %r10, 0; mov.u32 %r11, 0;
FILL:
    mul.wide.u32 %x12, %r10, 4; add.u64 %x12, %x12, %x10;
    st.local.u32 [%x12], %r10;
    add.u32 %r10, %r10, 1; setp.le.u32 %p0, %r10, %r0; @%p0 bra FILL;
    mov.u32 %r10, 0;
SUM:
    mul.wide.u32 %x12, %r10, 4; add.u64 %x12, %x12, %x10; cvta.local.u64 %x12, %x12;
    ld.u32 %r12, [%x12]; add.u32 %r11, %r11, %r12;
    add.u32 %r10, %r10, 1; setp.le.u32 %p0, %r10, %r0; @%p0 bra SUM;
"""
# As many words as the thread's number says, and one more.
TAKEN = f"""
    add.u32 %r10, %r0, 1; mul.wide.u32 %x11, %r10, 4; alloca.u64 %x10, %x11, 128;
    and.b64 %x13, %x10, 127; cvt.u32.u64 %r13, %x13; {FILL} add.u32 %r11, %r11, %r13;
{store("%r11")}
"""
# A megabyte in all, a kilobyte at a time.
AGAIN = """
    mov.u32 %r10, 0; mov.u64 %x11, 1024;
AGAIN:
    stacksave.u64 %x12; alloca.u64 %x10, %x11; st.local.u32 [%x10], %r10; stackrestore.u64 %x12;
    add.u32 %r10, %r10, 1; setp.lt.u32 %p0, %r10, 1024; @%p0 bra AGAIN;
""" + store("%r10")
ERRORS = {
    "more than there is": ("mov.u64 %x11, 0x100000000; alloca.u64 %x10, %x11;", driver.STACK_ERROR),
    "nearly all there can be": ("mov.u64 %x11, -4; alloca.u64 %x10, %x11;", driver.STACK_ERROR),
    "restored above": (
        "stacksave.u64 %x12; add.u64 %x12, %x12, 0x10000000; stackrestore.u64 %x12;",
        driver.ILLEGAL_ADDRESS,
    ),
    "restored below": (
        "stacksave.u64 %x12; sub.u64 %x12, %x12, 0x10000000; stackrestore.u64 %x12;",
        driver.ILLEGAL_ADDRESS,
    ),
    "restored crookedly": (
        "mov.u64 %x11, 64; stacksave.u64 %x12; alloca.u64 %x10, %x11; st.local.u32 [%x10], 1;"
        "stacksave.u64 %x13; add.u64 %x12, %x13, 8; stackrestore.u64 %x12;",
        driver.ILLEGAL_ADDRESS,
    ),
}


def check_all() -> None:
    for barrier in ("", "    bar.sync 0;\n"):
        out = driver.Buffer(np.zeros(64, np.uint32))
        driver.Module(kernel(barrier + TAKEN)).launch("k", out, 0, block=(64,))
        assert out.read().tolist() == [n * (n + 1) // 2 for n in range(64)]
        for align in (8192, 16384):
            aligned = TAKEN.replace("128", str(align)).replace("127", str(align - 1))
            driver.Module(kernel(barrier + aligned)).launch("k", out, 0, block=(64,))
            assert out.read().tolist() == [n * (n + 1) // 2 for n in range(64)]
        driver.Module(kernel(barrier + AGAIN)).launch("k", out, 0, block=(64,))
        assert (out.read() == 1024).all()
        zeros = np.zeros(2, np.uint32)
        for name, (body, status) in ERRORS.items():
            with driver.own_context(), pytest.raises(driver.CudaError) as caught:
                driver.run(kernel(barrier + body + "st.global.u64 [%x0], %x10;", pointers=1), "k", zeros)
            assert caught.value.status == status, name


def test_alloca() -> None:
    check_all()


@pytest.mark.slow
def test_alloca_where_kernels_are_held_to_their_memory() -> None:
    code = "from tests.ptx.test_alloca import check_all; check_all()"
    settings = os.environ | {"GPUFERRY_SIM_CHECK": "1"}
    subprocess.run([sys.executable, "-c", code], cwd=paths.ROOT, env=settings, check=True, timeout=240)


@pytest.mark.parametrize(
    "code", ["alloca.u64 %x10, %x11, 3;", "alloca.f32 %f0, %x11;", "stackrestore.u32 %r1;"]
)
def test_wrong_forms_are_refused(code: str) -> None:
    with pytest.raises(driver.CudaError) as caught:
        driver.Module(kernel(code)).launch("k", 0, 0)
    assert caught.value.status == driver.INVALID_PTX
