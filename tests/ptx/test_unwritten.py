"""Registers begin as zero where a program may see it, no others: each costs LLVM a walk over all blocks."""

from __future__ import annotations

import numpy as np
import pytest
from gpuferry.native.simdevice.ptx import parse
from gpuferry.native.simdevice.ptx.compiler import kernel_ir
from gpuferry.native.simdevice.ptx.kernel import KernelContext

from . import driver
from .ptx import UNITS, kernel, store

FIRST = "    setp.eq.u32 %p0, %r0, 0;\n"
BODIES = {
    "nowhere": ("    add.u32 %r10, %r10, 7;\n", [7, 7]),
    "on one side": (FIRST + "    @%p0 bra past;\n    mov.u32 %r10, 3;\npast:\n", [0, 3]),
    "under a guard": (FIRST + "    @%p0 mov.u32 %r10, 3;\n", [3, 0]),
    "a round before": (
        "    mov.u32 %r11, 0;\nagain:\n    add.u32 %r10, %r10, %r12;\n    mov.u32 %r12, 4;\n"
        "    add.u32 %r11, %r11, 1;\n    setp.lt.u32 %p0, %r11, 3;\n    @%p0 bra again;\n",
        [8, 8],
    ),
    "in parts": (
        "    mov.b64 {%r10, _}, %x9;\n    mov.b64 {_, %r11}, %x9;\n    or.b32 %r10, %r10, %r11;\n",
        [0, 0],
    ),
}
WRITTEN = (
    FIRST + "    @%p0 bra other;\n    mov.u32 %r10, 3;\n    bra past;\nother:\n    mov.u32 %r10, 4;\npast:\n"
)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("where", BODIES)
def test_read_before_written(where: str, unit: str) -> None:
    body, expected = BODIES[where]
    out = driver.Buffer(np.zeros(2, np.uint32))
    text = kernel(UNITS[unit] + body + store("%r10"), pointers=1)
    driver.Module(text).launch("k", out, grid=(1,), block=(2,))
    assert list(out.read()) == expected


@pytest.mark.parametrize("unit", UNITS)
def test_written_before_read(unit: str) -> None:
    module = parse(kernel(UNITS[unit] + WRITTEN + store("%r10"), pointers=1))
    text = kernel_ir(KernelContext(module, module.kernel("k"), False))
    assert "%r0.r10" in text
    assert "zeroinitializer, ptr %r" not in text
