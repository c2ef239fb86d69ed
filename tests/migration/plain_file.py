"""Writes files as gpuferry 0.1 did (migration/plain.py)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from gpuferry.migration.file import Content
from gpuferry.migration.frames import ANSWER, PAGE, Kept
from gpuferry.migration.head import MAGIC
from gpuferry.migration.plain import DIGEST, HEAD, HEAD_SIZE, PAGE_DIGEST
from gpuferry.specs._generated import snapshot_pb2

Part = snapshot_pb2.Part


def of_first_release(items: Sequence[Content], snapshot: snapshot_pb2.Snapshot) -> bytes:
    """The bytes of a file with these frames and pages."""
    data, table = bytearray(HEAD_SIZE), snapshot_pb2.Snapshot()
    table.CopyFrom(snapshot)
    table.bytes_per_page = PAGE
    for item in items:
        kind = Part.FRAMES if isinstance(item, Kept) else Part.PAGES
        if not table.parts or table.parts[-1].kind != kind:
            gap = -len(data) % PAGE if kind == Part.PAGES else 0
            if gap:
                table.parts.add(kind=Part.GAP, size=gap, digest=hashlib.sha256(bytes(gap)).digest())
                data += bytes(gap)
            table.parts.add(kind=kind)
        part, begin = table.parts[-1], len(data)
        if isinstance(item, Kept):
            data += ANSWER.pack(item.answer) + item.frame
        else:
            part.addresses.append(item[0])
            part.hashes += hashlib.blake2b(item[1], digest_size=PAGE_DIGEST).digest()
            data += item[1]
        part.size += len(data) - begin
        if kind == Part.FRAMES:
            part.digest = hashlib.sha256(data[len(data) - part.size :]).digest()
    trailer = table.SerializeToString()
    head = HEAD.pack(MAGIC, 1, 0, len(data), len(trailer), hashlib.sha256(trailer).digest())
    head = head.ljust(HEAD_SIZE - DIGEST, b"\0")
    data[:HEAD_SIZE] = head + hashlib.sha256(head).digest()
    return bytes(data + trailer)
