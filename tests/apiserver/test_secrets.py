"""What one session leaves in an API server, the next does not find: memory, limits, output."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

import pytest

from tests.apiserver.guest import Guest, handle
from tests.apiserver.server import Server

INVALID_VALUE, ILLEGAL_ADDRESS = 1, 700
STACK, HEAP = 0, 2  # limits
SECRET = 0x5EC2E7
LIBRARY = handle("library", 0)

# `hide` fills what a block has beside device memory with a number, `seek` counts how often it finds it there.
# Both index with what the host says, so that nothing is known when they are compiled.
PTX = b"""
.version 7.5
.target sm_80
.address_size 64
.extern .func (.param .b64 r) malloc(.param .b64 size);

.visible .entry hide(.param .u32 secret, .param .u64 p)
{
    .local .align 8 .b8 frame[16384];
    .shared .align 16 .b8 tile[32768];
    .reg .b32 %r<8>; .reg .b64 %d<8>; .reg .pred %q;
    ld.param.u32 %r1, [secret];
    ld.param.u64 %d6, [p];
    { .param .b64 size; .param .b64 place; st.param.b64 [size], 16384;
      call.uni (place), malloc, (size); ld.param.b64 %d1, [place]; }
    mov.u64 %d2, frame;
    mov.u32 %r2, 0;
again:
    cvt.u64.u32 %d3, %r2;
    add.u64 %d4, %d1, %d3;
    st.u32 [%d4], %r1;
    add.u64 %d4, %d2, %d3;
    st.local.u32 [%d4], %r1;
    mov.u32 %r3, tile;
    add.u32 %r3, %r3, %r2;
    st.shared.u32 [%r3], %r1;
    st.shared.u32 [%r3+16384], %r1;
    add.u32 %r2, %r2, 4;
    setp.lt.u32 %q, %r2, 16384;
    @%q bra again;
    bar.sync 0;
    st.global.u32 [%d6], %r1;
    ret;
}

.visible .entry seek(.param .u32 secret, .param .u64 p)
{
    .local .align 8 .b8 frame[16384];
    .shared .align 16 .b8 tile[32768];
    .reg .b32 %r<12>; .reg .b64 %d<8>; .reg .pred %q;
    ld.param.u32 %r1, [secret];
    ld.param.u64 %d6, [p];
    { .param .b64 size; .param .b64 place; st.param.b64 [size], 16384;
      call.uni (place), malloc, (size); ld.param.b64 %d1, [place]; }
    mov.u64 %d2, frame;
    and.b32 %r4, %r1, 4;
    cvt.u64.u32 %d3, %r4;
    add.u64 %d3, %d2, %d3;
    st.local.u32 [%d3], 1;
    mov.u32 %r8, 0; mov.u32 %r9, 0; mov.u32 %r10, 0;
    mov.u32 %r2, 0;
again:
    cvt.u64.u32 %d3, %r2;
    add.u64 %d4, %d1, %d3;
    ld.u32 %r5, [%d4];
    setp.eq.u32 %q, %r5, %r1;
    @%q add.u32 %r8, %r8, 1;
    add.u64 %d4, %d2, %d3;
    ld.local.u32 %r5, [%d4];
    setp.eq.u32 %q, %r5, %r1;
    @%q add.u32 %r9, %r9, 1;
    mov.u32 %r3, tile;
    add.u32 %r3, %r3, %r2;
    ld.shared.u32 %r5, [%r3];
    setp.eq.u32 %q, %r5, %r1;
    @%q add.u32 %r10, %r10, 1;
    ld.shared.u32 %r5, [%r3+16384];
    setp.eq.u32 %q, %r5, %r1;
    @%q add.u32 %r10, %r10, 1;
    add.u32 %r2, %r2, 4;
    setp.lt.u32 %q, %r2, 16384;
    @%q bra again;
    bar.sync 0;
    st.global.u32 [%d6], %r8;
    st.global.u32 [%d6+4], %r9;
    st.global.u32 [%d6+8], %r10;
    ret;
}
\0"""


def run(guest: Guest, name: str) -> tuple[int, ...]:
    """What the kernel wrote to its buffer."""
    reply, found, log = guest.load(PTX, LIBRARY, hashlib.sha256(PTX).digest())
    assert reply.status == 0, log
    index = [kernel.name for kernel in found].index(name)
    guest.send("sessionGetFunction", function=handle("kernel", 0), owner=LIBRARY, index=index)
    address = guest.map()
    guest.launch(handle("kernel", 0), struct.pack("<IxxxxQ", SECRET, address), block=(1, 1, 1))
    assert guest.sync().latched == 0
    return struct.unpack("<3I", guest.read(address, 12))


def leave(server: Server, guest: Guest) -> None:
    guest.close()
    assert server.ended().clean
    server.ready()


def test_the_look_sees_what_is_there(own_server: Server) -> None:
    """In the same session the secret is found wherever it was hidden."""
    guest = own_server.connect()
    run(guest, "hide")
    guest.send("cuLibraryUnload", library=LIBRARY)
    guest.send("sessionMemUnmap", address=guest.window, size=2 << 20)
    heap, local, shared = run(guest, "seek")
    assert heap == 0  # it is another piece of the heap
    assert local > 0
    assert shared > 0


def test_the_next_session_finds_no_memory_of_the_last(own_server: Server) -> None:
    guest = own_server.connect()
    assert run(guest, "hide")[0] == SECRET
    leave(own_server, guest)
    guest = own_server.connect()
    assert run(guest, "seek") == (0, 0, 0)


@pytest.mark.parametrize(
    ("limit", "value"),
    [(STACK, 1 << 63), (STACK, 1 << 46), (STACK, (512 << 10) + 1), (HEAP, 1 << 63), (HEAP, 2 << 30)],
)
def test_limits_that_cannot_be_had(guest: Guest, limit: int, value: int) -> None:
    assert guest.call("cuCtxSetLimit", limit=limit, value=value).status == INVALID_VALUE
    assert run(guest, "hide")[0] == SECRET


def test_the_heap_is_not_more_than_the_quota(server: Server) -> None:
    guest = server.connect(quota=64 << 20)
    assert guest.call("cuCtxSetLimit", limit=HEAP, value=64 << 20).status == 0
    assert guest.call("cuCtxSetLimit", limit=HEAP, value=(64 << 20) + 1).status == INVALID_VALUE


# The escape that was found: from a local variable upwards, a kernel looks for an address of a library, and
# writes there.
ESCAPE = b"""
.version 7.5
.target sm_80
.address_size 64
.visible .entry escape(.param .u32 unused, .param .u64 p)
{
    .local .align 8 .b8 own[64];
    .reg .b32 %r<8>; .reg .b64 %d<16>; .reg .pred %q<3>;
    ld.param.u64 %d6, [p];
    mov.u64 %d1, own;
    cvta.local.u64 %d2, %d1;
    mov.u32 %r1, 0;
again:
    ld.u64 %d3, [%d2];
    shr.u64 %d4, %d3, 41;
    setp.eq.u64 %q0, %d4, 0x3f; // libraries lie within a TiB below the stack: 0x7f..., now and then 0x7e...
    @%q0 bra found;
    add.u64 %d2, %d2, 8;
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %q1, %r1, 100000;
    @%q1 bra again;
    trap;
found:
    st.global.u64 [%d6], %d3;
    ret;
}
\0"""


@pytest.mark.parametrize(("check", "found"), [("1", False), ("0", True)])
def test_a_kernel_finds_no_address_of_the_api_server(tmp_path: Path, check: str, found: bool) -> None:
    """Where kernels are held to their own memory; the same look sees one where they are not."""
    with Server(tmp_path / "log", GPUFERRY_SIM_CHECK=check, GPUFERRY_SIM_MEMORY="256MiB") as server:
        server.ready()
        guest = server.connect(quota=64 << 20)
        reply, _, log = guest.load(ESCAPE, LIBRARY, hashlib.sha256(ESCAPE).digest())
        assert reply.status == 0, log
        guest.send("sessionGetFunction", function=handle("kernel", 0), owner=LIBRARY, index=0)
        address = guest.map()
        guest.launch(handle("kernel", 0), struct.pack("<IxxxxQ", 0, address), block=(1, 1, 1))
        reply = guest.sync()
        assert (reply.status, reply.latched) == ((0, 0) if found else (ILLEGAL_ADDRESS, 0))
        if found:
            assert guest.read(address, 8) != bytes(8)
        guest.close()
        assert server.ended().clean == found


def test_limits_end_with_their_session(own_server: Server) -> None:
    """Without a kernel, too: with 4096 bytes of heap the next session's would get no memory."""
    guest = own_server.connect()
    assert guest.call("cuCtxSetLimit", limit=HEAP, value=4096).status == 0
    leave(own_server, guest)
    assert run(own_server.connect(), "hide")[0] == SECRET
