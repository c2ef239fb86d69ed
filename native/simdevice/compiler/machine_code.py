"""What a cubin says of itself: kernels, variables, sizes. Its code is never looked at.

The layout of `.nv.info` is not published; what is read of it is what `ptxas` writes and `cuobjdump -elf`
prints.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

from gpuferry.native.simdevice.ptx.model import KernelInfo, Relocation, VariableInfo
from gpuferry.native.simdevice.ptx.types import REFERENCES

from .errors import INVALID_IMAGE, NO_BINARY_FOR_GPU, ImageError
from .fatbin import Room

ELF = b"\x7fELF"
MOST = 512 << 20  # bytes of one file, and of what is read of it
# What is read of a file is a part of it, and read a few times: more is of parts that lie on each other.
PARTS_MOST, PARTS_SLACK = 8, 1 << 16
MOST_PARAMETER_BYTES = 32764
MOST_SHARED = 1 << 20

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_REL = struct.Struct("<QQ")
_RELA = struct.Struct("<QQq")
_RECORD = struct.Struct("<BBH")
_OF_FUNCTION = struct.Struct("<II")  # symbol, value
_PARAMETER = struct.Struct("<IHHI")  # index, ordinal, offset, size in some form
_EXTENTS = struct.Struct("<III")
_NUMBER = struct.Struct("<I")
_ADDEND = struct.Struct("<q")

_MACHINE_CUDA = 190
_ABIS = (51, 65)
_LATER_FLAGS = 8  # the version of the ABI from which the target is in the second byte of the flags
_IN_SECTION = 0xFF00  # from here on a symbol's section is none
_NOBITS, _SYMTAB, _RELA_TYPE, _REL_TYPE = 8, 2, 4, 9
_OBJECT, _FUNCTION, _TEXTURE, _SURFACE = 1, 2, 10, 12  # kinds of symbols
_MANAGED, _ENTRY = 0x04, 0x10  # st_other
_ADDRESSES = (2, 4)  # relocations by a variable's address: of the device, generic

# Records of .nv.info (EIATTR_*), and their forms (EIFMT_*).
_MAX_THREADS, _REQUIRED_THREADS = 0x05, 0x10
_PARAMETER_OLD, _PARAMETER_NEW = 0x17, 0x45
_CLUSTER, _EXPLICIT_CLUSTER, _MOST_CLUSTER = 0x3D, 0x3E, 0x3F
_PARAMETER_BYTES = 0x19
_FRAME_SIZE, _STACK_SIZE, _REGISTERS = 0x11, 0x12, 0x2F
_WITH_PAYLOAD = 4


_Relocation = tuple[int, int, int | None]  # offset, symbol, addend; None: it stands in the place


@dataclass(frozen=True)
class MachineCode:
    """The metadata of one cubin, in the form that the index of a PTX module is made from."""

    isa: int
    target: int  # of the PTX that it was compiled from: 80 for sm_80
    binary: int
    kernels: list[KernelInfo]
    variables: list[VariableInfo]


@dataclass
class _Section:
    name: str
    type: int
    offset: int
    size: int
    link: int
    info: int
    entry: int
    align: int


@dataclass
class _Symbol:
    name: str
    kind: int
    other: int
    section: int
    value: int
    size: int


@dataclass
class _Kernel:
    """What the records say of one kernel."""

    parameters: dict[int, tuple[int, int]] = field(default_factory=dict)  # by ordinal: offset, size
    parameter_bytes: int = 0
    max_threads: int = 0
    required: tuple[int, int, int] = (0, 0, 0)
    cluster: tuple[int, int, int] = (0, 0, 0)
    most_cluster: int = 0
    explicit_cluster: bool = False


def read(image: bytes, cc: int, room: Room) -> MachineCode:
    """The metadata of a cubin that a device of that capability can run. Raises ImageError."""
    file = _File(image, Room(min(room.left, PARTS_MOST * len(image) + PARTS_SLACK)))
    if file.target // 10 != cc // 10 or file.target > cc:
        raise ImageError(
            NO_BINARY_FOR_GPU, f"the machine code is for sm_{file.target}, the device is sm_{cc}"
        )
    return MachineCode(0, file.compiled_from, file.target, list(file.kernels()), file.variables())


class _File:
    def __init__(self, image: bytes, room: Room) -> None:
        self._image = image
        self._room = room
        if len(image) < _HEADER.size:
            raise _damaged("is cut short")
        identity, _, machine, _, _, _, table, flags, *_, entry, count, names = _HEADER.unpack_from(image)
        if identity[:6] != ELF + b"\2\1" or machine != _MACHINE_CUDA or identity[7] not in _ABIS:
            raise _damaged("is no 64-bit ELF file of CUDA's")
        later = identity[8] >= _LATER_FLAGS
        self.target = flags >> 8 & 0xFF if later else flags & 0xFF
        self.compiled_from = self.target if later else flags >> 16 & 0xFF or self.target
        self._sections = self._read_sections(table, entry, count, names)
        self._symbols = self._read_symbols()
        self._by_name = {section.name: section for section in reversed(self._sections)}

    # -- sections and symbols

    def _read_sections(self, table: int, entry: int, count: int, names: int) -> list[_Section]:
        if count == 0:
            return []
        if entry != _SECTION.size:
            raise _damaged("has sections of an unknown form")
        raw = list(_SECTION.iter_unpack(self._bytes(table, count * _SECTION.size)))
        if names >= count:
            raise _damaged("has no names of sections")
        texts = self._bytes(raw[names][4], raw[names][5])
        found = []
        for name, kind, _, _, offset, size, link, info, align, each in raw:
            if kind != _NOBITS and kind != 0:
                self._check(offset, size)
            found.append(_Section(self._text(texts, name), kind, offset, size, link, info, each, align))
        return found

    def _read_symbols(self) -> list[_Symbol]:
        table = next((each for each in self._sections if each.type == _SYMTAB), None)
        if table is None:
            return []
        if table.entry != _SYMBOL.size or table.link >= len(self._sections) or table.size % _SYMBOL.size:
            raise _damaged("has symbols of an unknown form")
        texts = self._contents(self._sections[table.link])
        found = []
        for name, info, other, section, value, size in _SYMBOL.iter_unpack(self._contents(table)):
            if section >= _IN_SECTION:
                section = 0
            if section >= len(self._sections):
                raise _damaged("has a symbol in a section that is not there")
            found.append(_Symbol(self._text(texts, name), info & 15, other, section, value, size))
        return found

    # -- what is said of kernels

    def kernels(self) -> Iterator[KernelInfo]:
        """Those that a program can launch, in the order of their symbols."""
        registers, stacks = self._of_functions()
        constant = self._by_name.get(".nv.constant3")
        for number, symbol in enumerate(self._symbols):
            if symbol.kind != _FUNCTION or not symbol.other & _ENTRY or symbol.section == 0:
                continue
            told = self._told(symbol.name)
            shared = self._by_name.get(".nv.shared." + symbol.name)
            if shared is not None and shared.size > MOST_SHARED:
                raise _damaged("has a kernel with more shared memory than there is")
            yield KernelInfo(
                name=symbol.name,
                params=tuple((*told.parameters[at], 1) for at in range(len(told.parameters))),
                param_bytes=told.parameter_bytes,
                shared_static=shared.size if shared is not None else 0,
                local_bytes=stacks.get(number, 0),
                const_bytes=min(constant.size, 1 << 16) if constant is not None else 0,
                registers=registers.get(number, self._sections[symbol.section].info >> 24) & 0xFF,
                max_threads=told.max_threads,
                required=told.required,
                ptx_version=self.compiled_from,
                binary_version=self.target,
                cluster=told.cluster,
                most_cluster=told.most_cluster,
                explicit_cluster=told.explicit_cluster,
            )

    def _of_functions(self) -> tuple[dict[int, int], dict[int, int]]:
        """Registers, and bytes of local memory, by the number of the symbol."""
        registers: dict[int, int] = {}
        stacks: dict[int, int] = {}
        for kind, _, payload in self._records(".nv.info"):
            if len(payload) != _OF_FUNCTION.size:
                continue
            symbol, value = _OF_FUNCTION.unpack(payload)
            if kind == _REGISTERS:
                registers[symbol] = value
            elif kind in (_FRAME_SIZE, _STACK_SIZE):
                stacks[symbol] = max(stacks.get(symbol, 0), value)
        return registers, stacks

    def _told(self, kernel: str) -> _Kernel:
        told = _Kernel()
        for kind, value, payload in self._records(".nv.info." + kernel):
            if kind == _PARAMETER_BYTES:
                told.parameter_bytes = max(told.parameter_bytes, value)
            elif kind in (_PARAMETER_OLD, _PARAMETER_NEW) and len(payload) == _PARAMETER.size:
                _, ordinal, offset, size = _PARAMETER.unpack(payload)
                told.parameters[ordinal] = (offset, size if kind == _PARAMETER_NEW else size >> 18)
            elif kind in (_MAX_THREADS, _REQUIRED_THREADS) and len(payload) == _EXTENTS.size:
                x, y, z = _EXTENTS.unpack(payload)
                threads = x * y * z
                if not 0 < threads <= 1024:
                    raise _damaged("has a kernel of a block that cannot be")
                told.max_threads = threads
                if kind == _REQUIRED_THREADS:
                    told.required = x, y, z
            elif kind == _CLUSTER and len(payload) == _EXTENTS.size:
                told.cluster = _EXTENTS.unpack(payload)
            elif kind == _MOST_CLUSTER and len(payload) == _NUMBER.size:
                (told.most_cluster,) = _NUMBER.unpack(payload)
            elif kind == _EXPLICIT_CLUSTER:
                told.explicit_cluster = True
        if sorted(told.parameters) != list(range(len(told.parameters))):
            raise _damaged("has a kernel whose parameters are not all there")
        ends = [offset + size for offset, size in told.parameters.values()]
        told.parameter_bytes = max([told.parameter_bytes, *ends])
        if told.parameter_bytes > MOST_PARAMETER_BYTES:
            raise _damaged("has a kernel with more parameters than there can be")
        return told

    def _records(self, name: str) -> Iterator[tuple[int, int, bytes]]:
        """(what, the number with it, the bytes behind it) of a section; nothing if there is none."""
        section = self._by_name.get(name)
        if section is None:
            return
        data, at = self._contents(section), 0
        while at < len(data):
            if len(data) - at < _RECORD.size:
                raise _damaged("has metadata that is cut short")
            form, kind, value = _RECORD.unpack_from(data, at)
            at += _RECORD.size
            size = value if form == _WITH_PAYLOAD else 0
            if size > len(data) - at:
                raise _damaged("has metadata that is cut short")
            yield kind, value, data[at : at + size]
            at += size

    # -- variables

    def variables(self) -> list[VariableInfo]:
        """The module's variables, and its texture and surface references, in the order of their symbols."""
        numbers = [number for number, symbol in enumerate(self._symbols) if self._is_variable(symbol)]
        index = {number: at for at, number in enumerate(numbers)}
        relocations = self._relocations({self._symbols[number].section for number in numbers})
        return [self._variable(self._symbols[number], index, relocations) for number in numbers]

    def _is_variable(self, symbol: _Symbol) -> bool:
        if symbol.kind in (_TEXTURE, _SURFACE):
            return True
        name = self._sections[symbol.section].name if symbol.section else ""
        return symbol.kind == _OBJECT and (name.startswith(".nv.global") or name == ".nv.constant3")

    def _variable(
        self, symbol: _Symbol, index: dict[int, int], relocations: dict[int, list[_Relocation]]
    ) -> VariableInfo:
        if symbol.kind in (_TEXTURE, _SURFACE):
            kind = REFERENCES[symbol.kind == _SURFACE]
            return VariableInfo(symbol.name, 8, 8, None, (), False, False, "", kind)
        section = self._sections[symbol.section]
        end = symbol.value + symbol.size
        if end > section.size:
            raise _damaged("has a variable outside its section")
        initial = None
        if section.type != _NOBITS:
            self._room.take(symbol.size)
            initial = self._image[section.offset + symbol.value : section.offset + end]
        places = []
        inside = relocations.get(symbol.section, [])
        for offset, target, addend in inside[bisect_left(inside, symbol.value, key=lambda each: each[0]) :]:
            at = offset - symbol.value
            if initial is None or at > symbol.size - _ADDEND.size:
                break
            if target in index:
                self._room.take(_RELA.size)
                (stored,) = _ADDEND.unpack_from(initial, at)
                places.append(Relocation(at, index[target], stored if addend is None else addend))
        return VariableInfo(
            name=symbol.name,
            size=symbol.size,
            align=max(1, min(section.align, 1 << 12)),
            initial=initial,
            relocations=tuple(places),
            is_const=section.name == ".nv.constant3",
            is_managed=bool(symbol.other & _MANAGED),
            linkage="",
        )

    def _relocations(self, sections: set[int]) -> dict[int, list[_Relocation]]:
        """Of each section the addresses in it, by their offset."""
        found: dict[int, list[_Relocation]] = {}
        for section in self._sections:
            if section.type not in (_RELA_TYPE, _REL_TYPE) or section.info not in sections:
                continue
            form = _RELA if section.type == _RELA_TYPE else _REL
            if section.size % form.size:
                raise _damaged("has relocations of an unknown form")
            for offset, info, *addend in form.iter_unpack(self._contents(section)):
                if info & 0xFFFFFFFF in _ADDRESSES:
                    found.setdefault(section.info, []).append(
                        (offset, info >> 32, addend[0] if addend else None)
                    )
        for inside in found.values():
            inside.sort(key=lambda each: each[0])
        return found

    # -- bytes

    def _check(self, offset: int, size: int) -> None:
        if offset > len(self._image) or size > len(self._image) - offset:
            raise _damaged("has a part outside itself")

    def _bytes(self, offset: int, size: int) -> bytes:
        self._check(offset, size)
        return self._image[offset : offset + size]

    def _contents(self, section: _Section) -> bytes:
        if section.type == _NOBITS:
            raise _damaged("has a table without contents")
        self._room.take(section.size)
        return self._bytes(section.offset, section.size)

    def _text(self, texts: bytes, offset: int) -> str:
        end = texts.find(b"\0", offset)
        if end < 0:
            raise _damaged("has a name that does not end")
        self._room.take(end - offset)
        try:
            return texts[offset:end].decode()
        except UnicodeDecodeError:
            raise _damaged("has a name that is no text") from None


def _damaged(what: str) -> ImageError:
    return ImageError(INVALID_IMAGE, f"the machine code's file {what}")
