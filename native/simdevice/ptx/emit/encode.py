"""Floats to the bits of narrower formats, and back."""

from __future__ import annotations

from ..types import F16, F32
from . import numbers
from .floats import PURE
from .function import FunctionEmitter

# Formats as sim_fp_encode and sim_fp_decode number them.
_FORMATS = ("f16", "bf16", "e4m3", "e5m2", "tf32", "e2m1", "e2m3", "e3m2")
_MODES = {**numbers.MODES, "rna": 4}


def encode(e: FunctionEmitter, value: str, form: str, mode: str, relu: bool, finite: bool) -> str:
    """float to the bits of a half."""
    if finite or mode not in ("rn",):
        bits = encode_call(e, value, form, mode, relu, finite)
        return e.op(f"trunc i32 {bits} to i16")
    if relu:
        value = numbers.relu(e, F32, value)
    if form == "bf16":
        return numbers.narrow_bf16(e, value)
    half = e.op(f"fptrunc float {value} to half")
    return numbers.bits_of(e, F16, numbers.canonical(e, F16, half))


def encode_call(e: FunctionEmitter, value: str, form: str, mode: str, relu: bool, finite: bool) -> str:
    if relu:
        value = numbers.relu(e, F32, value)
    wide = e.op(f"fpext float {value} to double")
    code = _MODES.get(mode)
    if code is None:
        raise e.fail(f"no .{mode}")
    arguments = (f"double {wide}", f"i32 {_FORMATS.index(form)}", f"i32 {code}", f"i32 {int(finite)}")
    return e.call("i32", "sim_fp_encode", *arguments, attributes=PURE)


def encode_double(e: FunctionEmitter, value: str, form: str, mode: str, finite: bool = False) -> str:
    code = _MODES.get(mode)
    if code is None:
        raise e.fail(f"no .{mode}")
    arguments = (f"double {value}", f"i32 {_FORMATS.index(form)}", f"i32 {code}", f"i32 {int(finite)}")
    return e.op(f"trunc i32 {e.call('i32', 'sim_fp_encode', *arguments, attributes=PURE)} to i16")


def power_of(e: FunctionEmitter, code: str) -> str:
    """The float of a ue8m0 in an i32, a NaN for 255."""
    bits = e.op(f"shl i32 {code}, 23")
    bits = e.op(f"select i1 {e.op(f'icmp eq i32 {code}, 0')}, i32 {0x400000}, i32 {bits}")
    none = e.op(f"icmp eq i32 {code}, 255")
    return numbers.from_bits(e, F32, e.op(f"select i1 {none}, i32 {0x7FFFFFFF}, i32 {bits}"))


def decode(e: FunctionEmitter, bits: str, form: str) -> str:
    """The float of an i32."""
    arguments = (f"i32 {bits}", f"i32 {_FORMATS.index(form)}")
    return e.call("float", "sim_fp_decode", *arguments, attributes=PURE)
