"""Integer arithmetic of 16, 32 and 64 bits."""

from __future__ import annotations

from ..model import Instruction
from ..types import B32, PRED, TYPES, U32, Type
from .function import FunctionEmitter, Slot
from .modifiers import Modifiers
from .registry import opcode


def minimum(kind: Type) -> int:
    return -(1 << (kind.bits - 1)) if kind.signed else 0


def integer_type(e: FunctionEmitter, m: Modifiers, *bits: int) -> Type:
    kind = m.type()
    if kind.kind not in "usb" or kind.bits not in (bits or (16, 32, 64)):
        raise e.fail(f"not for .{kind.name}")
    return kind


def _carry(e: FunctionEmitter) -> Slot:
    return e.hidden_slot(".carry", PRED)


def _with_carry(e: FunctionEmitter, kind: Type, name: str, a: str, b: str, use: bool, define: bool) -> str:
    """a±b, with the carry if `use`; sets the carry if `define`.

    The carry is the one adder's, where a-b is a+~b+1: after a subtraction it says that nothing was borrowed.
    """
    result, carry = _step(e, kind, name, a, b)
    if use:
        wide = e.op(f"zext i1 {_flag(e, name, e.load_slot(_carry(e)))} to {kind.llvm}")
        result, another = _step(e, kind, name, result, wide)
        carry = e.op(f"or i1 {carry}, {another}")
    if define:
        e.store_slot(_carry(e), _flag(e, name, carry))
    return result


def _step(e: FunctionEmitter, kind: Type, name: str, a: str, b: str) -> tuple[str, str]:
    """a±b, and whether that is carried or borrowed. LLVM has one instruction for both, which its quick
    selection of instructions does not survive with vectors.
    """
    result = e.op(f"{name} {kind.llvm} {a}, {b}")
    less, than = (result, a) if name == "add" else (a, b)
    return result, e.op(f"icmp ult {kind.llvm} {less}, {than}")


def _flag(e: FunctionEmitter, name: str, carry: str) -> str:
    """The flag of what is carried or borrowed, and what is carried or borrowed of the flag."""
    return e.op(f"xor i1 {carry}, true") if name == "sub" else carry


@opcode("add", "sub", "addc", "subc")
def add(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    kind = integer_type(e, m)
    saturate, define = m.flag("sat"), m.flag("cc")
    use = i.opcode.endswith("c")
    name = i.opcode[:3]
    d, x, y = e.operands(3)
    a, b = e.read(x, kind), e.read(y, kind)
    if use or define:
        e.write(d, kind, _with_carry(e, kind, name, a, b, use, define))
    elif saturate:
        if kind.name != "s32" and (name, kind) != ("add", U32):
            raise e.fail(".sat is for .s32, and sums of .u32")
        step = f"llvm.{kind.kind}{name}.sat.i32"
        e.write(d, kind, e.intrinsic(step, "i32", f"i32 {a}", f"i32 {b}"))
    else:
        e.write(d, kind, e.op(f"{name} {kind.llvm} {a}, {b}"))


def _product(e: FunctionEmitter, kind: Type, mode: str, a: str, b: str) -> tuple[Type, str]:
    """The product and its type."""
    if mode == "lo":
        return kind, e.op(f"mul {kind.llvm} {a}, {b}")
    extend = "sext" if kind.signed else "zext"
    wide = f"i{kind.bits * 2}"
    left = e.op(f"{extend} {kind.llvm} {a} to {wide}")
    right = e.op(f"{extend} {kind.llvm} {b} to {wide}")
    product = e.op(f"mul {wide} {left}, {right}")
    if mode == "wide":
        if kind.bits == 64:
            raise e.fail(".wide is not for 64 bits")
        return TYPES[f"{'s' if kind.signed else 'u'}{kind.bits * 2}"], product
    high = e.op(f"lshr {wide} {product}, {kind.bits}")
    return kind, e.op(f"trunc {wide} {high} to {kind.llvm}")


@opcode("mul")
def mul(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    kind = integer_type(e, m)
    mode = m.need("lo", "hi", "wide")
    d, x, y = e.operands(3)
    result, value = _product(e, kind, mode, e.read(x, kind), e.read(y, kind))
    e.write(d, result, value)


@opcode("mad", "madc")
def mad(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    kind = integer_type(e, m)
    mode = m.need("lo", "hi", "wide")
    saturate, define = m.flag("sat"), m.flag("cc")
    use = i.opcode == "madc"
    d, x, y, z = e.operands(4)
    result, value = _product(e, kind, mode, e.read(x, kind), e.read(y, kind))
    c = e.read(z, result)
    if use or define:
        value = _with_carry(e, result, "add", value, c, use, define)
    elif saturate:
        if kind.name != "s32" or mode != "hi":
            raise e.fail(".sat is for .hi.s32")
        value = e.intrinsic("llvm.sadd.sat.i32", "i32", f"i32 {value}", f"i32 {c}")
    else:
        value = e.op(f"add {result.llvm} {value}, {c}")
    e.write(d, result, value)


@opcode("mul24", "mad24")
def mul24(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    kind = integer_type(e, m, 32)
    mode = m.need("lo", "hi")
    saturate = m.flag("sat")
    operands = e.operands(3 if i.opcode == "mul24" else 4)
    shift = "ashr" if kind.signed else "lshr"
    extend = "sext" if kind.signed else "zext"
    factors = []
    for operand in operands[1:3]:
        high = e.op(f"shl i32 {e.read(operand, kind)}, 8")
        factors.append(e.op(f"{extend} i32 {e.op(f'{shift} i32 {high}, 8')} to i64"))
    product = e.op(f"mul i64 {factors[0]}, {factors[1]}")
    if mode == "hi":
        product = e.op(f"lshr i64 {product}, 16")
    value = e.op(f"trunc i64 {product} to i32")
    if i.opcode == "mad24":
        c = e.read(operands[3], kind)
        if saturate:
            value = e.intrinsic("llvm.sadd.sat.i32", "i32", f"i32 {value}", f"i32 {c}")
        else:
            value = e.op(f"add i32 {value}, {c}")
    elif saturate:
        raise e.fail(".sat is for mad24")
    e.write(operands[0], kind, value)


def absolute_difference(e: FunctionEmitter, kind: Type, a: str, b: str) -> str:
    less = e.op(f"icmp {'slt' if kind.signed else 'ult'} {kind.llvm} {a}, {b}")
    forth = e.op(f"sub {kind.llvm} {a}, {b}")
    back = e.op(f"sub {kind.llvm} {b}, {a}")
    return e.op(f"select i1 {less}, {kind.llvm} {back}, {kind.llvm} {forth}")


@opcode("sad")
def sad(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    kind = integer_type(e, m)
    d, x, y, z = e.operands(4)
    difference = absolute_difference(e, kind, e.read(x, kind), e.read(y, kind))
    e.write(d, kind, e.op(f"add {kind.llvm} {difference}, {e.read(z, kind)}"))


@opcode("clmad")
def clmad(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    """Sums are without carries as well."""
    kind = integer_type(e, m, 64)
    high = m.need("lo", "hi") == "hi"
    d, x, y, z = e.operands(4)
    arguments = (f"i64 {e.read(x, kind)}", f"i64 {e.read(y, kind)}", f"i32 {int(high)}")
    product = e.call("i64", "sim_int_clmul", *arguments, attributes=" nounwind willreturn memory(none)")
    e.write(d, kind, e.op(f"xor i64 {product}, {e.read(z, kind)}"))


@opcode("div", "rem")
def div(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    kind = integer_type(e, m)
    d, x, y = e.operands(3)
    t = kind.llvm
    a, b = e.read(x, kind), e.read(y, kind)
    # PTX leaves division by zero open and it must not stop the host: the GPU yields all ones; rem yields a.
    zero = e.op(f"icmp eq {t} {b}, 0")
    odd = zero
    if kind.signed:
        lowest = e.op(f"icmp eq {t} {a}, {minimum(kind)}")
        negative = e.op(f"icmp eq {t} {b}, -1")
        odd = e.op(f"or i1 {zero}, {e.op(f'and i1 {lowest}, {negative}')}")
    safe = e.op(f"select i1 {odd}, {t} 1, {t} {b}")
    name = ("s" if kind.signed else "u") + i.opcode
    value = e.op(f"{name} {t} {a}, {safe}")
    special = "-1" if i.opcode == "div" else a
    e.write(d, kind, e.op(f"select i1 {zero}, {t} {special}, {t} {value}"))


@opcode("abs", "neg")
def absolute(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    kind = integer_type(e, m)
    d, x = e.operands(2)
    a = e.read(x, kind)
    negated = e.op(f"sub {kind.llvm} 0, {a}")
    if i.opcode == "abs":
        negative = e.op(f"icmp slt {kind.llvm} {a}, 0")
        negated = e.op(f"select i1 {negative}, {kind.llvm} {negated}, {kind.llvm} {a}")
    e.write(d, kind, negated)


@opcode("min", "max")
def minmax(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    kind = integer_type(e, m)
    relu = m.flag("relu")
    d, x, y = e.operands(3)
    t = kind.llvm
    name = ("s" if kind.signed else "u") + i.opcode
    value = e.intrinsic(f"llvm.{name}.{t}", t, f"{t} {e.read(x, kind)}", f"{t} {e.read(y, kind)}")
    if relu:
        if kind.name != "s32":
            raise e.fail(".relu is for .s32")
        value = e.intrinsic(f"llvm.smax.{t}", t, f"{t} {value}", f"{t} 0")
    e.write(d, kind, value)


@opcode("popc", "clz")
def count(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    kind = integer_type(e, m, 32, 64)
    d, x = e.operands(2)
    t = kind.llvm
    a = e.read(x, kind)
    if i.opcode == "popc":
        value = e.intrinsic(f"llvm.ctpop.{t}", t, f"{t} {a}")
    else:
        value = e.intrinsic(f"llvm.ctlz.{t}", t, f"{t} {a}", "i1 false")
    e.write(d, U32, e.resize(value, kind.bits, 32, False))


@opcode("bfind")
def bfind(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    kind = integer_type(e, m, 32, 64)
    shiftamt = m.flag("shiftamt")
    d, x = e.operands(2)
    t = kind.llvm
    a = e.read(x, kind)
    if kind.signed:
        a = e.op(f"xor {t} {a}, {e.op(f'ashr {t} {a}, {kind.bits - 1}')}")
    zeros = e.intrinsic(f"llvm.ctlz.{t}", t, f"{t} {a}", "i1 false")
    value = zeros if shiftamt else e.op(f"sub {t} {kind.bits - 1}, {zeros}")
    none = e.op(f"icmp eq {t} {a}, 0")
    value = e.op(f"select i1 {none}, i32 -1, i32 {e.resize(value, kind.bits, 32, False)}")
    e.write(d, U32, value)


@opcode("fns")
def fns(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    integer_type(e, m, 32)
    d, x, y, z = e.operands(4)
    arguments = [f"i32 {e.read(each, B32)}" for each in (x, y, z)]
    e.write(d, B32, e.call("i32", "sim_int_fns", *arguments, attributes=" nounwind willreturn memory(none)"))
