"""Products and sums that PTX lets a compiler fuse: which of them are, and what comes out, bit by bit.

Each case stands beside a text that says explicitly what is computed. NVIDIA's ptxas makes the same code of
both, where it is there to be asked; what we compute is compared with exact arithmetic.
"""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from gpuferry.native.simdevice.ptx import parse
from gpuferry.native.simdevice.ptx.compiler import kernel_ir
from gpuferry.native.simdevice.ptx.kernel import KernelContext

from tests.helpers.toolkits import toolkit

from .formats import BF16, F16, F32, F64, Arithmetic, Format
from .table import Row, Table, module_text, samples

Reference = Callable[..., float]


@dataclass(frozen=True)
class Case:
    """`code` and what it comes to, in which T is the type, and .ftz is added to both where that is tested."""

    code: str
    explicit: str
    reference: Callable[[Arithmetic], Reference]


_LITERAL = "0f40490FDB"
K = F32.decode(int(_LITERAL[2:], 16))

CASES = {
    "sum": Case("mul.T %m, %a, %b; add.T %d, %m, %c;", "fma.rn.T %d, %a, %b, %c;", lambda do: do.fma),
    "sum, product second": Case(
        "mul.T %m, %a, %b; add.T %d, %c, %m;", "fma.rn.T %d, %a, %b, %c;", lambda do: do.fma
    ),
    "product less": Case(
        "mul.T %m, %a, %b; sub.T %d, %m, %c;",
        "neg.T %n, %c; fma.rn.T %d, %a, %b, %n;",
        lambda do: lambda a, b, c: do.fma(a, b, -c),
    ),
    "less product": Case(
        "mul.T %m, %a, %b; sub.T %d, %c, %m;",
        "neg.T %n, %a; fma.rn.T %d, %n, %b, %c;",
        lambda do: lambda a, b, c: do.fma(-a, b, c),
    ),
    "negated": Case(
        "mul.T %m, %a, %b; neg.T %n, %m; add.T %d, %n, %c;",
        "neg.T %n, %a; fma.rn.T %d, %n, %b, %c;",
        lambda do: lambda a, b, c: do.fma(-a, b, c),
    ),
    "moved": Case(
        "mul.T %m, %a, %b; mov.BITS %n, %m; add.T %d, %n, %c;", "fma.rn.T %d, %a, %b, %c;", lambda do: do.fma
    ),
    "two products": Case(
        "mul.T %m, %a, %b; mul.T %n, %b, %c; add.T %d, %m, %n;",
        "mul.rn.T %n, %b, %c; fma.rn.T %d, %a, %b, %n;",
        lambda do: lambda a, b, c: do.fma(a, b, do.mul(b, c)),
    ),
    "two products, the first made last": Case(
        "mul.T %m, %a, %b; mul.T %n, %b, %c; sub.T %d, %n, %m;",
        "mul.rn.T %m, %a, %b; neg.T %m, %m; fma.rn.T %d, %b, %c, %m;",
        lambda do: lambda a, b, c: do.fma(b, c, -do.mul(a, b)),
    ),
    "two products, the first used otherwise": Case(
        "mul.T %m, %a, %b; mul.T %n, %b, %c; add.T %s, %m, %n; mul.rn.T %d, %s, %m;",
        "mul.rn.T %m, %a, %b; fma.rn.T %s, %b, %c, %m; mul.rn.T %d, %s, %m;",
        lambda do: lambda a, b, c: do.mul(do.fma(b, c, do.mul(a, b)), do.mul(a, b)),
    ),
    "the second product in another sum": Case(
        "mul.T %m, %a, %b; mul.T %n, %b, %c; add.T %s, %m, %n; sub.T %n, %n, %a; mul.rn.T %d, %s, %n;",
        "mul.rn.T %n, %b, %c; fma.rn.T %s, %a, %b, %n; sub.rn.T %n, %n, %a; mul.rn.T %d, %s, %n;",
        lambda do: lambda a, b, c: do.mul(do.fma(a, b, do.mul(b, c)), do.sub(do.mul(b, c), a)),
    ),
    "the first product used by a sum of another": Case(
        "mul.T %m, %a, %b; mul.T %n, %b, %c; mul.T %s, %a, %c; add.T %n, %m, %n; add.T %s, %s, %m;"
        "mul.rn.T %d, %s, %n;",
        "mul.rn.T %m, %a, %b; fma.rn.T %n, %b, %c, %m; fma.rn.T %s, %a, %c, %m; mul.rn.T %d, %s, %n;",
        lambda do: lambda a, b, c: do.mul(do.fma(a, c, do.mul(a, b)), do.fma(b, c, do.mul(a, b))),
    ),
    "two sums": Case(
        "mul.T %m, %a, %b; add.T %s, %m, %c; sub.T %n, %m, %a; mul.rn.T %d, %s, %n;",
        "fma.rn.T %s, %a, %b, %c; neg.T %m, %a; fma.rn.T %n, %a, %b, %m; mul.rn.T %d, %s, %n;",
        lambda do: lambda a, b, c: do.mul(do.fma(a, b, c), do.fma(a, b, -a)),
    ),
    "an operand that changes": Case(
        "mul.T %m, %a, %b; mov.BITS %a, %c; mov.BITS %b, %c; add.T %d, %a, %m;",
        "fma.rn.T %d, %a, %b, %c;",
        lambda do: do.fma,
    ),
    "another scope": Case(
        "{ .reg .REG %a, %x; mov.BITS %x, %b; mov.BITS %a, %c; mul.T %m, %x, %a; } add.T %d, %a, %m;",
        "fma.rn.T %d, %b, %c, %a;",
        lambda do: lambda a, b, c: do.fma(b, c, a),
    ),
    "a sum that is guarded": Case(
        "setp.ne.u32 %p, %i, %n32; mov.BITS %d, %a; mul.T %m, %a, %b; @%p add.T %d, %m, %c;",
        "setp.ne.u32 %p, %i, %n32; mov.BITS %d, %a; @%p fma.rn.T %d, %a, %b, %c;",
        lambda do: do.fma,
    ),
    "a chain": Case(
        "mul.T %m, %a, %b; mul.T %n, %m, %c; add.T %d, %n, %c;",
        "mul.rn.T %m, %a, %b; fma.rn.T %d, %m, %c, %c;",
        lambda do: lambda a, b, c: do.fma(do.mul(a, b), c, c),
    ),
    "round a loop": Case(
        "mov.u32 %t0, 0; mov.BITS %s, %c; L: mul.T %m, %a, %b; add.T %s, %s, %m; add.u32 %t0, %t0, 1;"
        "setp.lt.u32 %p, %t0, %t1; @%p bra L; mov.BITS %d, %s;",
        "mov.u32 %t0, 0; mov.BITS %s, %c; L: fma.rn.T %s, %a, %b, %s; add.u32 %t0, %t0, 1;"
        "setp.lt.u32 %p, %t0, %t1; @%p bra L; mov.BITS %d, %s;",
        lambda do: do.fma,
    ),
    # in other blocks; K is a literal
    "a label that nothing branches to": Case(
        "mul.T %m, %a, %b; L: add.T %d, %m, %c;", "fma.rn.T %d, %a, %b, %c;", lambda do: do.fma
    ),
    "a branch to what comes next": Case(
        "mul.T %m, %a, %b; bra L; L: add.T %d, %m, %c;", "fma.rn.T %d, %a, %b, %c;", lambda do: do.fma
    ),
    "a constant factor, another block": Case(
        "PRE mul.T %m, %a, K; SKIP add.T %d, %m, %c; L:",
        "PRE SKIP fma.rn.T %d, %a, K, %c; L:",
        lambda do: lambda a, b, c: do.fma(a, K, c),
    ),
    "a constant in a register, another block": Case(
        "PRE mov.T %s, K; mul.T %m, %s, %a; SKIP sub.T %d, %c, %m; L:",
        "PRE SKIP fma.rn.T %d, %a, MINUS, %c; L:",
        lambda do: lambda a, b, c: do.fma(-a, K, c),
    ),
    "a constant factor, where ways meet": Case(
        "PRE mul.T %m, %a, K; SKIP L: bar.warp.sync -1; add.T %d, %m, %c;",
        "PRE SKIP L: bar.warp.sync -1; fma.rn.T %d, %a, K, %c;",
        lambda do: lambda a, b, c: do.fma(a, K, c),
    ),
    "a constant factor, negated in another block": Case(
        "PRE mul.T %m, %a, K; SKIP neg.T %n, %m; add.T %d, %n, %c; L:",
        "PRE SKIP fma.rn.T %d, %a, MINUS, %c; L:",
        lambda do: lambda a, b, c: do.fma(-a, K, c),
    ),
    "a constant factor, the other changes": Case(
        "PRE mul.T %m, %a, K; SKIP mov.BITS %a, %c; add.T %d, %a, %m; L:",
        "PRE SKIP fma.rn.T %d, %a, K, %c; L:",
        lambda do: lambda a, b, c: do.fma(a, K, c),
    ),
    "a constant factor, in front of a loop": Case(
        "mul.T %m, %a, K; mov.u32 %t0, 0; mov.BITS %d, %c; L: bar.warp.sync -1; add.T %d, %d, %m;"
        "add.u32 %t0, %t0, 1; setp.lt.u32 %p, %t0, %t1; @%p bra L;",
        "mov.u32 %t0, 0; mov.BITS %d, %c; L: bar.warp.sync -1; fma.rn.T %d, %a, K, %d;"
        "add.u32 %t0, %t0, 1; setp.lt.u32 %p, %t0, %t1; @%p bra L;",
        lambda do: lambda a, b, c: do.fma(a, K, c),
    ),
    "a constant factor, nothing on the other way": Case(
        "PRE SKIP mul.T %m, %a, K; L: bar.warp.sync -1; add.T %d, %m, %c;",
        "PRE SKIP L: bar.warp.sync -1; fma.rn.T %d, %a, K, %c;",
        lambda do: lambda a, b, c: do.fma(a, K, c),
    ),
    "two products of two blocks": Case(
        "PRE mul.T %m, %a, %b; SKIP mul.T %n, %b, %c; add.T %d, %m, %n; L:",
        "PRE mul.rn.T %m, %a, %b; SKIP fma.rn.T %d, %b, %c, %m; L:",
        lambda do: lambda a, b, c: do.fma(b, c, do.mul(a, b)),
    ),
    # what is not fused
    "no constant, another block": Case(
        "PRE mul.T %m, %a, %b; SKIP add.T %d, %m, %c; L:",
        "PRE mul.rn.T %m, %a, %b; SKIP add.rn.T %d, %m, %c; L:",
        lambda do: lambda a, b, c: do.add(do.mul(a, b), c),
    ),
    "no constant, in front of a loop": Case(
        "mul.T %m, %a, %b; mov.u32 %t0, 0; mov.BITS %d, %c; L: bar.warp.sync -1; add.T %d, %d, %m;"
        "add.u32 %t0, %t0, 1; setp.lt.u32 %p, %t0, %t1; @%p bra L;",
        "mul.rn.T %m, %a, %b; mov.u32 %t0, 0; mov.BITS %d, %c; L: bar.warp.sync -1; add.rn.T %d, %d, %m;"
        "add.u32 %t0, %t0, 1; setp.lt.u32 %p, %t0, %t1; @%p bra L;",
        lambda do: lambda a, b, c: do.add(do.mul(a, b), c),
    ),
    "two products that meet": Case(
        "PRE SKIP mul.T %m, %a, K; bra E; L: bar.warp.sync -1; mul.T %m, %b, K; E: bar.warp.sync -1;"
        "add.T %d, %m, %c;",
        "PRE SKIP mul.rn.T %m, %a, K; bra E; L: bar.warp.sync -1; mul.rn.T %m, %b, K; E: bar.warp.sync -1;"
        "add.rn.T %d, %m, %c;",
        lambda do: lambda a, b, c: do.add(do.mul(a, K), c),
    ),
    "replaced on one way": Case(
        "PRE mul.T %m, %a, K; SKIP bra E; L: bar.warp.sync -1; mov.BITS %m, %c; E: bar.warp.sync -1;"
        "add.T %d, %m, %c;",
        "PRE mul.rn.T %m, %a, K; SKIP bra E; L: bar.warp.sync -1; mov.BITS %m, %c; E: bar.warp.sync -1;"
        "add.rn.T %d, %m, %c;",
        lambda do: lambda a, b, c: do.add(do.mul(a, K), c),
    ),
    "used otherwise on another way": Case(
        "PRE mul.T %m, %a, K; SKIP add.T %d, %m, %c; bra E; L: bar.warp.sync -1; mov.BITS %d, %m; E:",
        "PRE mul.rn.T %m, %a, K; SKIP add.rn.T %d, %m, %c; bra E; L: bar.warp.sync -1; mov.BITS %d, %m; E:",
        lambda do: lambda a, b, c: do.add(do.mul(a, K), c),
    ),
    "round a loop, of the round before": Case(
        "mov.u32 %t0, 0; mul.T %m, %a, K; mov.BITS %d, %c; L: bar.warp.sync -1; add.T %d, %d, %m;"
        "mul.T %m, %b, K; add.u32 %t0, %t0, 1; setp.lt.u32 %p, %t0, %t1; @%p bra L;",
        "mov.u32 %t0, 0; mul.rn.T %m, %a, K; mov.BITS %d, %c; L: bar.warp.sync -1; add.rn.T %d, %d, %m;"
        "mul.rn.T %m, %b, K; add.u32 %t0, %t0, 1; setp.lt.u32 %p, %t0, %t1; @%p bra L;",
        lambda do: lambda a, b, c: do.add(do.mul(a, K), c),
    ),
    "product rounded": Case(
        "mul.rn.T %m, %a, %b; add.T %d, %m, %c;",
        "mul.rn.T %m, %a, %b; add.rn.T %d, %m, %c;",
        lambda do: lambda a, b, c: do.add(do.mul(a, b), c),
    ),
    "sum rounded": Case(
        "mul.T %m, %a, %b; add.rn.T %d, %m, %c;",
        "mul.rn.T %m, %a, %b; add.rn.T %d, %m, %c;",
        lambda do: lambda a, b, c: do.add(do.mul(a, b), c),
    ),
    "twice the product": Case(
        "mul.T %m, %a, %b; add.T %s, %m, %m; mul.rn.T %d, %s, %c;",
        "mul.rn.T %m, %a, %b; add.rn.T %s, %m, %m; mul.rn.T %d, %s, %c;",
        lambda do: lambda a, b, c: do.mul(do.add(do.mul(a, b), do.mul(a, b)), c),
    ),
    "used otherwise": Case(
        "mul.T %m, %a, %b; add.T %s, %m, %c; mul.rn.T %d, %s, %m;",
        "mul.rn.T %m, %a, %b; add.rn.T %s, %m, %c; mul.rn.T %d, %s, %m;",
        lambda do: lambda a, b, c: do.mul(do.add(do.mul(a, b), c), do.mul(a, b)),
    ),
    "used in another block": Case(
        "mul.T %m, %a, %b; add.T %s, %m, %c; setp.eq.u32 %p, %i, %n32; mov.BITS %d, %s; @%p bra L;"
        "bar.warp.sync -1; mul.rn.T %d, %s, %m; L:",
        "mul.rn.T %m, %a, %b; add.rn.T %s, %m, %c; setp.eq.u32 %p, %i, %n32; mov.BITS %d, %s; @%p bra L;"
        "bar.warp.sync -1; mul.rn.T %d, %s, %m; L:",
        lambda do: lambda a, b, c: do.mul(do.add(do.mul(a, b), c), do.mul(a, b)),
    ),
    "a product that is guarded": Case(
        "setp.ne.u32 %p, %i, %n32; mov.BITS %m, %c; @%p mul.T %m, %a, %b; @%p add.T %m, %m, %c;"
        "mov.BITS %d, %m;",
        "setp.ne.u32 %p, %i, %n32; mov.BITS %m, %c; @%p mul.rn.T %m, %a, %b; @%p add.rn.T %m, %m, %c;"
        "mov.BITS %d, %m;",
        lambda do: lambda a, b, c: do.add(do.mul(a, b), c),
    ),
}

# f32 has all of it; f64 and the halves a part, and packed pairs of both.
_ALL = tuple(CASES)
_SOME = ("sum", "product less", "less product", "negated", "two products", "sum rounded", "used otherwise")
WIDE = {"f16x2": "f16", "bf16x2": "bf16", "f32x2": "f32"}
FORMATS_OF = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}


# To a label L go lanes that are not there.
_WORDS = {
    " K": f" {_LITERAL}",
    " MINUS": " 0fC0490FDB",
    "PRE": "setp.eq.u32 %p, %i, %n32; mov.BITS %d, %c;",
    "SKIP": "@%p bra L; bar.warp.sync -1;",
}


def in_type(code: str, type_: str, ftz: bool) -> str:
    """A case's code for a type, in a scope of its own."""
    bits = {"f64": 64, "f32x2": 64, "f16": 16, "bf16": 16}.get(type_, 32)
    register = type_ if type_ in ("f32", "f64") else f"b{bits}"
    for word, text in _WORDS.items():
        code = code.replace(word, text)
    code = code.replace(".BITS", f".b{bits}").replace(".REG", f".{register}")
    if type_ == "f32x2":
        code = code.replace("neg.T", "xor.b64").replace("%n, %c;", "%n, %c, 0x8000000080000000;")
    code = code.replace(".T ", f"{'.ftz' if ftz else ''}.{type_} ")
    extra = "mov.u32 %n32, 0x7fffffff; mov.u32 %t1, 1;"
    return f"{{ .reg .{register} %m, %n, %s; .reg .b32 %n32; {extra} {code} }}"


def packed(code: str, part: str) -> str:
    """The same of pairs, both halves alike; the upper one counts."""
    wide = "b64" if part == "f32" else "b32"
    for name in "abcd":
        code = code.replace(f"%{name}", f"%w{name}")
    pack = " ".join(f"mov.{wide} %w{name}, {{%{name}, %{name}}};" for name in "abc")
    return f"{{ .reg .{wide} %wa, %wb, %wc, %wd; {pack} {code} mov.{wide} {{_, %d}}, %wd; }}"


def row(name: str, type_: str, ftz: bool = False, warps: bool = False) -> Row:
    case, part = CASES[name], WIDE.get(type_, type_)
    code = in_type(case.code, type_, ftz)
    if type_ in WIDE:
        code = packed(code, part)
    if warps:
        code = f"bar.warp.sync -1; {code}"
    do = Arithmetic(FORMATS_OF[part], ftz=ftz)
    label = f"{name}, {type_}{', ftz' if ftz else ''}{', warps' if warps else ''}"
    return Row(label, f"{part} {part} {part} -> {part}", case.reference(do), code=code)


ROWS = [
    *(row(name, "f32", warps=warps) for name in _ALL for warps in (False, True)),
    *(row(name, "f32", ftz=True) for name in _SOME),
    *(row(name, type_) for type_ in ("f64", "f16", "bf16") for name in _SOME),
    *(row(name, "f16", ftz=True) for name in _SOME),
    *(row(name, type_) for type_ in ("f16x2", "bf16x2") for name in _SOME),
    *(row(name, "f32x2") for name in ("sum", "product less", "two products", "sum rounded")),
    Row(
        "a sum in [0, 1]",
        "f32 f32 f32 -> f32",
        Arithmetic(F32, sat=True).fma,
        code="mul.f32 %f0, %a, %b; add.sat.f32 %d, %f0, %c;",
    ),
    Row(
        "a negative that does not flush",
        "f32 f32 f32 -> f32",
        lambda a, b, c: Arithmetic(F32, ftz=True).fma(-a, b, c),
        code="mul.ftz.f32 %f0, %a, %b; neg.f32 %f1, %f0; add.ftz.f32 %d, %f1, %c;",
    ),
    Row(
        "a negative that flushes more",
        "f32 f32 f32 -> f32",
        lambda a, b, c: Arithmetic(F32).add(-F32.flush(Arithmetic(F32).mul(a, b)), c),
        code="mul.f32 %f0, %a, %b; neg.ftz.f32 %f1, %f0; add.f32 %d, %f1, %c;",
    ),
    Row(
        "only the product flushes",
        "f32 f32 f32 -> f32",
        lambda a, b, c: Arithmetic(F32).add(Arithmetic(F32, ftz=True).mul(a, b), c),
        code="mul.ftz.f32 %f0, %a, %b; add.f32 %d, %f0, %c;",
    ),
    Row(
        "a product in [0, 1]",
        "f32 f32 f32 -> f32",
        lambda a, b, c: Arithmetic(F32).add(Arithmetic(F32, sat=True).mul(a, b), c),
        code="mul.sat.f32 %f0, %a, %b; add.f32 %d, %f0, %c;",
    ),
]
TABLE = Table(ROWS)


@pytest.mark.some(12)
@pytest.mark.parametrize("each", ROWS, ids=lambda each: each.name)
def test_row(each: Row) -> None:
    TABLE.check(each)


@pytest.mark.parametrize("format_", [F16, BF16, F32, F64], ids=lambda each: each.name)
def test_the_samples_tell_fused_from_rounded_twice(format_: Format) -> None:
    do = Arithmetic(format_)
    cases = samples(row("sum", format_.name))
    differ = [case for case in cases if do.fma(*case) != do.add(do.mul(*case[:2]), case[2])]
    assert len(differ) > len(cases) // 20


@pytest.mark.parametrize("quick", [False, True], ids=["optimised", "quick"])
@pytest.mark.parametrize("unit", ["thread", "warp"])
def test_every_form_and_tier_is_made_of_the_same(
    unit: str, quick: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUFERRY_SIM_UNIT", unit)
    text = module_text([row("sum", "f32"), row("sum rounded", "f32")])
    module = parse(text)
    for name, fused in (("sum", True), ("sum rounded", False)):
        context = KernelContext(module, module.kernel(row(name, "f32").kernel))
        context.quick = quick
        ir = kernel_ir(context)
        assert ("llvm.fma" in ir, "fmul" in ir) == (fused, not fused)


@pytest.mark.some(13)
@pytest.mark.parametrize("name", CASES)
def test_ptxas_does_the_same(name: str, tmp_path: Path) -> None:
    """Of both texts it makes the same code."""
    codes = []
    for code in (CASES[name].code, CASES[name].explicit):
        row_ = Row("k", "f32 f32 f32 -> f32", lambda: 0.0, code=in_type(code, "f32", False))
        codes.append(assembled(module_text([row_]).replace(row_.kernel, "k"), tmp_path))
    assert codes[0] == codes[1]


def assembled(text: str, folder: Path) -> bytes:
    """The code that ptxas makes of the kernel `k`."""
    nvcc = toolkit().nvcc
    ptxas = nvcc.with_name("ptxas") if nvcc is not None else None
    if ptxas is None or not ptxas.exists():
        pytest.skip("needs ptxas")
    source = folder / "k.ptx"
    source.write_text(text)
    cubin = source.with_suffix(".cubin")
    subprocess.run([ptxas, "-arch=sm_80", source, "-o", cubin], check=True)
    return section(cubin.read_bytes(), b".text.k")


def section(elf: bytes, wanted: bytes) -> bytes:
    (table,) = struct.unpack_from("<Q", elf, 40)
    count, names_index = struct.unpack_from("<HH", elf, 60)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + 64 * i) for i in range(count)]
    names = headers[names_index][4]
    for name, _, _, _, offset, size in headers:
        if elf[names + name :].startswith(wanted + b"\0"):
            return elf[offset : offset + size]
    raise AssertionError(f"there is no {wanted!r}")


# What a factor is, and whether its product is fused with a sum of another block.
FACTORS = {
    "a parameter": ("ld.param.f32 %k, [k];", True),
    "a copy of one": ("ld.param.f32 %t, [k]; mov.f32 %k, %t;", True),
    "the negative of one": ("ld.param.f32 %t, [k]; neg.f32 %k, %t;", True),
    "a constant variable": ("ld.const.f32 %k, [table+4];", True),
    "the sum of two parameters": ("ld.param.f32 %t, [k]; add.rn.f32 %k, %t, %t;", False),
    "a parameter, or something else": ("ld.param.f32 %k, [k]; @%p mov.f32 %k, 0f40000000;", False),
    "the same for all, from memory": ("ld.global.f32 %k, [%x+4];", False),
}


@pytest.mark.parametrize("name", FACTORS)
def test_what_counts_as_a_constant(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    factor, fused = FACTORS[name]

    def text(before: str, behind: str) -> str:
        return f"""
        .version 8.8
        .target sm_80
        .address_size 64
        .const .f32 table[4];
        .visible .entry k(.param .u64 out, .param .f32 k)
        {{
        .reg .pred %p; .reg .b32 %i; .reg .f32 %k, %t, %a, %c, %d, %m; .reg .b64 %x, %y;
        ld.param.u64 %x, [out]; mov.u32 %i, %tid.x; setp.lt.u32 %p, %i, 5; mov.f32 %d, 0f00000000;
        mul.wide.u32 %y, %i, 4; add.u64 %y, %y, %x; ld.global.f32 %a, [%y+64]; ld.global.f32 %c, [%y+256];
        {factor} {before} @%p bra L;
        atom.global.add.u32 %i, [%x+8], 1;
        {behind}
        L: st.global.f32 [%y], %d; ret;
        }}
        """

    written = text("mul.f32 %m, %a, %k;", "add.f32 %d, %m, %c;")
    explicit = {
        True: text("", "fma.rn.f32 %d, %a, %k, %c;"),
        False: text("mul.rn.f32 %m, %a, %k;", "add.rn.f32 %d, %m, %c;"),
    }[fused]
    module = parse(written)
    monkeypatch.setenv("GPUFERRY_SIM_UNIT", "thread")
    assert ("llvm.fma" in kernel_ir(KernelContext(module, module.kernel("k")))) is fused
    assert assembled(written, tmp_path) == assembled(explicit, tmp_path)
