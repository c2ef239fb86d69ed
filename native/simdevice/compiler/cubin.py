"""The ELF file that cuLinkComplete returns: laid out as a cubin is, with PTX where that has machine code.

exec/cubin.c finds the linked image in it again. Its symbols are what others look for: kernels, variables
(who moves a session lists them) and the functions of the runtime that it calls.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from gpuferry.native.simdevice.ptx import Module, runtime_functions

CONTENT = ".gpuferry.ptx"

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")

_IDENTITY = b"\x7fELF" + bytes([2, 1, 1, 51, 7])  # 64 bits, little-endian, CUDA's ABI, version 7
_EXECUTABLE, _MACHINE_CUDA = 2, 190
_FLAGS = 0x500  # 64-bit addresses, unified textures

_PROGBITS, _SYMTAB, _STRTAB, _NOBITS = 1, 2, 3, 8
_WRITE, _ALLOC = 1, 2
_OBJECT, _FUNCTION = 1, 2
_GLOBAL = 1 << 4
_UNDEFINED = 0


@dataclass
class _Strings:
    data: bytearray = field(default_factory=lambda: bytearray(1))

    def add(self, text: str) -> int:
        offset = len(self.data)
        self.data += text.encode("utf-8", "surrogateescape") + b"\0"
        return offset


@dataclass
class _File:
    """Section contents behind the header, then the section table."""

    data: bytearray = field(default_factory=lambda: bytearray(_HEADER.size))
    table: bytearray = field(default_factory=lambda: bytearray(_SECTION.size))
    names: _Strings = field(default_factory=_Strings)

    def add(
        self,
        name: str,
        kind: int,
        content: bytes,
        flags: int = 0,
        link: int = 0,
        info: int = 0,
        entry: int = 0,
    ) -> int:
        """Append a section. Return its index."""
        offset = self._append(content)
        self._describe(name, kind, flags, offset, len(content), link, info, entry)
        return len(self.table) // _SECTION.size - 1

    def reserve(self, name: str, size: int) -> int:
        """A section of memory that the file does not hold."""
        self._describe(name, _NOBITS, _WRITE | _ALLOC, len(self.data), size, 0, 0, 0)
        return len(self.table) // _SECTION.size - 1

    def finish(self, target: int) -> bytes:
        names = self.add(".shstrtab", _STRTAB, b"")
        # the name of the name table is one of its own strings
        offset = self._append(bytes(self.names.data))
        struct.pack_into("<QQ", self.table, names * _SECTION.size + 24, offset, len(self.names.data))
        table = self._append(bytes(self.table))
        count = len(self.table) // _SECTION.size
        flags = target << 16 | _FLAGS | target
        _HEADER.pack_into(
            *(self.data, 0, _IDENTITY, _EXECUTABLE, _MACHINE_CUDA, 1, 0, 0, table, flags),
            *(_HEADER.size, 0, 0, _SECTION.size, count, names),
        )
        return bytes(self.data)

    def _append(self, content: bytes) -> int:
        self.data += bytes(-len(self.data) % 8)
        offset = len(self.data)
        self.data += content
        return offset

    def _describe(
        self, name: str, kind: int, flags: int, offset: int, size: int, link: int, info: int, entry: int
    ) -> None:
        self.table += _SECTION.pack(self.names.add(name), kind, flags, 0, offset, size, link, info, 8, entry)


def build(module: Module, image: bytes, target: int) -> bytes:
    """`image`: the linked image (exec/sniff.h) that the module came from; `target`: 80 for sm_80."""
    file, strings = _File(), _Strings()
    symbols = bytearray(_SYMBOL.size)

    def symbol(name: str, kind: int, section: int, value: int = 0, size: int = 0) -> None:
        symbols.extend(_SYMBOL.pack(strings.add(name), _GLOBAL | kind, 0, section, value, size))

    content = file.add(CONTENT, _PROGBITS, image)
    for kernel in module.kernels:
        symbol(kernel.name, _FUNCTION, content)
    for section, is_const in ((".nv.constant3", True), (".nv.global", False)):
        variables = [each for each in module.variables if each.is_const == is_const]
        place = file.reserve(section, sum(each.size for each in variables)) if variables else 0
        offset = 0
        for variable in variables:
            symbol(variable.name, _OBJECT, place, offset, variable.size)
            offset += variable.size
    for name in runtime_functions(module):
        symbol(name, _FUNCTION, _UNDEFINED)
    text = file.add(".strtab", _STRTAB, bytes(strings.data))
    file.add(".symtab", _SYMTAB, bytes(symbols), link=text, info=1, entry=_SYMBOL.size)
    return file.finish(target)
