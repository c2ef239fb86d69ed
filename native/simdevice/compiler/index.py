"""The binary form of a module that exec/image.c reads: exec/index.h has the layout."""

from __future__ import annotations

import struct

from gpuferry.native.simdevice.ptx import Module
from gpuferry.native.simdevice.ptx.types import REFERENCES

from .machine_code import MachineCode

MAGIC = 0x3649444E49465347
NO_INITIAL = (1 << 64) - 1

_HEADER = struct.Struct("<QIIIIIIIIQQQ")
_KERNEL = struct.Struct("<17I4xQ")
_VARIABLE = struct.Struct("<QQQIIII")
_RELOCATION = struct.Struct("<QqIHH")
_PARAM = struct.Struct("<II")
_REFERENCES = ("", *REFERENCES)


class _Pool:
    """Byte strings laid one after another; each is asked for by its offset."""

    def __init__(self, align: int) -> None:
        self.bytes = bytearray()
        self._align = align

    def add(self, data: bytes) -> int:
        self.bytes.extend(bytes(-len(self.bytes) % self._align))
        offset = len(self.bytes)
        self.bytes += data
        return offset


def build(module: Module | MachineCode, source: bytes, most_registers: int = 0) -> bytes:
    strings, data = _Pool(1), _Pool(8)
    kernels, variables, relocations, params = bytearray(), bytearray(), bytearray(), bytearray()
    for kernel in module.kernels:
        first = len(params) // _PARAM.size
        for offset, size, *_ in kernel.params:
            params += _PARAM.pack(offset, size)
        kernels += _KERNEL.pack(
            strings.add(kernel.name.encode() + b"\0"),
            first,
            len(kernel.params),
            kernel.param_bytes,
            kernel.shared_static,
            kernel.local_bytes,
            kernel.const_bytes,
            min(kernel.registers, most_registers or kernel.registers),
            kernel.max_threads,
            *kernel.required,
            *kernel.cluster,
            kernel.most_cluster,
            kernel.explicit_cluster,
            kernel.handle,
        )
    for variable in module.variables:
        first = len(relocations) // _RELOCATION.size
        for each in variable.relocations:
            relocations += _RELOCATION.pack(each.offset, each.addend, each.variable, each.first, each.size)
        variables += _VARIABLE.pack(
            variable.size,
            variable.align,
            NO_INITIAL if variable.initial is None else data.add(variable.initial),
            strings.add(variable.name.encode() + b"\0"),
            first,
            len(variable.relocations),
            variable.is_const | variable.is_managed << 1 | _REFERENCES.index(variable.reference) << 2,
        )
    header = _HEADER.pack(
        MAGIC,
        module.isa,
        module.target,
        module.binary if isinstance(module, MachineCode) else 0,
        0,
        len(module.kernels),
        len(module.variables),
        len(relocations) // _RELOCATION.size,
        len(params) // _PARAM.size,
        len(data.bytes),
        len(strings.bytes),
        len(source),
    )
    parts = [header, kernels, variables, relocations, params, data.bytes, strings.bytes, source]
    return b"".join(bytes(part) + bytes(-len(part) % 8) for part in parts)
