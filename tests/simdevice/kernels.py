"""Small PTX modules, and how to launch what is in them."""

from __future__ import annotations

import ctypes
import os
from typing import Any

import pytest

from .driver import Driver

needs_holes = pytest.mark.skipif(
    os.environ.get("GPUFERRY_SANITIZER") == "thread",
    reason="under TSan device memory lies among all other, which may be where nothing is expected",
)
PTX = b"""
.version 8.0
.target sm_80
.address_size 64

.global .align 8 .u64 counter = 5;
.const .align 4 .b32 factors[2] = {3, 4};
.global .align 8 .u64 counter_address = counter;

// out[i] = in[i] * factors[0] + add, for i < count
.visible .entry scale(.param .u64 out, .param .u64 in, .param .u32 count, .param .u32 add)
{
    .reg .pred %p;
    .reg .b32 %r<8>;
    .reg .b64 %d<5>;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r1, %r1, %r2, %r3;
    ld.param.u32 %r4, [count];
    setp.ge.u32 %p, %r1, %r4;
    @%p bra done;
    ld.param.u64 %d1, [in];
    ld.param.u64 %d2, [out];
    mul.wide.u32 %d3, %r1, 4;
    add.u64 %d1, %d1, %d3;
    add.u64 %d2, %d2, %d3;
    ld.global.u32 %r5, [%d1];
    ld.const.u32 %r6, [factors];
    ld.param.u32 %r7, [add];
    mad.lo.u32 %r5, %r5, %r6, %r7;
    st.global.u32 [%d2], %r5;
done:
    ret;
}

// counter += 1 by every thread
.visible .entry count()
{
    .reg .b64 %d<3>;
    mov.u64 %d1, counter;
    atom.global.add.u64 %d2, [%d1], 1;
    ret;
}

.visible .entry store(.param .u64 to, .param .u32 value)
{
    .reg .b32 %r1;
    .reg .b64 %d1;
    ld.param.u64 %d1, [to];
    ld.param.u32 %r1, [value];
    st.global.u32 [%d1], %r1;
    ret;
}

.visible .entry bounded(.param .u64 to)
.maxntid 64, 1, 1
{
    .shared .align 16 .b8 space[1024];
    .reg .b32 %r1;
    .reg .b64 %d1;
    mov.u32 %r1, %tid.x;
    st.shared.u32 [space], %r1;
    ld.param.u64 %d1, [to];
    st.global.u32 [%d1], %r1;
    ret;
}

.visible .entry trap()
{
    trap;
}
"""

MEET = b"""
.version 8.0
.target sm_80
.address_size 64

// comes to the others, and waits until all are there
.visible .entry meet(.param .u64 at, .param .u32 all)
{
    .reg .pred %p;
    .reg .b32 %r<3>;
    .reg .b64 %d1;
    ld.param.u64 %d1, [at];
    ld.param.u32 %r1, [all];
    red.global.add.u32 [%d1], 1;
again:
    nanosleep.u32 1000000;
    ld.volatile.global.u32 %r2, [%d1];
    setp.lt.u32 %p, %r2, %r1;
    @%p bra again;
    ret;
}
"""


class Config(ctypes.Structure):
    _fields_ = [
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_uint64),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    ]


class Attribute(ctypes.Structure):
    _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_uint * 16)]


def pack(*values: Any) -> Any:
    """kernelParams: pointers to the arguments, integers above 2**32 as 64-bit ones."""
    cells = [v if isinstance(v, ctypes._SimpleCData) else ctypes.c_uint64(v) for v in values]
    array = (ctypes.c_void_p * max(len(cells), 1))(*[ctypes.addressof(cell) for cell in cells])
    array.cells = cells  # type: ignore[attr-defined]
    return array


def launch(
    cu: Driver,
    function: int,
    arguments: Any,
    grid: tuple[int, int, int] = (1, 1, 1),
    block: tuple[int, int, int] = (1, 1, 1),
    shared: int = 0,
    stream: int = 0,
) -> int:
    """The result of cuLaunchKernel."""
    return cu.status("cuLaunchKernel", function, *grid, *block, shared, stream, arguments, None)


def module(cu: Driver, image: bytes = PTX) -> int:
    return int(cu.out("cuModuleLoadData", image))


def function(cu: Driver, module: int, name: str) -> int:
    return int(cu.out("cuModuleGetFunction", module, name.encode()))
