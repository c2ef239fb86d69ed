"""PTX for the tests, small enough to read."""

from __future__ import annotations

import hashlib

from tests.apiserver.guest import Guest, Kernel, handle

PTX = b""".version 7.5
.target sm_80
.address_size 64
.global .align 4 .u32 variable[4] = {1, 2, 3, 4};
.global .attribute(.managed) .align 4 .u32 managed = 5;
.global .texref picture;
.global .surfref canvas;

// p[tid] *= k
.visible .entry scale(.param .u64 p, .param .u32 k)
{
    .reg .u64 %rd<4>;
    .reg .u32 %r<5>;
    ld.param.u64 %rd1, [p];
    ld.param.u32 %r1, [k];
    mov.u32 %r2, %tid.x;
    mul.wide.u32 %rd2, %r2, 4;
    add.u64 %rd3, %rd1, %rd2;
    ld.global.u32 %r3, [%rd3];
    mul.lo.u32 %r4, %r3, %r1;
    st.global.u32 [%rd3], %r4;
    ret;
}

// Runs until *flag is not zero, then adds one to *p.
.visible .entry wait_for(.param .u64 flag, .param .u64 p)
{
    .reg .u64 %rd<3>;
    .reg .u32 %r<4>;
    .reg .pred %q;
    ld.param.u64 %rd1, [flag];
    ld.param.u64 %rd2, [p];
again:
    ld.volatile.global.u32 %r1, [%rd1];
    setp.eq.u32 %q, %r1, 0;
    @%q bra again;
    ld.global.u32 %r2, [%rd2];
    add.u32 %r3, %r2, 1;
    st.global.u32 [%rd2], %r3;
    ret;
}

.extern .func (.param .b32 r) vprintf(.param .b64 format, .param .b64 arguments);
.global .align 1 .b8 text[7] = {104, 101, 108, 108, 111, 10, 0};

// printf("hello\\n")
.visible .entry speak()
{
    .reg .u64 %rd<3>;
    .reg .u32 %r<2>;
    mov.u64 %rd1, text;
    cvta.global.u64 %rd2, %rd1;
    {
        .param .b64 param0;
        st.param.b64 [param0], %rd2;
        .param .b64 param1;
        st.param.b64 [param1], 0;
        .param .b32 r;
        call.uni (r), vprintf, (param0, param1);
        ld.param.b32 %r1, [r];
    }
    ret;
}
\0"""
LIBRARY = handle("library", 0)


def digest() -> bytes:
    """The hash under which a server knows PTX."""
    return hashlib.sha256(PTX).digest()


def load(guest: Guest) -> list[Kernel]:
    """Loads PTX as library 0; its kernels become kernel handles 0, 1 … in the table's order."""
    reply, kernels, log = guest.load(PTX, LIBRARY, digest())
    assert reply.status == 0, log.decode()
    return kernels


def bind(guest: Guest, name: str, slot: int = 0) -> int:
    """A kernel handle for one of PTX's kernels, in a guest that has nothing loaded."""
    index = [kernel.name for kernel in load(guest)].index(name)
    function = handle("kernel", slot)
    guest.send("sessionGetFunction", function=function, owner=LIBRARY, index=index)
    return function
