"""Video instructions: arithmetic on selected bytes and half words of registers."""

from __future__ import annotations

import re

from ..model import Instruction, Negative, Operand, Register
from ..types import B32, S32, U32, Type
from .function import FunctionEmitter
from .modifiers import Modifiers
from .registry import opcode

_SELECTOR = re.compile(r"(.+)\.(b[0-3]|h[01])\Z")
_COMPARISONS = {"eq": "eq", "ne": "ne", "lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge"}


def _select(operand: Operand) -> tuple[Operand, str | None]:
    """The register and the selected part of `%r1.h0`."""
    if isinstance(operand, Register):
        found = _SELECTOR.match(operand.name)
        if found is not None:
            return Register(found[1]), found[2]
    return operand, None


def _source(e: FunctionEmitter, operand: Operand, kind: Type) -> str:
    """A source in 66 bits, so that nothing that follows overflows."""
    register, part = _select(operand)
    word = e.read(register, B32)
    bits = 32
    if part is not None:
        bits = 8 if part[0] == "b" else 16
        shifted = e.op(f"lshr i32 {word}, {bits * int(part[1])}")
        word = e.op(f"trunc i32 {shifted} to i{bits}")
    return e.op(f"{'sext' if kind.signed else 'zext'} i{bits} {word} to i66")


def _clamp(e: FunctionEmitter, value: str, low: int, high: int) -> str:
    value = e.intrinsic("llvm.smax.i66", "i66", f"i66 {value}", f"i66 {low}")
    return e.intrinsic("llvm.smin.i66", "i66", f"i66 {value}", f"i66 {high}")


def _range(bits: int, signed: bool) -> tuple[int, int]:
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)


def _finish(
    e: FunctionEmitter, m: Modifiers, d: Operand, value: str, kind: Type, saturate: bool, rest: list[Operand]
) -> None:
    """Saturates, merges or combines with the third source, and writes."""
    register, part = _select(d)
    bits = 32 if part is None else 8 if part[0] == "b" else 16
    if saturate:
        value = _clamp(e, value, *_range(bits, kind.signed))
    word = e.op(f"trunc i66 {value} to i32")
    combine = m.choice("add", "min", "max")
    if part is not None:
        shift = bits * int(part[1])
        mask = ((1 << bits) - 1) << shift
        c = e.read(rest[0], B32)
        kept = e.op(f"and i32 {c}, {~mask & 0xFFFFFFFF}")
        moved = e.op(f"and i32 {e.op(f'shl i32 {word}, {shift}')}, {mask}")
        word = e.op(f"or i32 {kept}, {moved}")
    elif combine is not None:
        c = e.read(rest[0], B32)
        if combine == "add":
            word = e.op(f"add i32 {word}, {c}")
        else:
            word = e.intrinsic(
                f"llvm.{'s' if kind.signed else 'u'}{combine}.i32", "i32", f"i32 {word}", f"i32 {c}"
            )
    e.write(register, B32, word)


def _third(e: FunctionEmitter, m: Modifiers, minimum: int) -> list[Operand]:
    """The operands; a third source without a use is not looked at, as ptxas has it."""
    found = e.operands(minimum, minimum + 1)
    used = _select(found[0])[1] is not None or any(each in m.flags for each in ("add", "min", "max"))
    if used and len(found) == minimum:
        raise e.fail("a third source is missing")
    return found if used else found[:minimum]


@opcode("vadd", "vsub", "vabsdiff", "vmin", "vmax")
def vadd(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    kind, a_type, b_type = m.type(), m.type(), m.type()
    saturate = m.flag("sat")
    d, x, y, *rest = _third(e, m, 3)
    a, b = _source(e, x, a_type), _source(e, y, b_type)
    if i.opcode in ("vmin", "vmax"):
        value = e.intrinsic(f"llvm.s{i.opcode[1:]}.i66", "i66", f"i66 {a}", f"i66 {b}")
    else:
        value = e.op(f"{'add' if i.opcode == 'vadd' else 'sub'} i66 {a}, {b}")
    if i.opcode == "vabsdiff":
        value = e.intrinsic("llvm.abs.i66", "i66", f"i66 {value}", "i1 false")
    _finish(e, m, d, value, kind, saturate, rest)


@opcode("vshl", "vshr")
def vshift(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    kind, a_type, b_type = m.type(), m.type(), m.type()
    if b_type is not U32:
        raise e.fail("shifts by .u32")
    saturate = m.flag("sat")
    wrap = m.need("clamp", "wrap") == "wrap"
    d, x, y, *rest = _third(e, m, 3)
    a, n = _source(e, x, a_type), _source(e, y, b_type)
    n = e.op(f"and i66 {n}, 31") if wrap else e.intrinsic("llvm.umin.i66", "i66", f"i66 {n}", "i66 32")
    value = e.op(f"{'shl' if i.opcode == 'vshl' else 'ashr'} i66 {a}, {n}")
    _finish(e, m, d, value, kind, saturate, rest)


@opcode("vset")
def vset(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    a_type, b_type = m.type(), m.type()
    comparison = m.need(*_COMPARISONS)
    d, x, y, *rest = _third(e, m, 3)
    holds = e.op(f"icmp {_COMPARISONS[comparison]} i66 {_source(e, x, a_type)}, {_source(e, y, b_type)}")
    _finish(e, m, d, e.op(f"zext i1 {holds} to i66"), U32, False, rest)


def _positive(operand: Operand) -> Operand:
    return Register(operand.name) if isinstance(operand, Negative) else operand


@opcode("vmad")
def vmad(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    """a*b + c, of which one may be negative; shifted right by 0, 7 or 15. c and the result have no sign where
    a, b and their product have none, whatever the result is said to be."""
    _, a_type, b_type = m.type(), m.type(), m.type()
    saturate, plus_one, shift = m.flag("sat"), m.flag("po"), m.choice("shr7", "shr15")
    d, *sources = e.operands(4)
    (x, y, z), minus = map(_positive, sources), [isinstance(each, Negative) for each in sources]
    less_product, less_c = minus[0] != minus[1], minus[2]
    if (less_product and less_c) or (plus_one and any(minus)):
        raise e.fail("either the product or c is negative, and none with .po")
    third = S32 if a_type.signed or b_type.signed or less_product or less_c else U32
    a, b, c = _source(e, x, a_type), _source(e, y, b_type), _source(e, z, third)
    product = e.op(f"mul i66 {a}, {b}")
    if less_product:
        total = e.op(f"sub i66 {c}, {product}")
    else:
        total = e.op(f"{'sub' if less_c else 'add'} i66 {product}, {c}")
    if plus_one:
        total = e.op(f"add i66 {total}, 1")
    if shift:
        total = e.op(f"ashr i66 {total}, {shift[3:]}")
    if saturate:
        total = _clamp(e, total, *_range(32, third.signed))
    e.write(d, B32, e.op(f"trunc i66 {total} to i32"))


def _simd_select(operand: Operand) -> tuple[Operand, str | None]:
    """`%r1.h10`: the half words or bytes that make up the lanes; `d.b3210` masks those written."""
    if isinstance(operand, Register):
        name, dot, lanes = operand.name.rpartition(".")
        if dot and re.fullmatch(r"h[0-3]{1,2}|b[0-7]{1,4}", lanes):
            return Register(name), lanes[1:]
    return operand, None


def _lanes(
    e: FunctionEmitter, x: str, y: str, selector: str | None, second: bool, bits: int, signed: bool
) -> list[str]:
    """The lanes of a source in 34 bits; a selector picks among those of both sources, lowest digit last."""
    count = 32 // bits
    chosen = (
        [int(digit) for digit in reversed(selector)]
        if selector
        else [n + count * second for n in range(count)]
    )
    lanes = []
    for index in chosen:
        word, lane = (y, index - count) if index >= count else (x, index)
        narrow = e.op(f"trunc i32 {e.op(f'lshr i32 {word}, {bits * lane}')} to i{bits}")
        lanes.append(e.op(f"{'sext' if signed else 'zext'} i{bits} {narrow} to i34"))
    return lanes


@opcode(
    *(
        f"{name}{lanes}"
        for name in ("vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax", "vset")
        for lanes in "24"
    )
)
def simd(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    """Emit an operation on two half words or four bytes; a third word is added to it, or merged."""
    name, bits = i.opcode[:-1], 16 if i.opcode[-1] == "2" else 8
    is_set = name == "vset"
    kind = U32 if is_set else m.type()
    a_type, b_type = m.type(), m.type()
    comparison = m.need(*_COMPARISONS) if is_set else ""
    saturate, add = m.flag("sat"), m.flag("add")
    d, x, y, *rest = e.operands(3, 4)
    target, mask = _simd_select(d)
    (a, a_lanes), (b, b_lanes) = _simd_select(x), _simd_select(y)
    words = e.read(a, B32), e.read(b, B32)
    left = _lanes(e, *words, a_lanes, False, bits, a_type.signed)
    right = _lanes(e, *words, b_lanes, True, bits, b_type.signed)
    if len(left) != 32 // bits or len(right) != 32 // bits:
        raise e.fail("a selector has the wrong length")
    third = e.read(rest[0], B32) if rest else "0"
    result = third if add else "0"
    for index, (p, q) in enumerate(zip(left, right, strict=True)):
        value = _simd_lane(e, name, comparison, p, q)
        if saturate:
            low, high = _range(bits, kind.signed)
            value = e.intrinsic("llvm.smax.i34", "i34", f"i34 {value}", f"i34 {low}")
            value = e.intrinsic("llvm.smin.i34", "i34", f"i34 {value}", f"i34 {high}")
        written = mask is None or str(index) in mask
        if add:
            # The lanes are summed into the third word.
            if written:
                result = e.op(f"add i32 {result}, {e.op(f'trunc i34 {value} to i32')}")
            continue
        lane = ((1 << bits) - 1) << bits * index
        moved = e.op(f"shl i32 {e.op(f'trunc i34 {value} to i32')}, {bits * index}") if written else third
        result = e.op(f"or i32 {result}, {e.op(f'and i32 {moved}, {lane}')}")
    e.write(target, B32, result)


def _simd_lane(e: FunctionEmitter, name: str, comparison: str, a: str, b: str) -> str:
    if comparison:
        return e.op(f"zext i1 {e.op(f'icmp {_COMPARISONS[comparison]} i34 {a}, {b}')} to i34")
    if name in ("vmin", "vmax"):
        return e.intrinsic(f"llvm.s{name[1:]}.i34", "i34", f"i34 {a}", f"i34 {b}")
    if name == "vavrg":
        # Rounded away from zero.
        total = e.op(f"add i34 {a}, {b}")
        positive = e.op(f"zext i1 {e.op(f'icmp sge i34 {total}, 0')} to i34")
        return e.op(f"ashr i34 {e.op(f'add i34 {total}, {positive}')}, 1")
    value = e.op(f"{'add' if name == 'vadd' else 'sub'} i34 {a}, {b}")
    return e.intrinsic("llvm.abs.i34", "i34", f"i34 {value}", "i1 false") if name == "vabsdiff" else value
