"""Fat binaries as nvcc writes them, for tests."""

from __future__ import annotations

import struct
from dataclasses import dataclass

CONTAINER = struct.Struct("<IHHQ")
ENTRY = struct.Struct("<HHIQIIHHI8xQ20x")
PTX, ELF = 1, 2
EXACT, FAMILY = 0x100000, 0x200000  # of sm_90a and of sm_100f


@dataclass(frozen=True)
class Entry:
    kind: int
    capability: int
    payload: bytes
    flags: int = 0

    @property
    def raw(self) -> bytes:
        size = len(self.payload)
        head = ENTRY.pack(self.kind, 0x0101, ENTRY.size, size, 0, 0, 0, 8, self.capability, self.flags)
        return head + self.payload


def container(*entries: Entry) -> bytes:
    body = b"".join(entry.raw for entry in entries)
    return CONTAINER.pack(0xBA55ED50, 1, CONTAINER.size, len(body)) + body
