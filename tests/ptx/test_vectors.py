"""Registers that are vectors: by their elements, whole, many of one name."""

from __future__ import annotations

import numpy as np
import pytest

from . import driver
from .ptx import UNITS, kernel
from .refusals import refusal

BODIES = {
    "by both names of an element": """
    .reg .v4 .b32 v;
    mov.b32 v.x, 1; mov.b32 v.g, 2; mov.b32 v.z, 3; mov.b32 v.a, 4;
    mov.v4.b32 {%r10, %r11, %r12, %r13}, {v.r, v.y, v.b, v.w};
""",
    "of a range": """
    .reg .v2 .b32 %v<3>;
    mov.v2.b32 %v0, {1, 2};
    mov.v2.b32 %v2, {3, 4};
    mov.v2.b32 %v1, %v2;
    mov.b32 %r10, %v0.x; mov.b32 %r11, %v0.y; mov.v2.b32 {%r12, %r13}, %v1;
""",
    "to each other": """
    mov.v2.b32 {%r10, %r11}, {2, 1};
    mov.v2.b32 {%r10, %r11}, {%r11, %r10};
    mov.b32 %r12, 3; mov.b32 %r13, 4;
""",
    "whole, as what a wider register holds": """
    .reg .v2 .b32 v; .reg .v4 .b16 h;
    mov.b64 %x5, 0x200000001;
    mov.b64 v, %x5;
    mov.b64 h, 0x0000000400000003;
    mov.b32 %r10, v.x; mov.b32 %r11, v.y;
    cvt.u32.u16 %r12, h.x; cvt.u32.u16 %r13, h.z;
""",
    "of another scope": """
    .reg .v2 .b32 v;
    mov.v2.b32 v, {1, 2};
    { .reg .b32 v; mov.b32 v, 3; mov.b32 %r12, v; }
    { .reg .v2 .b32 v; mov.v2.b32 v, {8, 4}; mov.b32 %r13, v.y; }
    mov.b64 %x5, v;
    mov.b64 {%r10, %r11}, %x5;
""",
}


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("form", BODIES)
def test_vector_registers(form: str, unit: str) -> None:
    body = f"""{UNITS[unit]}{BODIES[form]}
    mad.wide.u32 %x23, %r1, 16, %x0;
    .reg .v4 .b32 all<2>;
    mov.v4.b32 all1, {{%r10, %r11, %r12, %r13}};
    bar.sync 0;
    st.global.v4.b32 [%x23], all1;
"""
    (out,) = driver.run(kernel(body, pointers=1), "k", np.zeros((40, 4), np.uint32), block=(40,))
    assert (out == [1, 2, 3, 4]).all()


@pytest.mark.parametrize("declared", [".v4 .pred", ".v8 .b32"])
def test_what_no_vector_of_registers_is(declared: str) -> None:
    assert refusal(f"    .reg {declared} v;\n").startswith("not a vector of registers")


def test_an_element_that_a_vector_has_not() -> None:
    assert refusal("    .reg .v2 .b32 v;\n    mov.b32 %r10, v.z;\n") == "v.z is not declared"
