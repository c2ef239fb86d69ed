"""Literals and tokens."""

from __future__ import annotations

import math
import struct

import pytest
from gpuferry.native.simdevice.ptx import PtxError
from gpuferry.native.simdevice.ptx.lexer import float_bits, float_literal, integer_literal, tokenize
from gpuferry.native.simdevice.ptx.operands import Operands
from hypothesis import given
from hypothesis import strategies as st


def expression(text: str) -> int:
    return Operands([each for each in tokenize(text, 0, len(text), 1) if each != "\n"], 1).integer(0)


@given(
    st.integers(0, 2**64 - 1),
    st.sampled_from([("0x", "x", ""), ("0X", "X", "U"), ("", "d", ""), ("0b", "b", "U")]),
)
def test_integers(value: int, form: tuple[str, str, str]) -> None:
    prefix, code, suffix = form
    assert integer_literal(f"{prefix}{value:{code}}{suffix}") == value


@given(st.integers(0, 2**64 - 1))
def test_octal(value: int) -> None:
    assert integer_literal(f"0{value:o}") == value


@pytest.mark.parametrize("text", ["", "08", "0x", "1.0", "0b2", "12x", "٣", "%r1", "1" * 5000])
def test_what_is_no_integer(text: str) -> None:
    assert integer_literal(text) is None


@given(st.integers(0, 2**32 - 1))
def test_single_precision_keeps_every_bit(bits: int) -> None:
    literal = float_literal(f"0f{bits:08X}")
    assert literal is not None
    assert float_bits(literal, 32) == bits


@given(st.floats(width=32))
def test_single_precision_in_a_double(value: float) -> None:
    literal = float_literal("0F" + struct.pack(">f", value).hex())
    assert literal is not None
    (widened,) = struct.unpack("<d", float_bits(literal, 64).to_bytes(8, "little"))
    assert widened == value or math.isnan(value)


@given(st.floats(min_value=0, allow_nan=False, allow_infinity=False))
def test_decimal_floats(value: float) -> None:
    literal = float_literal(f"{value:.17e}")
    assert literal is not None
    assert struct.unpack("<d", float_bits(literal, 64).to_bytes(8, "little"))[0] == value


def test_a_float_too_large_for_its_type_is_infinite() -> None:
    assert float_bits(1e300, 32) == 0x7F800000
    assert float_bits(-1e300, 16) == 0xFC00


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("-7 / 2", -3),
        ("-7 % 3", 0),  # of unsigned numbers, as ptxas has it
        ("~0 >> 60", 15),
        ("-1 >> 60", -1),
        ("(-1 & -1) >> 60", -1),
        ("-7 / 2U", (2**64 - 7) // 2),
        ("3U - 5 > 0", 1),
        ("3 - 5 > 0", 0),
        ("(1 ? -1 : 0U) >> 60", -1),
        ("0x8000000000000000 >> 63", 1),
        ("1 << 63 >> 63", -1),
        ("1 << 4 | 3", 19),
        ("~0 & 0xff", 255),
        ("3 > 2 ? 5 : 6", 5),
        ("!0 + WARP_SZ", 33),
        ("(.u64) -1 >> 60", 15),
        ("2 < 1 || 4 == 4", 1),
    ],
)
def test_constant_expressions(text: str, value: int) -> None:
    assert expression(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1.0+2.0", 3.0),
        ("-1.0*2.0", -2.0),
        ("1.0/4.0", 0.25),
        ("-(1.5)", -1.5),
        (".5", 0.5),
        ("0.1+0.2", 0.1 + 0.2),
    ],
)
def test_constant_expressions_of_floats(text: str, value: float) -> None:
    assert Operands(tokenize(text, 0, len(text), 1), 1).immediate().value == value


@pytest.mark.parametrize(
    "text",
    [
        "1.0+2",
        "2*1.5",
        "(.s64)1.5",
        "1 ? 2.0 : 3.0",
        "!1.0",
        "1.0 % 2.0",
        "1 / 0",
        "1 << 99",
        "1 +",
        "(1",
        "%r1 + 1",
        "-" * 500 + "1",
        "(" * 500,
    ],
)
def test_expressions_that_mean_nothing(text: str) -> None:
    with pytest.raises(PtxError):
        expression(text)


def test_comments_keep_the_lines() -> None:
    text = "a // x\n/* y\n\n */ b"
    assert tokenize(text, 0, len(text), 1) == ["a", "\n", "\n", "\n", "b"]


def test_a_character_that_is_none_of_ptx_names_its_line() -> None:
    text = "add\n\n  ` "
    with pytest.raises(PtxError) as error:
        tokenize(text, 0, len(text), 10)
    assert error.value.line == 12
