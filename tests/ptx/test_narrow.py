"""cvt of pairs of floats of eight, six and four bits and of powers of two.

The numbers of each format are listed (narrow.py), and a value is rounded to the nearest of them: nothing is
shared with the compiler, which shifts mantissas.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from . import driver
from .formats import BF16, F16, F32, Format
from .narrow import FORMATS
from .ptx import kernel
from .refusals import refusal


def encoded(form: str, value: float, mode: str, relu: bool) -> int:
    """.satfinite: beyond the largest is the largest; a NaN is one where there is one, else the largest."""
    narrow = FORMATS[form]
    if math.isnan(value):
        return 0x7F if narrow.special else max(narrow.numbers)
    if relu and (value <= 0):
        return 0
    sign = (math.copysign(1, value) < 0) << narrow.bits - 1
    return sign | narrow.round(min(abs(value), narrow.value(max(narrow.numbers))), mode)


def decoded(form: str, code: int) -> float:
    narrow = FORMATS[form]
    size, sign = code & (1 << narrow.bits - 1) - 1, -1.0 if code >> narrow.bits - 1 & 1 else 1.0
    if size in narrow.special:
        return math.inf * sign if (form, size) == ("e5m2", 0x7C) else math.nan
    return sign * narrow.value(size)


def samples(source: Format) -> list[float]:
    """What the source has near the numbers of all formats, and between them."""
    found = {0.0, source.smallest, source.smallest_normal, source.largest, 464.0, 465.0, 57344.0, 61440.0}
    for narrow in FORMATS.values():
        values = [narrow.value(code) for code in narrow.numbers]
        for low, high in itertools.pairwise(values):
            found |= {low, high, (low + high) / 2, low + (high - low) / 4, low + (high - low) * 3 / 4}
    sizes = {source.convert(value) for value in found}
    return [*sizes, *(-size for size in sizes), math.inf, -math.inf, math.nan]


def launch(instruction: str, sources: list[np.ndarray], registers: list[str], width: int) -> np.ndarray:
    """Of 32-bit inputs, the bits of each result."""
    count = len(sources[0])
    loads = "".join(
        f"    mad.wide.u32 %x10, %r1, 4, %x{1 + i};\n    ld.global.b32 {name}, [%x10];\n"
        for i, name in enumerate(registers)
    )
    if width == 8:
        finish = "mov.b16 %h1, {%b1, 0};\n    cvt.u32.u16 %r20, %h1;"
    else:
        finish = "cvt.u32.u16 %r20, %h1;" if width == 16 else ""
    body = f"""
    .reg .b8 %b<4>;
    setp.ge.u32 %p0, %r1, {count};
    @%p0 ret;
{loads}
    {instruction}
    {finish}
    mad.wide.u32 %x10, %r1, 4, %x0;
    st.global.b32 [%x10], %r20;
    """
    out, *_ = driver.run(
        kernel(body, pointers=1 + len(sources)),
        "k",
        np.zeros(count, np.uint32),
        *sources,
        grid=(-(-count // 128),),
        block=(128,),
    )
    return out


def joined(codes: list[int], width: int) -> list[int]:
    """Each with its mirror image in the upper half."""
    return [code | other << width for code, other in zip(codes, reversed(codes), strict=True)]


DESTINATION = {"e2m1": ("%b1", 8, 4), "e2m3": ("%h1", 16, 8), "e3m2": ("%h1", 16, 8)}
DESTINATION |= {"e4m3": ("%h1", 16, 8), "e5m2": ("%h1", 16, 8)}


@pytest.mark.some(8)
@pytest.mark.parametrize("relu", ["", ".relu"])
@pytest.mark.parametrize("mode", ["rn", "rz"])
@pytest.mark.parametrize("source", ["f32", "f16x2", "bf16x2"])
@pytest.mark.parametrize("form", FORMATS)
def test_to_narrow(form: str, source: str, mode: str, relu: str) -> None:
    wide = {"f32": F32, "f16x2": F16, "bf16x2": BF16}[source]
    values = samples(wide)
    name, width, each = DESTINATION[form]
    begin = f"cvt.{mode}.satfinite{relu}.{form}x2.{source} {name}"
    codes = [wide.encode(value) for value in values]
    if source == "f32":
        given = [np.array(codes[::-1], np.uint32), np.array(codes, np.uint32)]
        out = launch(f"{begin}, %f1, %f2;", given, ["%f1", "%f2"], width)
    else:
        out = launch(f"{begin}, %r3;", [np.array(joined(codes, 16), np.uint32)], ["%r3"], width)
    expected = joined([encoded(form, value, mode, bool(relu)) for value in values], each)
    wrong = [
        f"{value}: {int(got):#x}, not {right:#x}"
        for value, got, right in zip(values, out, expected, strict=True)
        if got != right
    ]
    assert wrong == []


@pytest.mark.parametrize("relu", ["", ".relu"])
@pytest.mark.parametrize("to", ["f16x2", "bf16x2"])
@pytest.mark.parametrize("form", FORMATS)
def test_from_narrow(form: str, to: str, relu: str) -> None:
    """All codes; of bytes that hold fewer bits the rest counts for nothing."""
    _, width, each = DESTINATION[form]
    codes = list(range(1 << FORMATS[form].bits))
    junk = 0xC0 if width == 16 and FORMATS[form].bits == 6 else 0
    given = np.array(joined([code | junk for code in codes], each), np.uint32)
    first = "cvt.u16.u32 %h1, %r3;" + (" mov.b16 {%b1, %b2}, %h1;" if width == 8 else "")
    out = launch(
        f"{first} cvt.rn{relu}.{to}.{form}x2 %r20, {'%b1' if width == 8 else '%h1'};", [given], ["%r3"], 32
    )
    wide = F16 if to == "f16x2" else BF16
    values = [decoded(form, code) for code in codes]
    values = [0.0 if relu and value <= 0 else value for value in values]
    assert out.tolist() == joined([wide.encode(value) for value in values], 16)


def as_bf16(value: float, relu: bool, finite: bool) -> int:
    if relu and value <= 0:
        return 0
    if finite and not math.isnan(value):
        value = max(-BF16.largest, min(value, BF16.largest))
    return BF16.encode(BF16.convert(value))


@pytest.mark.some(8)
@pytest.mark.parametrize("modifiers", ["", ".relu", ".satfinite", ".satfinite.relu"])
@pytest.mark.parametrize("form", [*FORMATS, "s2f6"])
def test_from_narrow_with_scales(form: str, modifiers: str) -> None:
    """Powers of two, one for each number, 255 for none; the lower number has the lower one."""
    _, width, each = DESTINATION.get(form, ("%h1", 16, 8))
    codes = list(range(256 if form == "s2f6" else 1 << FORMATS[form].bits))
    powers = [(0, 1, 120, 127, 133, 250, 254, 255)[i * 5 % 8] for i in range(len(codes))]
    given = [np.array(joined(each_, bits), np.uint32) for each_, bits in ((codes, each), (powers, 8))]
    first = "cvt.u16.u32 %h1, %r3; cvt.u16.u32 %h2, %r4;"
    if width == 8:
        first += " mov.b16 {%b1, %b2}, %h1;"
    name = "%b1" if width == 8 else "%h1"
    code = f"{first} cvt.rn{modifiers}.scaled::n2::ue8m0.bf16x2.{form}x2 %r20, {name}, %h2;"
    out = launch(code, given, ["%r3", "%r4"], 32)
    values = [(c - 256 * (c > 127)) / 64 if form == "s2f6" else decoded(form, c) for c in codes]
    scaled = [
        value * (math.nan if p == 255 else 2.0 ** (p - 127)) for value, p in zip(values, powers, strict=True)
    ]
    how = "relu" in modifiers, "satfinite" in modifiers
    assert out.tolist() == joined([as_bf16(value, *how) for value in scaled], 16)


@pytest.mark.parametrize("relu", ["", ".relu"])
@pytest.mark.parametrize("scale", [None, 125, 130])
@pytest.mark.parametrize("source", ["f32", "bf16x2"])
def test_to_fixed_point(source: str, scale: int | None, relu: str) -> None:
    """In 64ths, to the nearest; a scale divides."""
    wide = F32 if source == "f32" else BF16
    values = [wide.convert(n / 256) for n in range(-600, 600, 7)] + [
        math.inf,
        -math.inf,
        math.nan,
        0.0,
        -(2.0**99),
    ]
    codes = [wide.encode(value) for value in values]
    modifiers = relu + (".scaled::n2::ue8m0" if scale else "")
    begin = f"mov.b16 %h2, {scale * 257 if scale else 0}; cvt.rn.satfinite{modifiers}.s2f6x2.{source} %h1"
    last = ", %h2;" if scale else ";"
    if source == "f32":
        given = [np.array(codes[::-1], np.uint32), np.array(codes, np.uint32)]
        out = launch(f"{begin}, %f1, %f2{last}", given, ["%f1", "%f2"], 16)
    else:
        out = launch(f"{begin}, %r3{last}", [np.array(joined(codes, 16), np.uint32)], ["%r3"], 16)

    def fixed(value: float) -> int:
        if math.isnan(value):
            return 127
        steps = max(-128.0, min(value / 2.0 ** ((scale or 127) - 127) * 64, 127.0))
        return 0 if relu and value <= 0 else round(steps) & 255

    assert out.tolist() == joined([fixed(value) for value in values], 8)


POWERS = [2.0**power for power in (-127, -126, -64, -1, 0, 1, 100, 127)]


def power_of(value: float, mode: str, finite: bool) -> int:
    """The exponent + 127 of the power next to a size, 255 for what is none."""
    if math.isnan(value):
        return 255
    size = abs(value)
    if math.isinf(size):
        return 254 if finite else 255
    powers = range(255)
    if mode == "rz":
        return max((each for each in powers if 2.0 ** (each - 127) <= size), default=0)
    found = min((each for each in powers if 2.0 ** (each - 127) >= size), default=255)
    return 254 if finite and found == 255 else found


@pytest.mark.parametrize("finite", ["", ".satfinite"])
@pytest.mark.parametrize("mode", ["rz", "rp"])
@pytest.mark.parametrize("source", ["f32", "bf16x2"])
def test_to_powers(source: str, mode: str, finite: str) -> None:
    wide = F32 if source == "f32" else BF16
    near = [power * factor for power in POWERS for factor in (1, 1.5, 1 + 2.0**-wide.fraction_bits, 0.75)]
    sizes = [0.0, wide.smallest, wide.largest, *(wide.convert(value, "rz") for value in near)]
    values = [*sizes, *(-size for size in sizes), math.inf, -math.inf, math.nan]
    codes = [wide.encode(value) for value in values]
    begin = f"cvt.{mode}{finite}.ue8m0x2.{source} %h1"
    if source == "f32":
        given = [np.array(codes[::-1], np.uint32), np.array(codes, np.uint32)]
        out = launch(f"{begin}, %f1, %f2;", given, ["%f1", "%f2"], 16)
    else:
        out = launch(f"{begin}, %r3;", [np.array(joined(codes, 16), np.uint32)], ["%r3"], 16)
    assert out.tolist() == joined([power_of(value, mode, bool(finite)) for value in values], 8)


def test_from_powers() -> None:
    codes = list(range(256))
    given = np.array(joined(codes, 8), np.uint32)
    out = launch("cvt.u16.u32 %h1, %r3; cvt.rn.bf16x2.ue8m0x2 %r20, %h1;", [given], ["%r3"], 32)
    values = [2.0 ** (code - 127) if code < 255 else math.nan for code in codes]
    assert out.tolist() == joined([BF16.encode(value) for value in values], 16)


def rounded_at_random(value: float, bits: int, relu: bool, finite: bool) -> int:
    """Away from zero if what is dropped, in 65536ths of a step, and the random bits make a whole."""
    if math.isnan(value):
        return 0x7FFF
    if relu and value <= 0:
        return 0
    sign = 0x8000 if math.copysign(1, value) < 0 else 0
    if math.isinf(value):
        return sign | (0x7F7F if finite else 0x7F80)
    below = BF16.convert(abs(value), "rz")
    step = max(math.ldexp(1.0, math.frexp(below)[1] - 1 - 7) if below else 0.0, BF16.smallest)
    up = (abs(value) - below) / step * 65536 + bits >= 65536
    code = BF16.encode(below) + up
    return sign | (min(code, 0x7F7F) if finite else code)


@pytest.mark.some(2)
@pytest.mark.parametrize("modifiers", ["", ".relu", ".satfinite", ".relu.satfinite"])
def test_stochastic(modifiers: str) -> None:
    rng = np.random.default_rng(3)
    exact = [BF16.encode(value) << 16 for value in samples(BF16)]
    codes = [code | int(low) for code in exact for low in (0, 1, *rng.integers(0, 1 << 16, 3))]
    codes = [code for code in codes if code & 0x7FFFFFFF <= 0x7F800000] + [0x7FC00001, 0xFFFFFFFF]
    randoms = rng.integers(0, 1 << 16, (2, len(codes)))
    randoms[0, ::7], randoms[1, ::5], randoms[0, ::11] = 0, 65535, 65535
    given = [np.array(each, np.uint32) for each in (codes[::-1], codes, randoms[0] << 16 | randoms[1])]
    out = launch(f"cvt.rs{modifiers}.bf16x2.f32 %r20, %f1, %f2, %r3;", given, ["%f1", "%f2", "%r3"], 32)
    how = "relu" in modifiers, "satfinite" in modifiers
    halves = [
        [
            rounded_at_random(F32.decode(code), int(bits), *how)
            for code, bits in zip(each, random, strict=True)
        ]
        for each, random in ((codes[::-1], randoms[0]), (codes, randoms[1]))
    ]
    assert out.tolist() == [low | high << 16 for high, low in zip(*halves, strict=True)]


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("cvt.rn.e4m3x2.f32 %h1, %f1, %f2;", "needs one of .satfinite"),
        ("cvt.rm.satfinite.e4m3x2.f32 %h1, %f1, %f2;", "needs one of .rn .rz"),
        ("cvt.rn.satfinite.sat.e5m2x2.f16x2 %h1, %r1;", "unknown modifier .sat"),
        ("cvt.rn.satfinite.e2m3x2.f64 %h1, %g1;", "no conversion of .f64 to .e2m3x2"),
        ("cvt.rn.ue8m0x2.f32 %h1, %f1, %f2;", "needs one of .rz .rp"),
        ("cvt.rz.ue8m0x2.f16x2 %h1, %r1;", "no conversion of .f16x2 to .ue8m0x2"),
        ("cvt.rn.f16x2.ue8m0x2 %r1, %h1;", "no conversion of .ue8m0x2 to .f16x2"),
        ("cvt.rz.f16x2.e4m3x2 %r1, %h1;", "needs one of .rn"),
        ("cvt.rs.f16x2.f32 %r1, %f1, %f2, %r2;", "operands"),
        ("cvt.rn.sat.f16x2.f32 %r1, %f1, %f2;", "unknown modifier .sat"),
        ("cvt.rn.satfinite.f32.f64 %f1, %g1;", "unknown modifier .satfinite"),
        ("cvt.rzi.relu.s32.f32 %r1, %f1;", "unknown modifier .relu"),
        ("cvt.rn.ftz.f16.f64 %h1, %g1;", "unknown modifier .ftz"),
        ("cvt.rn.sat.bf16.f32 %h1, %f1;", "unknown modifier .sat"),
        ("cvt.f32.sat.bf16 %f1, %h1;", "unknown modifier .sat"),
        ("cvt.rn.satfinite.f16.f64 %h1, %g1;", "unknown modifier .satfinite"),
        ("cvt.rn.relu.bf16.f16 %h1, %h2;", "unknown modifier .relu"),
        ("cvt.rna.f32.s32 %f1, %r1;", "unknown modifier .rna"),
        ("cvt.rna.bf16.f32 %h1, %f1;", "unknown modifier .rna"),
        ("cvt.rm.f16x2.f32 %r1, %f1, %f2;", "unknown modifier .rm"),
        ("cvt.rni.s32.s16 %r1, %h1;", ".rni has nothing to round"),
        ("cvt.rn.s32.s64 %r1, %x1;", ".rn has nothing to round"),
        ("cvt.rzi.f64.f32 %g1, %f1;", ".rzi has nothing to round"),
        ("cvt.rn.f32.f16 %f1, %h1;", ".rn has nothing to round"),
        ("cvt.rzi.f32.s32 %f1, %r1;", ".rzi has nothing to round"),
        ("cvt.pack.sat.u16.s32.b32 %r1, %r2, %r3, %r4;", "two of 16 bits fill the word"),
        ("cvt.pack.sat.s8.s32 %r1, %r2, %r3;", "two of 16 bits fill the word"),
    ],
)
def test_what_is_none_is_refused(statement: str, reason: str) -> None:
    assert reason in refusal(f"    {statement}")
