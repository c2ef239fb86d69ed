"""Constant expressions: C's operators on whole numbers of 64 bits, signed and unsigned, and on doubles.

Where PTX is not C, ptxas is followed: ~ and % are unsigned, ?: is signed, floats and whole numbers do
not mix.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass

_WORD = 1 << 64
_ARITHMETIC = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_COMPARISONS = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}
_WHOLE = {**_ARITHMETIC, "&": operator.and_, "|": operator.or_, "^": operator.xor}


@dataclass(frozen=True, slots=True)
class Constant:
    """`unsigned` says how a whole number is converted; of floats it says nothing."""

    value: int | float
    unsigned: bool = False


class Meaningless(ValueError):
    """An operation that has no result."""


def whole(value: int, unsigned: bool) -> Constant:
    """What 64 bits keep of a number."""
    value %= _WORD
    return Constant(value if unsigned or value < _WORD // 2 else value - _WORD, unsigned)


def literal(value: int, marked: bool) -> Constant:
    """A whole number as it is written: unsigned if it is marked so, or does not fit otherwise."""
    return whole(value, marked or value >= _WORD // 2)


def unary(sign: str, of: Constant) -> Constant:
    if isinstance(of.value, float) and sign in "+-":
        return Constant(-of.value if sign == "-" else of.value)
    value = _integer(of)
    if sign == "!":
        return Constant(int(not value))
    # What ~ yields is unsigned, whatever it is given.
    return whole({"-": -value, "+": value, "~": ~value}[sign], of.unsigned or sign == "~")


def cast(to: str, of: Constant) -> Constant:
    return whole(_integer(of), to == ".u64")


def chosen(condition: Constant, yes: Constant, no: Constant) -> Constant:
    """`condition ? yes : no`, which is signed."""
    values = _integer(no), _integer(yes)
    return whole(values[bool(_integer(condition))], False)


def _integer(constant: Constant) -> int:
    if isinstance(constant.value, float):
        raise Meaningless("a float where an integer is expected")
    return constant.value


def binary(sign: str, a: Constant, b: Constant) -> Constant:
    if isinstance(a.value, float) and isinstance(b.value, float):
        return _of_floats(sign, a.value, b.value)
    x, y = _integer(a), _integer(b)
    if sign in ("&&", "||"):
        return Constant(int(bool(x) and bool(y)) if sign == "&&" else int(bool(x) or bool(y)))
    if sign in ("<<", ">>"):
        if not 0 <= y < 64:
            raise Meaningless("a constant expression shifts too far")
        return whole(x << y if sign == "<<" else x >> y, a.unsigned)
    unsigned = a.unsigned or b.unsigned or sign == "%"
    x, y = _integer(whole(x, unsigned)), _integer(whole(y, unsigned))
    if sign in _COMPARISONS:
        return Constant(int(_COMPARISONS[sign](x, y)))
    if sign in _WHOLE:
        return whole(_WHOLE[sign](x, y), unsigned)
    if y == 0:
        raise Meaningless("a constant expression divides by zero")
    quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
    return whole(quotient if sign == "/" else x - y * quotient, unsigned)


def _of_floats(sign: str, x: float, y: float) -> Constant:
    if sign in _COMPARISONS:
        return Constant(int(_COMPARISONS[sign](x, y)))
    if sign in _ARITHMETIC:
        return Constant(_ARITHMETIC[sign](x, y))
    if sign != "/" or y == 0:
        raise Meaningless(f"{sign} of such floats")
    return Constant(x / y)
