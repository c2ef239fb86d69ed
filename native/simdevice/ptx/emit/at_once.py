"""Vectors, and 128 bits, that move as a whole.

PTX lets the elements of a vector move one by one. GPUs move 16 bytes at once, and programs rely on it for
what other threads look at: CUB keeps the state of a tile and its sum side by side.
"""

from __future__ import annotations

from ..types import Type
from .function import FunctionEmitter

_BYTES = 16  # one instruction of the host moves them, and no other thread sees half of it
_WIDE = "<2 x i64>"


def load(e: FunctionEmitter, base: str, kind: Type, count: int, order: str) -> list[str]:
    """The elements, as integers. `order` is LLVM's."""
    size = kind.bytes * count
    if size < _BYTES:
        bits = 8 * size
        whole = e.op(f"load atomic i{bits}, ptr {base} {order}, align {size}")
        return [_element(e, whole, bits, index * kind.bits, kind) for index in range(count)]
    values = []
    for offset in range(0, size, _BYTES):
        # LLVM has no atomic load of 16 bytes on every machine, and keeps a volatile one whole.
        wide = e.op(f"load volatile {_WIDE}, ptr {e.behind(base, offset)}, align {_BYTES}")
        values += _unpack(e, wide, kind)
    if order == "acquire":
        e.emit("fence acquire")
    return values


def store(e: FunctionEmitter, base: str, kind: Type, values: list[str], order: str) -> None:
    """The other way."""
    size = kind.bytes * len(values)
    if size < _BYTES:
        bits, whole = 8 * size, "0"
        for index, value in enumerate(values):
            wide = e.resize(value, kind.bits, bits, False)
            whole = e.op(f"or i{bits} {whole}, {e.op(f'shl i{bits} {wide}, {index * kind.bits}')}")
        e.emit(f"store atomic i{bits} {whole}, ptr {base} {order}, align {size}")
        return
    if order == "release":
        e.emit("fence release")
    each = _BYTES // kind.bytes
    for first in range(0, len(values), each):
        wide = _pack(e, values[first : first + each], kind)
        e.emit(f"store volatile {_WIDE} {wide}, ptr {e.behind(base, first * kind.bytes)}, align {_BYTES}")


def _element(e: FunctionEmitter, whole: str, bits: int, shift: int, kind: Type) -> str:
    return e.resize(e.op(f"lshr i{bits} {whole}, {shift}"), bits, kind.bits, False)


def _unpack(e: FunctionEmitter, wide: str, kind: Type) -> list[str]:
    if kind.bytes == _BYTES:
        return [e.op(f"bitcast {_WIDE} {wide} to {kind.integer}")]
    count = _BYTES // kind.bytes
    vector = f"<{count} x {kind.integer}>"
    apart = e.op(f"bitcast {_WIDE} {wide} to {vector}")
    return [e.op(f"extractelement {vector} {apart}, i32 {index}") for index in range(count)]


def _pack(e: FunctionEmitter, values: list[str], kind: Type) -> str:
    if kind.bytes == _BYTES:
        return e.op(f"bitcast {kind.integer} {values[0]} to {_WIDE}")
    vector = f"<{len(values)} x {kind.integer}>"
    together = "poison"
    for index, value in enumerate(values):
        together = e.op(f"insertelement {vector} {together}, {kind.integer} {value}, i32 {index}")
    return e.op(f"bitcast {vector} {together} to {_WIDE}")
