"""Fat binaries as nvcc writes them, for tests."""

from __future__ import annotations

import struct
from dataclasses import dataclass

CONTAINER = struct.Struct("<IHHQ")
ENTRY = struct.Struct("<HHIQIIHHI36x")
PTX, ELF = 1, 2


@dataclass(frozen=True)
class Entry:
    kind: int
    capability: int
    payload: bytes

    @property
    def raw(self) -> bytes:
        head = ENTRY.pack(self.kind, 0x0101, ENTRY.size, len(self.payload), 0, 0, 0, 8, self.capability)
        return head + self.payload


def container(*entries: Entry) -> bytes:
    body = b"".join(entry.raw for entry in entries)
    return CONTAINER.pack(0xBA55ED50, 1, CONTAINER.size, len(body)) + body
