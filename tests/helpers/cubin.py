"""Cubins without code: what `ptxas` says of kernels and variables, laid out as it does."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

NOBITS, PROGBITS, SYMTAB, STRTAB, RELA, INFO = 8, 1, 2, 3, 4, 0x70000000
OBJECT, FUNCTION, TEXTURE, SURFACE = 1, 2, 10, 12
ENTRY, MANAGED = 0x10, 0x04

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELA = struct.Struct("<QQq")


@dataclass(frozen=True)
class Kernel:
    """`parameters`: (offset, size) of each."""

    name: str
    parameters: tuple[tuple[int, int], ...] = ()
    registers: int = 16
    shared: int = 0
    local: int = 0
    max_threads: int = 0
    required: tuple[int, int, int] | None = None
    cluster: tuple[int, int, int] | None = None
    most_cluster: int = 0  # of a kernel that wants to be told its clusters


@dataclass(frozen=True)
class Variable:
    """`pointers`: (offset, name of a variable, addend) of each address in it."""

    name: str
    size: int
    initial: bytes | None = None
    is_const: bool = False
    is_managed: bool = False
    pointers: tuple[tuple[int, str, int], ...] = ()


@dataclass
class _File:
    sections: list[tuple[str, int, bytes, int, int, int, int]] = field(default_factory=list)
    symbols: list[tuple[str, int, int, int, int, int]] = field(default_factory=list)

    def section(
        self, name: str, kind: int, content: bytes = b"", size: int = 0, link: int = 0, info: int = 0
    ) -> int:
        entry = {SYMTAB: _SYMBOL.size, RELA: _RELA.size}.get(kind, 0)
        self.sections.append((name, kind, content, size or len(content), link, info, entry))
        return len(self.sections)


def record(kind: int, payload: bytes) -> bytes:
    """One of `.nv.info`, with bytes behind it."""
    return struct.pack("<BBH", 4, kind, len(payload)) + payload


def _told(kernel: Kernel) -> bytes:
    end = max((offset + size for offset, size in kernel.parameters), default=0)
    told = struct.pack("<BBH", 3, 0x19, end)
    for ordinal, (offset, size) in enumerate(kernel.parameters):
        large = size > 0x3FFF
        form = size if large else size << 18 | 0x1F000
        told += record(0x45 if large else 0x17, struct.pack("<IHHI", 0, ordinal, offset, form))
    if kernel.max_threads:
        told += record(0x05, struct.pack("<III", kernel.max_threads, 1, 1))
    if kernel.required:
        told += record(0x10, struct.pack("<III", *kernel.required))
    if kernel.cluster:
        told += record(0x3D, struct.pack("<III", *kernel.cluster))
    if kernel.most_cluster:
        told += record(0x3F, struct.pack("<I", kernel.most_cluster)) + struct.pack("<BBH", 1, 0x3E, 0)
    return told


def build(
    kernels: tuple[Kernel, ...] = (),
    variables: tuple[Variable, ...] = (),
    references: tuple[tuple[str, int], ...] = (),
    target: int = 80,
    later: bool = True,
) -> bytes:
    """A cubin for sm_`target`; `later`: with the header that CUDA 13 writes. `references`: (name, TEXTURE or
    SURFACE)."""
    file = _File()
    for kernel in kernels:
        text = file.section(".text." + kernel.name, PROGBITS, bytes(16))
        file.section(".nv.info." + kernel.name, INFO, _told(kernel), info=text)
        if kernel.shared:
            file.section(".nv.shared." + kernel.name, NOBITS, size=kernel.shared, info=text)
        file.symbols.append((kernel.name, FUNCTION, ENTRY, text, 0, 16))
    of_functions = b"".join(
        record(kind, struct.pack("<II", number, value))
        for number, kernel in enumerate(kernels, 1)
        for kind, value in ((0x2F, kernel.registers), (0x11, kernel.local), (0x12, kernel.local))
    )
    file.section(".nv.info", INFO, of_functions)
    numbers = {variable.name: len(kernels) + at for at, variable in enumerate(_ordered(variables), 1)}
    for name, chosen in _groups(variables).items():
        _place(file, name, chosen, numbers)
    for name, kind in references:
        file.symbols.append((name, kind, 0, 0, 0, 0))
    return _finish(file, target, later)


def _groups(variables: tuple[Variable, ...]) -> dict[str, list[Variable]]:
    groups: dict[str, list[Variable]] = {".nv.constant3": [], ".nv.global.init": [], ".nv.global": []}
    for variable in variables:
        name = ".nv.global" if variable.initial is None else ".nv.global.init"
        groups[".nv.constant3" if variable.is_const else name].append(variable)
    return {name: chosen for name, chosen in groups.items() if chosen}


def _ordered(variables: tuple[Variable, ...]) -> list[Variable]:
    """As their symbols stand: by section."""
    return [variable for chosen in _groups(variables).values() for variable in chosen]


def _place(file: _File, name: str, variables: list[Variable], numbers: dict[str, int]) -> None:
    content, relocations = b"", b""
    here = len(file.sections) + 1
    for variable in variables:
        initial = (variable.initial or b"").ljust(variable.size, b"\0")
        file.symbols.append(
            (variable.name, OBJECT, MANAGED if variable.is_managed else 0, here, len(content), variable.size)
        )
        for offset, other, addend in variable.pointers:
            relocations += _RELA.pack(len(content) + offset, numbers[other] << 32 | 4, addend)
        content += initial
    zero = name == ".nv.global"
    file.section(name, NOBITS if zero else PROGBITS, b"" if zero else content, len(content))
    if relocations:
        file.section(".rela" + name, RELA, relocations, info=here)


def _finish(file: _File, target: int, later: bool) -> bytes:
    texts = b"\0"
    symbols = bytes(_SYMBOL.size)
    for name, kind, other, section, value, size in file.symbols:
        symbols += _SYMBOL.pack(len(texts), 1 << 4 | kind, other, section, value, size)
        texts += name.encode() + b"\0"
    link = file.section(".strtab", STRTAB, texts)
    file.section(".symtab", SYMTAB, symbols, link=link, info=1)
    names = b"\0" + b"".join(each[0].encode() + b"\0" for each in file.sections) + b".shstrtab\0"
    file.section(".shstrtab", STRTAB, names)
    body, table, at = b"", bytes(_SECTION.size), 1
    for name, kind, content, size, link, info, entry in file.sections:
        body += bytes(-len(body) % 8)
        table += _SECTION.pack(at, kind, 0, 0, _HEADER.size + len(body), size, link, info, 8, entry)
        at += len(name.encode()) + 1
        body += content if kind != NOBITS else b""
    body += bytes(-len(body) % 8)
    abi, flags = ((65, 8), 0x6000004 | target << 8) if later else ((51, 7), target << 16 | 0x500 | target)
    identity = b"\x7fELF\2\1\1" + bytes(abi) + bytes(7)
    count = len(file.sections) + 1
    head = (
        2,
        190,
        1,
        0,
        0,
        _HEADER.size + len(body),
        flags,
        _HEADER.size,
        0,
        0,
        _SECTION.size,
        count,
        count - 1,
    )
    return _HEADER.pack(identity, *head) + body + table


SAMPLE_KERNELS = (
    Kernel("scale", ((0, 8), (8, 4), (12, 1), (16, 8)), registers=40, shared=400, max_threads=256),
    Kernel("big", ((0, 20000), (20000, 8)), registers=255, local=800),
    Kernel("empty"),
    Kernel("exact", ((0, 8),), required=(32, 2, 1)),
)
SAMPLE_VARIABLES = (
    Variable("plain", 40),
    Variable("words", 16, struct.pack("<4I", 1, 2, 3, 4)),
    Variable("pointer", 8, bytes(8), pointers=((0, "words", 8),)),
    Variable("table", 64, b"\0\0\xc0\x3f", is_const=True),
    Variable("shared_word", 4, b"\5\0\0\0", is_managed=True),
)


def sample(target: int = 80, later: bool = True) -> bytes:
    """Kernels and variables of every kind."""
    return build(SAMPLE_KERNELS, SAMPLE_VARIABLES, (("picture", TEXTURE), ("canvas", SURFACE)), target, later)
