"""Links by frames, and texts that need each other."""

from __future__ import annotations

import hashlib
import struct

from tests.apiserver.guest import PRIMARY, Guest, Reply, handle

LINK = handle("link", 0)
NO_OPTIONS = struct.pack("<I", 0)
PTX, CUBIN, FATBINARY = 1, 0, 2

HEAD = b".version 7.5\n.target sm_80\n.address_size 64\n"
# go(to): *to = twice(word)
CALLER = (
    HEAD
    + b""".extern .func (.param .b32 r) twice (.param .b32 x);
.extern .global .align 4 .u32 word;
.visible .entry go(.param .u64 to)
{
    .reg .b32 %r<3>;
    .reg .b64 %d<2>;
    .param .b32 x;
    .param .b32 r;
    ld.param.u64 %d1, [to];
    ld.global.u32 %r1, [word];
    st.param.b32 [x], %r1;
    call (r), twice, (x);
    ld.param.b32 %r2, [r];
    st.global.u32 [%d1], %r2;
    ret;
}
\0"""
)
FUNCTION = (
    HEAD
    + b""".visible .func (.param .b32 r) twice (.param .b32 x)
{
    .reg .b32 %r<2>;
    ld.param.b32 %r1, [x];
    add.u32 %r1, %r1, %r1;
    st.param.b32 [r], %r1;
    ret;
}
\0"""
)
WORD = HEAD + b".visible .global .align 4 .u32 word = 21;\n\0"
PRIVATE = HEAD + b".global .align 4 .u32 own = 1;\n\0"  # may be added any number of times
ANSWER = 42


def create(guest: Guest, link: int = LINK, context: int = PRIMARY) -> Reply:
    return guest.call("cuLinkCreate_v2", context=context, stateOut=link, payload=NO_OPTIONS)


def ship(guest: Guest, image: bytes, digest: bytes = b"") -> bytes:
    digest = digest or hashlib.sha256(image).digest()
    for at in range(0, len(image), 4 << 20):
        piece = image[at : at + (4 << 20)]
        guest.send("sessionImageData", hash=digest, size=len(image), offset=at, payload=piece)
    return digest


def ask(guest: Guest, digest: bytes, size: int, type: int = PTX, link: int = LINK, name: bytes = b"") -> int:
    return guest.ask(
        "sessionLinkAdd",
        link=link,
        hash=digest,
        size=size,
        type=type,
        name_size=len(name),
        payload=name + NO_OPTIONS,
    )


def add(guest: Guest, image: bytes, type: int = PTX, link: int = LINK, name: bytes = b"") -> Reply:
    return guest.answer(ask(guest, ship(guest, image), len(image), type, link, name))


def add_all(guest: Guest, link: int = LINK) -> None:
    for image in (CALLER, FUNCTION, WORD):
        reply = add(guest, image, link=link)
        assert (reply.status, reply.values["known"]) == (0, 1), reply


def complete(guest: Guest, link: int = LINK) -> Reply:
    return guest.call("sessionLinkComplete", link=link)


def image_of(reply: Reply) -> bytes:
    """The linked image, or its beginning."""
    assert reply.status == 0, reply
    return reply.payload[reply.values["error_size"] + reply.values["info_size"] :]


def answer(guest: Guest, image: bytes, library: int, address: int) -> int:
    """What the kernel of a linked image stores at an address; its bytes need not be sent."""
    digest = hashlib.sha256(image).digest()
    reply = guest.call("sessionLoadImage", hash=digest, handle=library, size=len(image))
    assert (reply.status, reply.values["known"], reply.values["kernel_count"]) == (0, 1, 1), reply
    function = handle("kernel", library & 0xFFFFFF)
    guest.send("sessionGetFunction", function=function, owner=library, index=0)
    guest.launch(function, struct.pack("<Q", address), block=(1, 1, 1))
    return int.from_bytes(guest.read(address, 4), "little")
