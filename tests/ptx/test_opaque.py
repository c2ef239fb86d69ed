"""Variables of opaque types, and what a texture instruction may be given behind its coordinates."""

from __future__ import annotations

import numpy as np
import pytest

from . import driver
from .ptx import UNITS, kernel, store
from .refusals import refusal

VARIABLES = """
.visible .global .texref t<2>;
.visible .global .surfref s;
.global .samplerref q;
.global .u64 other;
"""
NAMES = ("t0", "t1", "s", "q", "other")
TYPES = ("texref", "surfref", "samplerref")


@pytest.mark.parametrize("unit", UNITS)
def test_istypep(unit: str) -> None:
    """Each lane asks for another variable; nothing is bound to any."""
    chosen = "".join(
        f"    mov.u64 %x11, {name};\n    setp.eq.u32 %p0, %r0, {i};\n    selp.b64 %x10, %x11, %x10, %p0;\n"
        for i, name in enumerate(NAMES)
    )
    asked = "".join(
        f"    istypep.{kind} %p1, %x10;\n    selp.u32 %r11, {1 << i}, 0, %p1;\n    or.b32 %r10, %r10, %r11;\n"
        for i, kind in enumerate(TYPES)
    )
    body = f"    mov.u64 %x10, 12345;\n    mov.u32 %r10, 0;\n{UNITS[unit]}{chosen}{asked}{store('%r10')}"
    text = kernel(body, pointers=1, module=VARIABLES)
    (out,) = driver.run(text, "k", np.zeros(32, np.uint32), block=(32,))
    assert out.tolist() == [1, 1, 2, 4, 0] + [0] * 27


def test_istypep_of_other_types() -> None:
    assert "not for .u64" in refusal("    istypep.u64 %p1, %x1;")


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("sured.b.add.2d.v2.u32.trap [%x1, {%r2, %r3}], %r1;", "one number at a time"),
        ("slct.ftz.f32.s32 %f1, %f2, %f3, %r1;", "unknown modifier .ftz"),
        ("cp.async.ca.shared.global.L2::cache_hint [%r1], [%x1], 4;", "a cache policy is missing"),
        ("tex.cube.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%x0, {%f4, %f5, %f6, %f7}], {%r1};", "on a cube"),
        ("ld.global.v8.u32 %r1, [%x1];", "needs a vector of 8"),
        ("movmatrix.sync.aligned.m8n8.trans.b8 %r1, %r2;", "elements are .b16"),
    ],
)
def test_what_was_ignored_is_refused(statement: str, reason: str) -> None:
    """As ptxas does it."""
    assert reason in refusal(f"    {statement}")


@pytest.mark.parametrize(
    "statement",
    [
        "tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%x0, {%f4, %f5}], %f6;",
        "tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%x0, {%f4, %f5}], {%r1, %r2}, %f6;",
        "tex.1d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%x0, {%f4}], %f6;",
        "tex.level.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%x0, {%f4, %f5}], %f7, %f6;",
        "tex.1d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%x0, {%f4}], 0f3F000000;",
        "tld4.r.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%x0, {%f4, %f5}], %f6;",
    ],
)
def test_a_depth_is_not_taken_for_an_offset(statement: str) -> None:
    """A number behind the coordinates was added to them, its bits as a whole number."""
    assert "depth comparison is not supported" in refusal(f"    {statement}")
