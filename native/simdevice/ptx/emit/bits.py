"""Logic, shifts, bit fields and byte permutation."""

from __future__ import annotations

from ..model import Immediate, Instruction, Pair
from ..types import B32, PRED, U32, Type
from .function import FunctionEmitter
from .integer import integer_type
from .modifiers import Modifiers
from .registry import opcode


def shift_left(e: FunctionEmitter, bits: int, value: str, amount: str) -> str:
    """value << amount, 0 from `bits` on; both are of `bits` bits."""
    return _shift(e, "shl", bits, value, amount)


def shift_right(e: FunctionEmitter, bits: int, value: str, amount: str) -> str:
    return _shift(e, "lshr", bits, value, amount)


def _shift(e: FunctionEmitter, name: str, bits: int, value: str, amount: str) -> str:
    shifted = e.op(f"{name} i{bits} {value}, {amount}")
    far = e.op(f"icmp ugt i{bits} {amount}, {bits - 1}")
    return e.op(f"select i1 {far}, i{bits} 0, i{bits} {shifted}")


def _clamp(e: FunctionEmitter, bits: int, value: str, limit: int) -> str:
    return e.intrinsic(f"llvm.umin.i{bits}", f"i{bits}", f"i{bits} {value}", f"i{bits} {limit}")


@opcode("and", "or", "xor")
def logic(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    kind = m.type()
    d, x, y = e.operands(3)
    a, b = e.read_bits(x, kind.bits), e.read_bits(y, kind.bits)
    e.write_bits(d, kind.bits, e.op(f"{i.opcode} {kind.integer} {a}, {b}"))


@opcode("not")
def invert(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    kind = m.type()
    d, x = e.operands(2)
    e.write_bits(d, kind.bits, e.op(f"xor {kind.integer} {e.read_bits(x, kind.bits)}, -1"))


@opcode("cnot")
def cnot(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    kind = integer_type(e, m)
    d, x = e.operands(2)
    zero = e.op(f"icmp eq {kind.llvm} {e.read(x, kind)}, 0")
    e.write(d, kind, e.op(f"zext i1 {zero} to {kind.llvm}"))


def _amount(e: FunctionEmitter, kind: Type, value: str) -> str:
    """A 32-bit shift amount in the width of what is shifted, kept too far if it is too far."""
    if kind.bits == 64:
        return e.op(f"zext i32 {value} to i64")
    if kind.bits == 16:
        return e.op(f"trunc i32 {_clamp(e, 32, value, 16)} to i16")
    return value


@opcode("shl")
def shl(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    kind = integer_type(e, m)
    d, x, y = e.operands(3)
    amount = _amount(e, kind, e.read(y, U32))
    e.write(d, kind, shift_left(e, kind.bits, e.read(x, kind), amount))


@opcode("shr")
def shr(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    kind = integer_type(e, m)
    d, x, y = e.operands(3)
    amount = _amount(e, kind, e.read(y, U32))
    value = e.read(x, kind)
    if kind.signed:
        clamped = _clamp(e, kind.bits, amount, kind.bits - 1)
        e.write(d, kind, e.op(f"ashr {kind.llvm} {value}, {clamped}"))
    else:
        e.write(d, kind, shift_right(e, kind.bits, value, amount))


@opcode("shf")
def funnel(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    integer_type(e, m, 32)
    direction, mode = m.need("l", "r"), m.need("wrap", "clamp")
    d, x, y, z = e.operands(4)
    low = e.op(f"zext i32 {e.read(x, B32)} to i64")
    high = e.op(f"zext i32 {e.read(y, B32)} to i64")
    both = e.op(f"or i64 {e.op(f'shl i64 {high}, 32')}, {low}")
    n = e.read(z, B32)
    n = e.op(f"and i32 {n}, 31") if mode == "wrap" else _clamp(e, 32, n, 32)
    amount = e.op(f"zext i32 {n} to i64")
    if direction == "l":
        shifted = e.op(f"lshr i64 {e.op(f'shl i64 {both}, {amount}')}, 32")
    else:
        shifted = e.op(f"lshr i64 {both}, {amount}")
    e.write(d, B32, e.op(f"trunc i64 {shifted} to i32"))


@opcode("brev")
def brev(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    kind = integer_type(e, m, 32, 64)
    d, x = e.operands(2)
    t = kind.llvm
    e.write(d, kind, e.intrinsic(f"llvm.bitreverse.{t}", t, f"{t} {e.read(x, kind)}"))


def _byte(e: FunctionEmitter, kind: Type, value: str) -> str:
    """Positions and lengths are the low eight bits of a register."""
    low = e.op(f"and i32 {value}, 255")
    return e.resize(low, 32, kind.bits, False)


def _ones(e: FunctionEmitter, bits: int, length: str) -> str:
    """`length` ones."""
    return e.op(f"sub i{bits} {shift_left(e, bits, '1', length)}, 1")


@opcode("bfe")
def bfe(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    kind = integer_type(e, m, 32, 64)
    d, x, y, z = e.operands(4)
    t, bits = kind.llvm, kind.bits
    a = e.read(x, kind)
    position, length = _byte(e, kind, e.read(y, U32)), _byte(e, kind, e.read(z, U32))
    if not kind.signed:
        moved = shift_right(e, bits, a, position)
        e.write(d, kind, e.op(f"and {t} {moved}, {_ones(e, bits, length)}"))
        return
    moved = e.op(f"ashr {t} {a}, {_clamp(e, bits, position, bits - 1)}")
    spare = e.op(f"sub {t} {bits}, {_clamp(e, bits, length, bits)}")
    field = e.op(f"ashr {t} {e.op(f'shl {t} {moved}, {spare}')}, {spare}")
    empty = e.op(f"icmp eq {t} {length}, 0")
    e.write(d, kind, e.op(f"select i1 {empty}, {t} 0, {t} {field}"))


@opcode("bfi")
def bfi(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    kind = integer_type(e, m, 32, 64)
    f, x, y, z, w = e.operands(5)
    t, bits = kind.llvm, kind.bits
    a, b = e.read(x, kind), e.read(y, kind)
    position, length = _byte(e, kind, e.read(z, U32)), _byte(e, kind, e.read(w, U32))
    mask = shift_left(e, bits, _ones(e, bits, length), position)
    inserted = e.op(f"and {t} {shift_left(e, bits, a, position)}, {mask}")
    kept = e.op(f"and {t} {b}, {e.op(f'xor {t} {mask}, -1')}")
    e.write(f, kind, e.op(f"or {t} {inserted}, {kept}"))


@opcode("bmsk")
def bmsk(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    integer_type(e, m, 32)
    mode = m.need("clamp", "wrap")
    d, x, y = e.operands(3)
    position, length = e.read(x, B32), e.read(y, B32)
    if mode == "wrap":
        position, length = e.op(f"and i32 {position}, 31"), e.op(f"and i32 {length}, 31")
    e.write(d, B32, shift_left(e, 32, _ones(e, 32, length), position))


@opcode("szext")
def szext(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    kind = integer_type(e, m, 32)
    mode = m.need("clamp", "wrap")
    d, x, y = e.operands(3)
    a, n = e.read(x, kind), e.read(y, U32)
    n = e.op(f"and i32 {n}, 31") if mode == "wrap" else _clamp(e, 32, n, 32)
    if not kind.signed:
        e.write(d, kind, e.op(f"and i32 {a}, {_ones(e, 32, n)}"))
        return
    spare = e.op(f"sub i32 32, {n}")
    field = e.op(f"ashr i32 {e.op(f'shl i32 {a}, {spare}')}, {spare}")
    empty = e.op(f"icmp eq i32 {n}, 0")
    e.write(d, kind, e.op(f"select i1 {empty}, i32 0, i32 {field}"))


def _lookup2(e: FunctionEmitter, table: int, b: str, c: str) -> str:
    """The function of two words whose truth table has bit 2*b+c."""
    terms = "0"
    for index in range(4):
        if table >> index & 1:
            left = b if index & 2 else e.op(f"xor i32 {b}, -1")
            right = c if index & 1 else e.op(f"xor i32 {c}, -1")
            terms = e.op(f"or i32 {terms}, {e.op(f'and i32 {left}, {right}')}")
    return terms


@opcode("lop3")
def lop3(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    integer_type(e, m, 32)
    combine = m.choice("and", "or", "xor")
    operands = e.operands(6 if combine else 5)
    d, x, y, z, lut = operands[:5]
    if not isinstance(lut, Immediate) or not isinstance(lut.value, int):
        raise e.fail("the table must be a constant")
    table = lut.value & 255  # of others ptxas takes these bits too
    a, b, c = e.read(x, B32), e.read(y, B32), e.read(z, B32)
    ones = e.op(f"and i32 {a}, {_lookup2(e, table >> 4, b, c)}")
    zeros = e.op(f"and i32 {e.op(f'xor i32 {a}, -1')}, {_lookup2(e, table & 15, b, c)}")
    value = e.op(f"or i32 {ones}, {zeros}")
    if combine:
        if not isinstance(d, Pair):
            raise e.fail("needs d|p")
        q = e.predicate(operands[5])
        e.write(d.second, PRED, e.op(f"{combine} i1 {e.op(f'icmp ne i32 {value}, 0')}, {q}"))
        d = d.first
    e.write(d, B32, value)


@opcode("prmt")
def prmt(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    integer_type(e, m, 32)
    mode = m.choice("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")
    d, x, y, z = e.operands(4)
    low = e.op(f"zext i32 {e.read(x, B32)} to i64")
    high = e.op(f"zext i32 {e.read(y, B32)} to i64")
    both = e.op(f"or i64 {e.op(f'shl i64 {high}, 32')}, {low}")
    control = e.read(z, B32)
    result = "0"
    for index in range(4):
        byte = _select_byte(e, both, _selector(e, mode, control, index))
        if mode is None:
            flag = e.op(f"and i32 {e.op(f'lshr i32 {control}, {4 * index}')}, 8")
            sign = e.op(f"ashr i8 {byte}, 7")
            replicate = e.op(f"icmp ne i32 {flag}, 0")
            byte = e.op(f"select i1 {replicate}, i8 {sign}, i8 {byte}")
        wide = e.op(f"shl i32 {e.op(f'zext i8 {byte} to i32')}, {8 * index}")
        result = e.op(f"or i32 {result}, {wide}")
    e.write(d, B32, result)


def _selector(e: FunctionEmitter, mode: str | None, control: str, index: int) -> str:
    """Which of the eight bytes goes to byte `index`."""
    if mode is None:
        return e.op(f"and i32 {e.op(f'lshr i32 {control}, {4 * index}')}, 7")
    n = e.op(f"and i32 {control}, {1 if mode == 'rc16' else 3}")
    if mode == "f4e":
        return e.op(f"add i32 {n}, {index}")
    if mode == "b4e":
        return e.op(f"and i32 {e.op(f'sub i32 {n}, {index}')}, 7")
    if mode == "rc8":
        return n
    if mode == "rc16":
        return e.op(f"or i32 {e.op(f'shl i32 {n}, 1')}, {index & 1}")
    return e.intrinsic(
        "llvm.umax.i32" if mode == "ecl" else "llvm.umin.i32", "i32", f"i32 {n}", f"i32 {index}"
    )


def _select_byte(e: FunctionEmitter, both: str, selector: str) -> str:
    amount = e.op(f"zext i32 {e.op(f'shl i32 {selector}, 3')} to i64")
    return e.op(f"trunc i64 {e.op(f'lshr i64 {both}, {amount}')} to i8")
