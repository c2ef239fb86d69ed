"""What the PTX ISA says of instructions, as far as it is looked at when an image is loaded (verify.py).

Which of them can be run here is another question, which their emitters answer at a launch. NVIDIA's ptxas
agrees with each line (tests/ptx/test_verify.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from .types import TYPES


@dataclass(frozen=True)
class Form:
    """How an instruction is written.

    `operands`, a letter for each: `t` of the instruction's type, `T` of the type that is named first, `w`
    of twice its width with .wide, `c` a whole number of 32 bits, `n` a number, `p` a predicate, `d` one
    or two of them that are written, `m` what mov moves, `l` what a load or a store may be narrower than,
    `L` such of the type that is named first, `*` anything. The last `optional` of them may be left out;
    they are there if one of `joined` is, if there are such. `types`: what the type may be; empty: not
    looked at. `results`: what the type that is named first may be, by the type. `needs`: of a set one
    modifier must be there, if the type is of a kind ("f" floats, "h" halves, "i" whole numbers, "" any).
    `only`: modifiers that go with some types. `implies`: modifiers that need one of others.
    """

    operands: str
    optional: int = 0
    types: frozenset[str] = frozenset()
    named: int = 1  # how many types the instruction must name
    needs: tuple[tuple[str, frozenset[str]], ...] = ()
    only: tuple[tuple[str, frozenset[str]], ...] = ()
    implies: tuple[tuple[str, frozenset[str]], ...] = ()
    results: tuple[tuple[str, frozenset[str]], ...] = ()
    joined: frozenset[str] = frozenset()


_INTEGERS = "u16 s16 u32 s32 u64 s64"
_HALVES = "f16 f16x2 bf16 bf16x2"
_SATURATED = "f32 f16 f16x2"
_FLUSHED = f"{_SATURATED} f32x2"
_DIRECTED = "f32 f64 f32x2"  # rounded otherwise than to the nearest
_CARRIED = "u32 s32 u64 s64"
_FLOATS = f"f32 f64 {_HALVES}"
_NUMBERS = f"{_INTEGERS} {_FLOATS}"
_ANY = f"b16 b32 b64 {_INTEGERS} f32 f64"
_ROUNDED = "rn rz rm rp"
_STORED = "b8 u8 s8 b128"
_COMPARED = "eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _pairs(words: Mapping[str, str]) -> tuple[tuple[str, frozenset[str]], ...]:
    """`{"a b": "c d"}`: of a and of b, c and d."""
    return tuple((word, _words(text)) for names, text in words.items() for word in names.split())


def form(
    operands: str,
    types: str = "",
    optional: int = 0,
    named: int = 1,
    only: Mapping[str, str] = MappingProxyType({}),
    implies: Mapping[str, str] = MappingProxyType({}),
    results: Mapping[str, str] = MappingProxyType({}),
    joined: str = "",
    **needs: str,
) -> Form:
    asked = tuple(("" if kind == "all" else kind, _words(each)) for kind, each in needs.items())
    return Form(
        *(operands, optional, _words(types), named, asked, _pairs(only), _pairs(implies)),
        results=_pairs(results),
        joined=_words(joined),
    )


def _forms(names: str, operands: str, types: str = "", **further: Any) -> dict[str, Form]:
    return dict.fromkeys(names.split(), form(operands, types, **further))


_ORDER = {
    "ftz": _SATURATED,
    "lo ls hi hs": "u16 u32 u64",
    "lt le gt ge": _NUMBERS,
    "equ neu ltu leu gtu geu num nan": _FLOATS,
}
_ADDED = f"{_NUMBERS} u16x2 s16x2 f32x2 u8x4 s8x4"
_SATURATED_SUMS = f"s32 {_SATURATED} s8x4 u8x4"
_OF_SUMS = {"ftz": _FLUSHED, "cc": _CARRIED, "rz rm rp": _DIRECTED}

FORMS: dict[str, Form] = {
    "add": form("ttt", _ADDED, only={"sat": f"{_SATURATED_SUMS} u32 u16x2 s16x2", **_OF_SUMS}),
    "sub": form("ttt", _ADDED, only={"sat": _SATURATED_SUMS, **_OF_SUMS}),
    **_forms("addc subc", "ttt", _INTEGERS),
    **_forms(
        "mul",
        "wtt",
        f"{_NUMBERS} f32x2",
        only={"sat": _SATURATED, "ftz": _FLUSHED, "rz rm rp": _DIRECTED, "wide": "u16 s16 u32 s32"},
        i="lo hi wide",
    ),
    **_forms(
        "mad",
        "wttw",
        f"{_INTEGERS} f32 f64",
        only={"sat": "s32 f32", "ftz": "f32", "cc": _CARRIED, "wide": "u16 s16 u32 s32"},
        i="lo hi wide",
        f=_ROUNDED,
    ),
    **_forms("madc", "tttt", _INTEGERS, i="lo hi"),
    **_forms("mul24", "ttt", "u32 s32", i="lo hi"),
    **_forms("mad24", "tttt", "u32 s32", only={"sat": "s32"}, i="lo hi"),
    **_forms(
        "fma",
        "tttt",
        f"{_FLOATS} f32x2",
        only={"sat": _SATURATED, "ftz": _FLUSHED, "relu oob": _HALVES, "rz rm rp": _DIRECTED},
        all=_ROUNDED,
    ),
    **_forms(
        "min max",
        "ttt",
        f"{_NUMBERS} u16x2 s16x2 u8x4 s8x4",
        only={"ftz": _SATURATED, "NaN xorsign abs": f"f32 {_HALVES}", "relu": "s32 s16x2 s8x4"},
        implies={"xorsign": "abs", "abs": "xorsign"},
    ),
    **_forms("sad", "tttt", _INTEGERS),
    **_forms("clmad", "tttt", "u64 s64", i="lo hi"),
    **_forms(
        "div",
        "ttt",
        f"{_INTEGERS} f32 f64",
        only={"ftz approx full": "f32", _ROUNDED: "f32 f64"},
        f=f"{_ROUNDED} approx full",
    ),
    **_forms("rem", "ttt", _INTEGERS),
    **_forms("abs", "tt", f"s16 s32 s64 {_FLOATS}", only={"ftz": _SATURATED}),
    **_forms("neg", "tt", f"s16 s32 s64 s8x4 {_FLOATS}", only={"ftz": _SATURATED}),
    **_forms("popc clz", "ct", "b32 b64"),
    **_forms("bfind", "ct", "u32 s32 u64 s64"),
    **_forms("brev", "tt", "b32 b64"),
    **_forms("bfe", "ttcc", "u32 s32 u64 s64"),
    **_forms("bfi", "tttcc", "b32 b64"),
    **_forms("copysign", "ttt", "f32 f64"),
    **_forms("rcp", "tt", "f32 f64", all=f"{_ROUNDED} approx"),
    **_forms("sqrt", "tt", "f32 f64", only={"ftz approx": "f32"}, all=f"{_ROUNDED} approx"),
    **_forms("rsqrt", "tt", "f32 f64", all="approx"),
    **_forms("sin cos", "tt", "f32", implies={"2pi": "ftz"}, all="approx"),
    **_forms("lg2", "tt", "f32", only={"2pi": ""}, all="approx"),
    **_forms("ex2", "tt", f"f32 {_HALVES}", only={"ftz": "f32 bf16 bf16x2", "2pi": ""}, all="approx"),
    **_forms("tanh", "tt", f"f32 {_HALVES}", only={"ftz": ""}, all="approx"),
    **_forms("and or xor", "ttt", "pred b16 b32 b64"),
    **_forms("not", "tt", "pred b16 b32 b64"),
    **_forms("cnot", "tt", "b16 b32 b64"),
    **_forms("shl", "ttc", "b16 b32 b64"),
    **_forms("shr", "ttc", f"b16 b32 b64 {_INTEGERS}"),
    **_forms("shf", "tttt", "b32"),
    **_forms("prmt", "tttt", "b32"),
    "lop3": form("*tttnp", "b32", optional=1, joined="and or"),
    "bmsk": form("tcc", "b32", all="clamp wrap"),
    "szext": form("ttc", "u32 s32", all="clamp wrap"),
    "fns": form("tccc", "b32"),
    "testp": form("pt", "f32 f64"),
    "dp4a": form("cTtc", "u32 s32", named=2, only={"lo hi": ""}, results={"u32 s32": "u32 s32"}),
    "dp2a": form("cTtc", "u32 s32", named=2, results={"u32 s32": "u32 s32"}, all="lo hi"),
    **_forms(
        "setp",
        "dttp",
        f"{_ANY} {_HALVES}",
        optional=1,
        only=_ORDER,
        joined="and or xor",
        all=_COMPARED,
    ),
    "set": form(
        "Tttp",
        f"{_ANY} {_HALVES}",
        optional=1,
        named=2,
        only=_ORDER,
        results={
            _ANY: "u32 s32 f16 bf16 f32",
            "f16": "u16 s16 u32 s32 f16 bf16",
            "bf16": "u16 s16 u32 s32 bf16",
            "f16x2": "u32 s32 f16x2",
            "bf16x2": "u32 s32 bf16x2",
        },
        joined="and or xor",
        all=_COMPARED,
    ),
    "slct": form("TTTt", "s32 f32", named=2, only={"ftz": "f32"}, results={"s32 f32": _ANY}),
    **_forms("selp", "tttp", _ANY),
    **_forms("mov", "mm", f"pred b128 {_ANY}"),
    **_forms(
        "ld",
        "l**",
        f"{_STORED} {_ANY}",
        optional=1,
        only={"release": ""},
        implies={"relaxed acquire": "cta cluster gpu sys"},
    ),
    **_forms(
        "st",
        "*l*",
        f"{_STORED} {_ANY}",
        optional=1,
        only={"acquire": ""},
        implies={"relaxed release": "cta cluster gpu sys"},
    ),
    **_forms("cvta", "**", "u32 u64"),
    **_forms("cvt", "Ll**", optional=2, named=2),
    **_forms("ret exit trap brkpt", "", named=0),
    **_forms("bra", "*", named=0),
    **_forms("activemask", "t", "b32"),
    **_forms("nanosleep", "t", "u32"),
}

# Of those that may have an operand more than FORMS says, what they are then.
LONGER = _forms("min max", "tttt", "f32", only={"xorsign relu": ""})

# Of instructions that do different things the first of these words that is there says which.
_VOTED = form("p*c", "pred", optional=1)
_COUNTED = form("cc", optional=1, named=0)
_BARRIERS = {
    "popc": form("cc**", "u32", optional=1),
    **_forms("and or", "pc**", "pred", optional=1),
    "sync": _COUNTED,
    "arrive": form("cc", named=0),
}
_BITS = "b32 b64"
_UPDATES = {
    "add": form(
        "{}", f"u32 s32 u64 s64 f32 f64 {_HALVES}", optional=1, only={"noftz": f"f32 {_HALVES}"}, h="noftz"
    ),
    **_forms("min max", "{}", f"{_CARRIED} {_HALVES}", optional=1, only={"noftz": _HALVES}, h="noftz"),
    **_forms("inc dec", "{}", "u32", optional=1, only={"noftz": ""}),
    **_forms("and or xor", "{}", _BITS, optional=1, only={"noftz": ""}),
}
ACTIONS: dict[str, dict[str, Form]] = {
    "bar": {"warp": form("c", named=0, all="sync"), **_BARRIERS},
    "barrier": {"cluster": form("", named=0, all="arrive wait"), **_BARRIERS},
    "vote": {"ballot": form("t*c", "b32", optional=1), "all": _VOTED, "any": _VOTED, "uni": _VOTED},
    "match": {"any": form("ctc", _BITS, all="sync"), "all": form("*tc", _BITS, all="sync")},
    "redux": {
        "add": form("ttc", "u32 s32", all="sync"),
        **_forms("min max", "ttc", "u32 s32 f32", only={"abs NaN": "f32"}, all="sync"),
        **_forms("and or xor", "ttc", "b32", all="sync"),
    },
    "shfl": _forms("up down bfly idx", "*tccc", "b32", optional=1),
    "elect": {"sync": form("*c", named=0)},
    "atom": {
        **{word: replace(each, operands="t*t*") for word, each in _UPDATES.items()},
        "exch": form("t*t*", "b32 b64 b128", optional=1),
        "cas": form("t*tt*", "b16 b32 b64 b128", optional=1),
    },
    "red": {word: replace(each, operands="*t*") for word, each in _UPDATES.items()},
    "fence": {
        **_forms("proxy mbarrier_init", "**", optional=2, named=0),
        **_forms("cta cluster gpu sys", "", named=0),
    },
    "membar": _forms("cta gl sys proxy", "", named=0),
}
_UPDATED = "relaxed release cta cluster gpu sys global shared noftz v2 v4 v8"
# Of these all modifiers are known that are no types.
WORDS = {
    name: frozenset(ACTIONS[name]) | _words(text)
    for name, text in {
        "bar": "cta red",
        "barrier": "cta red aligned wait release acquire relaxed",
        "vote": "sync",
        "match": "sync",
        "redux": "sync abs NaN",
        "shfl": "sync",
        "elect": "",
        "atom": f"{_UPDATED} acquire acq_rel",
        "red": f"{_UPDATED} async mmio",
        "fence": "sc acq_rel acquire release alias async global tensormap",
        "membar": "alias async",
    }.items()
}
# Modifiers that exclude each other, whatever the instruction.
EXCLUDED = (("sat", "cc"), ("sat", "relu"), ("sat", "lo"), ("sat", "wide"), ("cc", "wide"))

# The shapes of matrices by the type of A's elements. Of accumulators in memory, and of doubles in wmma, ptxas
# takes more than can be multiplied: they are not looked at.
_BYTES, _WIDE = "m16n16k16 m8n32k16 m32n8k16", "m16n8k16 m16n8k32"
SHAPES = {
    "mma": {
        "f16": _words("m8n8k4 m16n8k8 m16n8k16"),
        "bf16": _words("m16n8k8 m16n8k16"),
        "tf32": _words("m16n8k4 m16n8k8 m16n8k16"),
        "f64": _words("m8n8k4 m16n8k4 m16n8k8 m16n8k16"),
        **dict.fromkeys(("s8", "u8"), _words(f"m8n8k16 {_WIDE}")),
        **dict.fromkeys(("s4", "u4"), _words("m8n8k32 m16n8k32 m16n8k64")),
        "b1": _words("m8n8k128 m16n8k128 m16n8k256"),
        **dict.fromkeys(("e4m3", "e5m2"), _words(_WIDE)),
    },
    "wmma": {
        **dict.fromkeys(("f16", "bf16", "s8", "u8"), _words(_BYTES)),
        "tf32": _words("m16n16k8"),
        **dict.fromkeys(("s4", "u4"), _words("m8n8k32")),
        "b1": _words("m8n8k128"),
    },
}

# What may be multiplied with each other, and what their products are added to.
_IN_BYTES = "e4m3 e5m2 e2m1 e2m3 e3m2"
_SIMILAR = ("s8 u8", "s4 u4", _IN_BYTES, "f16", "bf16", "tf32", "f64", "b1")
FACTORS = {name: _words(names) for names in _SIMILAR for name in names.split()}
SUMS = {
    **dict.fromkeys(("s8", "u8", "s4", "u4", "b1"), _words("s32")),
    **dict.fromkeys(("f16", *_words(_IN_BYTES)), _words("f16 f32")),
    **dict.fromkeys(("bf16", "tf32"), _words("f32")),
    "f64": _words("f64"),
}

# Those of which no more than the names of their operands is looked at.
OPCODES = frozenset(FORMS) | _words(
    """
    alloca applypriority atom bar barrier brx call clusterlaunchcontrol cp createpolicy discard elect fabric
    fence getctarank griddepcontrol isspacep istypep ldmatrix ldu mapa
    match mbarrier membar mma movmatrix multimem pmevent prefetch prefetchu red redux
    setmaxnreg shfl stackrestore stacksave stmatrix suld suq sured sust tcgen05 tensormap
    tex tld4 txq vabsdiff vabsdiff2 vabsdiff4 vadd vadd2 vadd4 vavrg2 vavrg4 vmad vmax vmax2 vmax4
    vmin vmin2 vmin4 vote vset vset2 vset4 vshl vshr vsub vsub2 vsub4 wgmma wmma
    """
)

# Of these every modifier is known; the others have many of their own, and new ones with each version.
PLAIN = frozenset(FORMS) - {"cvt"}
MODIFIERS = frozenset(TYPES) | _words(
    f"""
    {_ROUNDED} {_COMPARED} rna rni rzi rmi rpi rs ftz sat satfinite relu approx full cc lo hi wide NaN xorsign
    abs oob and or xor l r clamp wrap f4e b4e rc8 ecl ecr rc16 shiftamt 2pi finite infinite number notanumber
    normal subnormal uni to v2 v4 v8 global const local param shared generic weak volatile relaxed acquire
    release mmio cta cluster gpu sys ca cg cs cv lu wb wt nc unified async bulk
    pack
    """
)

# With one of these an instruction has operands of its own, which no form here describes.
APART = _words("async bulk")

SHAPE = re.compile(r"m\d+n\d+k\d+\Z")
SPECIAL_PREDICATE = "%is_explicit_cluster"
_SPECIAL = re.compile(
    r"%(?:n?(?:tid|ctaid|clusterid)|cluster_n?cta(?:id|rank)|laneid|n?warpid|n?smid|gridid|WARP_SZ|clock(?:_hi|64)?"
    r"|lanemask_(?:eq|lt|le|ge|gt)|pm[0-7](?:_64)?|envreg(?:[12]?\d|3[01])|globaltimer(?:_lo|_hi)?"
    r"|(?:total|aggr|dynamic)_smem_size|reserved_smem_offset_(?:begin|end|cap|[01])|is_explicit_cluster"
    r"|current_graph_exec|locality_domain_id)\Z"
)


def is_special(name: str) -> bool:
    """Whether a name, without what follows a dot, is a register that every function has."""
    return _SPECIAL.match(name) is not None
