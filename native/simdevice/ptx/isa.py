"""What the PTX ISA says of instructions, as far as it is looked at when an image is loaded (verify.py).

Which of them can be run here is another question, which their emitters answer at a launch. NVIDIA's ptxas
agrees with each line (tests/ptx/test_verify.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .types import TYPES


@dataclass(frozen=True)
class Form:
    """How an instruction is written.

    `operands`, a letter for each: `t` of the instruction's type, `w` of twice its width with .wide, `c` a
    whole number of 32 bits, `p` a predicate, `d` one or two of them that are written, `m` what mov moves, `l`
    what a load or a store may be narrower than, `L` such of the type that is named first, `*` anything. The
    last `optional` of them may be left out. `types`: what the type may be; empty: not looked at. `needs`: of
    a set one modifier must be there, if the type is of a kind ("f" floats, "i" whole numbers, "" any).
    """

    operands: str
    optional: int = 0
    types: frozenset[str] = frozenset()
    named: int = 1  # how many types the instruction must name
    needs: tuple[tuple[str, frozenset[str]], ...] = ()


_INTEGERS = "u16 s16 u32 s32 u64 s64"
_HALVES = "f16 f16x2 bf16 bf16x2"
_FLOATS = f"f32 f64 {_HALVES}"
_NUMBERS = f"{_INTEGERS} {_FLOATS}"
_ANY = f"b16 b32 b64 {_INTEGERS} f32 f64"
_ROUNDED = "rn rz rm rp"
_STORED = "b8 u8 s8 b128"
_COMPARED = "eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _forms(
    names: str, operands: str, types: str = "", optional: int = 0, named: int = 1, **needs: str
) -> dict[str, Form]:
    asked = tuple(("" if kind == "all" else kind, _words(each)) for kind, each in needs.items())
    form = Form(operands, optional, _words(types), named, asked)
    return dict.fromkeys(names.split(), form)


FORMS: dict[str, Form] = {
    **_forms("add sub", "ttt", f"{_NUMBERS} u16x2 s16x2 f32x2 u8x4 s8x4"),
    **_forms("addc subc", "ttt", _INTEGERS),
    **_forms("mul", "wtt", f"{_NUMBERS} f32x2", i="lo hi wide"),
    **_forms("mad", "wttw", f"{_INTEGERS} f32 f64", i="lo hi wide", f=_ROUNDED),
    **_forms("madc", "tttt", _INTEGERS, i="lo hi"),
    **_forms("mul24", "ttt", "u32 s32", i="lo hi"),
    **_forms("mad24", "tttt", "u32 s32", i="lo hi"),
    **_forms("fma", "tttt", f"{_FLOATS} f32x2", all=_ROUNDED),
    **_forms("sad", "tttt", _INTEGERS),
    **_forms("div", "ttt", f"{_INTEGERS} f32 f64", f=f"{_ROUNDED} approx full"),
    **_forms("rem", "ttt", _INTEGERS),
    **_forms("abs", "tt", f"s16 s32 s64 {_FLOATS}"),
    **_forms("neg", "tt", f"s16 s32 s64 s8x4 {_FLOATS}"),
    **_forms("popc clz", "ct", "b32 b64"),
    **_forms("bfind", "ct", "u32 s32 u64 s64"),
    **_forms("brev", "tt", "b32 b64"),
    **_forms("bfe", "ttcc", "u32 s32 u64 s64"),
    **_forms("bfi", "tttcc", "b32 b64"),
    **_forms("copysign", "ttt", "f32 f64"),
    **_forms("rcp sqrt", "tt", "f32 f64", all=f"{_ROUNDED} approx"),
    **_forms("rsqrt", "tt", "f32 f64", all="approx"),
    **_forms("sin cos lg2", "tt", "f32", all="approx"),
    **_forms("ex2", "tt", f"f32 {_HALVES}", all="approx"),
    **_forms("tanh", "tt", f"f32 {_HALVES}", all="approx"),
    **_forms("and or xor", "ttt", "pred b16 b32 b64"),
    **_forms("not", "tt", "pred b16 b32 b64"),
    **_forms("cnot", "tt", "b16 b32 b64"),
    **_forms("shl", "ttc", "b16 b32 b64"),
    **_forms("shr", "ttc", f"b16 b32 b64 {_INTEGERS}"),
    **_forms("shf", "tttt", "b32"),
    **_forms("prmt", "tttt", "b32"),
    **_forms("setp", "dttp", f"{_ANY} {_HALVES}", optional=1, all=_COMPARED),
    **_forms("selp", "tttp", _ANY),
    **_forms("mov", "mm", f"pred b128 {_ANY}"),
    **_forms("ld", "l**", f"{_STORED} {_ANY}", optional=1),
    **_forms("st", "*l*", f"{_STORED} {_ANY}", optional=1),
    **_forms("cvta", "**", "u32 u64"),
    **_forms("cvt", "Ll**", optional=2, named=2),
    **_forms("ret exit trap brkpt", "", named=0),
    **_forms("bra", "*", named=0),
    **_forms("activemask", "t", "b32"),
    **_forms("nanosleep", "t", "u32"),
}

# Those of which no more than the names of their operands is looked at.
OPCODES = frozenset(FORMS) | _words(
    """
    alloca applypriority atom bar barrier bmsk brx call clusterlaunchcontrol cp createpolicy discard
    dp2a dp4a elect fabric fence fns getctarank griddepcontrol isspacep istypep ldmatrix ldu lop3 mapa
    match max mbarrier membar min mma movmatrix multimem pmevent prefetch prefetchu red redux set
    setmaxnreg shfl slct stackrestore stacksave stmatrix suld suq sured sust szext tcgen05 tensormap
    testp tex tld4 txq vabsdiff vabsdiff2 vabsdiff4 vadd vadd2 vadd4 vavrg2 vavrg4 vmad vmax vmax2 vmax4
    vmin vmin2 vmin4 vote vset vset2 vset4 vshl vshr vsub vsub2 vsub4 wgmma wmma
    """
)

# Of these every modifier is known; the others have many of their own, and new ones with each version.
PLAIN = frozenset(FORMS) - {"cvt"} | _words("bmsk dp2a dp4a fns lop3 max min set slct szext testp")
MODIFIERS = frozenset(TYPES) | _words(
    f"""
    {_ROUNDED} {_COMPARED} rna rni rzi rmi rpi rs ftz sat satfinite relu approx full cc lo hi wide NaN xorsign
    abs oob and or xor l r clamp wrap f4e b4e rc8 ecl ecr rc16 shiftamt finite infinite number notanumber
    normal subnormal uni to v2 v4 v8 global const local param shared generic weak volatile relaxed acquire
    release mmio cta cluster gpu sys ca cg cs cv lu wb wt nc unified async bulk
    pack
    """
)

# With one of these an instruction has operands of its own, which no form here describes.
APART = _words("async bulk")

_SPECIAL = re.compile(
    r"%(?:n?(?:tid|ctaid|clusterid)|cluster_n?cta(?:id|rank)|laneid|n?warpid|n?smid|gridid|WARP_SZ|clock(?:_hi|64)?"
    r"|lanemask_(?:eq|lt|le|ge|gt)|pm\d(?:_64)?|envreg\d+|globaltimer(?:_lo|_hi)?|is_explicit_cluster"
    r"|(?:total|aggr|dynamic)_smem_size|reserved_smem_offset_\w+|current_graph_exec)\Z"
)


def is_special(name: str) -> bool:
    """Whether a name, without what follows a dot, is a register that every function has."""
    return _SPECIAL.match(name) is not None
