"""Module images of every kind: text, fatbins plain and compressed, ELF files of a link."""

from __future__ import annotations

import struct
from collections.abc import Iterable

import lz4.block
import zstandard

CONTAINER = struct.Struct("<IHHQ")
ENTRY = struct.Struct("<HHIQIIHHI8xQ8xQ")
LINKED = struct.Struct("<QQIIII")
INPUT = struct.Struct("<QII")
MAGIC, LINKED_MAGIC = 0xBA55ED50, 0x4B4E4C4D49534647
LZ4, ZSTD = 0x2000, 0x8000
PTX, ELF = 1, 2
TEXT = b""".version 8.0
.target sm_80
.address_size 64
.global .align 4 .u32 variable = 7;
.visible .entry scale(.param .u64 to, .param .u32 by)
{
    .reg .u32 %r<4>;
    .reg .u64 %rd<2>;
    ld.param.u64 %rd1, [to];
    ld.param.u32 %r1, [by];
    ld.global.u32 %r2, [%rd1];
    mul.lo.u32 %r3, %r2, %r1;
    st.global.u32 [%rd1], %r3;
    ret;
}
\0"""


def entry(text: bytes, flags: int = 0, kind: int = PTX, target: int = 80) -> bytes:
    """One entry of a fatbin."""
    payload = text
    if flags == LZ4:
        payload = bytes(lz4.block.compress(text, store_size=False))
    elif flags == ZSTD:
        payload = zstandard.compress(text)
    stored = payload + bytes(-len(payload) % 8)
    compressed = len(payload) if flags else 0
    head = ENTRY.pack(kind, 0x101, ENTRY.size, len(stored), compressed, 0, 0, 8, target, flags, len(text))
    return head + stored


def container(entries: Iterable[bytes]) -> bytes:
    """A fatbin."""
    body = b"".join(entries)
    return CONTAINER.pack(MAGIC, 1, CONTAINER.size, len(body)) + body


def linked(texts: Iterable[bytes]) -> bytes:
    """What a link was given, as the simulated device keeps it."""
    parts = b""
    count = 0
    for text in texts:
        count += 1
        name = b"input"
        parts += INPUT.pack(len(text), len(name), 0) + name.ljust(8, b"\0") + text + bytes(-len(text) % 8)
    return LINKED.pack(LINKED_MAGIC, LINKED.size + len(parts), count, 80, 0, 0) + parts


def elf(content: bytes, section: bytes = b".gpuferry.ptx") -> bytes:
    """A cubin with these contents in one section."""
    names = b"\0" + section + b"\0.shstrtab\0"
    at = 64 + len(names) + (-len(names) % 8)
    table = at + len(content) + (-len(content) % 8)
    identity = b"\x7fELF\2\1\1" + bytes([51]) + bytes(8)
    head = struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, table, 0x500550, 64, 56, 0, 64, 3, 2)
    sections = [(0,) * 10, (1, 1, 0, 0, at, len(content), 0, 0, 8, 0)]
    sections.append((len(section) + 2, 3, 0, 0, 64, len(names), 0, 0, 1, 0))
    body = names.ljust(at - 64, b"\0") + content.ljust(table - at, b"\0")
    return identity + head + body + b"".join(struct.pack("<IIQQQQIIQQ", *each) for each in sections)


def sound() -> Iterable[bytes]:
    """One image of each kind."""
    yield TEXT
    for flags in (0, LZ4, ZSTD):
        yield container([entry(TEXT, flags)])
    yield container([entry(elf(b""), kind=ELF, target=90), entry(TEXT, LZ4, target=70), entry(TEXT)])
    yield linked([TEXT])
    yield linked([TEXT, container([entry(TEXT)])])
    yield elf(linked([TEXT]))
    yield elf(b"code", b".text.scale")
