"""How much stack a compiled kernel takes, read from the code of its object and written into it."""

from __future__ import annotations

import re
import struct

STACK = "sim_kernel_stack"

_HEADER = struct.Struct("<40xQ10xHHH")  # section table, size of an entry, entries, their names
_SECTION = struct.Struct("<IIQQQQII16x")  # name, kind, flags, address, offset, size, link, info
_SYMBOL = struct.Struct("<IBBHQQ")  # name, kind, visibility, section, value, size
_SYMBOLS, _FUNCTION = 2, 2
# A function takes its frame in its first instructions: `sub $n, %rsp`, and where it has many pages,
# `sub $n, %r11` before a loop that touches each. What looks like one and is not makes the stack larger, which
# costs addresses.
_PROLOGUE = 256
_TAKES = re.compile(rb"\x48\x81\xec(.{4})|\x49\x81\xeb(.{4})|\x48\x83\xec(.)", re.DOTALL)
_PER_CALL = 1024  # saved registers, arguments, what an alignment leaves out
_LARGEST = 1 << 28
_UNBOUNDED = 1 << 31  # beside the bytes: a deeper call, or a larger frame, may take more


def with_stack(object_file: bytes, recursive: bool) -> bytes:
    """The object, its symbol `sim_kernel_stack` set to the bytes that its functions take together."""
    table, entry, count, _ = _HEADER.unpack_from(object_file)
    sections = [_SECTION.unpack_from(object_file, table + index * entry) for index in range(count)]
    needed, larger, place = 0, False, None
    for _, kind, _, _, offset, size, link, _ in sections:
        if kind != _SYMBOLS:
            continue
        names = sections[link][4]
        for at in range(offset, offset + size, _SYMBOL.size):
            name, info, _, section, value, length = _SYMBOL.unpack_from(object_file, at)
            begin = sections[section][4] + value if 0 < section < count else 0
            if begin and info & 15 == _FUNCTION:
                taken = _taken(object_file[begin : begin + min(length, _PROLOGUE)])
                needed += sum(size for size in taken if size < _LARGEST) + _PER_CALL
                larger = larger or max(taken, default=0) >= _LARGEST
            elif begin and object_file.startswith(STACK.encode() + b"\0", names + name):
                place = begin
    assert place is not None
    unbounded = _UNBOUNDED if recursive or larger or needed > _LARGEST else 0
    stack = struct.pack("<I", min(needed, _LARGEST) | unbounded)
    return object_file[:place] + stack + object_file[place + len(stack) :]


def _taken(code: bytes) -> list[int]:
    return [int.from_bytes(b"".join(each), "little") for each in _TAKES.findall(code)]
