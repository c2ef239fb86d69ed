"""Binary floating point done in exact rational arithmetic: what instructions must yield, bit by bit."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Format:
    name: str
    bits: int
    fraction_bits: int

    @property
    def bias(self) -> int:
        return (1 << (self.bits - self.fraction_bits - 2)) - 1

    @property
    def smallest_exponent(self) -> int:
        return 1 - self.bias

    @property
    def largest(self) -> float:
        return math.ldexp(2 - 2.0**-self.fraction_bits, self.bias)

    @property
    def smallest_normal(self) -> float:
        return math.ldexp(1.0, self.smallest_exponent)

    @property
    def smallest(self) -> float:
        return math.ldexp(1.0, self.smallest_exponent - self.fraction_bits)

    def decode(self, bits: int) -> float:
        sign = -1.0 if bits >> (self.bits - 1) else 1.0
        fraction = bits & (1 << self.fraction_bits) - 1
        exponent = bits >> self.fraction_bits & (1 << (self.bits - 1 - self.fraction_bits)) - 1
        if exponent == 2 * self.bias + 1:
            return math.nan if fraction else sign * math.inf
        if exponent == 0:
            return sign * math.ldexp(fraction, self.smallest_exponent - self.fraction_bits)
        return sign * math.ldexp(
            (1 << self.fraction_bits) + fraction, exponent - self.bias - self.fraction_bits
        )

    def encode(self, value: float) -> int:
        """The bits of a value that the format has."""
        if math.isnan(value):
            return (1 << (self.bits - 1)) - 1
        sign = int(math.copysign(1, value) < 0) << (self.bits - 1)
        if math.isinf(value):
            return sign | (2 * self.bias + 1) << self.fraction_bits
        value = abs(value)
        if value < self.smallest_normal:
            fraction = value / self.smallest
            assert fraction == int(fraction), f"{value} is no {self.name}"
            return sign | int(fraction)
        mantissa, exponent = math.frexp(value)
        fraction = math.ldexp(mantissa, self.fraction_bits + 1)
        assert fraction == int(fraction), f"{value} is no {self.name}"
        return (
            sign
            | (exponent - 1 + self.bias) << self.fraction_bits
            | int(fraction) - (1 << self.fraction_bits)
        )

    def round(self, exact: Fraction, mode: str = "rn") -> float:
        """A non-zero rational to the format. Modes rn, rna (ties away), rz, rm, rp, as in PTX."""
        negative, size = exact < 0, abs(exact)
        exponent = size.numerator.bit_length() - size.denominator.bit_length()
        if Fraction(2) ** exponent > size:
            exponent -= 1
        quantum = Fraction(2) ** (max(exponent, self.smallest_exponent) - self.fraction_bits)
        count, rest = divmod(size, quantum)
        rest /= quantum
        half = Fraction(1, 2)
        up = {
            "rn": rest > half or (rest == half and count % 2 == 1),
            "rna": rest >= half,
            "rz": False,
            "rm": negative and rest > 0,
            "rp": not negative and rest > 0,
        }[mode]
        rounded = (count + up) * quantum
        if rounded > Fraction(self.largest):
            away = {"rn": True, "rna": True, "rz": False, "rm": negative, "rp": not negative}[mode]
            result = math.inf if away else self.largest
        else:
            result = float(rounded)
        return -result if negative else result

    def convert(self, value: float, mode: str = "rn", ftz: bool = False) -> float:
        """A value of another format."""
        if value == 0 or not math.isfinite(value):
            return value
        return self.flush(self.round(Fraction(value), mode), ftz)

    def flush(self, value: float, ftz: bool = True) -> float:
        return math.copysign(0.0, value) if ftz and abs(value) < self.smallest_normal else value


F16 = Format("f16", 16, 10)
BF16 = Format("bf16", 16, 7)
F32 = Format("f32", 32, 23)
F64 = Format("f64", 64, 52)
FORMATS = {each.name: each for each in (F16, BF16, F32, F64)}


@dataclass(frozen=True)
class Arithmetic:
    """The operations in one format, rounding mode, with or without .ftz and .sat."""

    format: Format
    mode: str = "rn"
    ftz: bool = False
    sat: bool = False

    def _in(self, *values: float) -> list[float]:
        return [self.format.flush(value, self.ftz) for value in values]

    def _out(self, value: float | Fraction, zero: float = 0.0) -> float:
        """`zero`: with which sign a result of exactly nothing comes."""
        if isinstance(value, Fraction):
            value = self.format.round(value, self.mode) if value else zero
        value = self.format.flush(value, self.ftz)
        if self.sat:
            return 0.0 if math.isnan(value) or value <= 0 else min(value, 1.0)
        return value

    def _sum(self, x: Fraction, y: Fraction, x_sign: float, y_sign: float) -> float:
        same = math.copysign(1, x_sign) == math.copysign(1, y_sign) and not (x or y)
        zero = math.copysign(0.0, x_sign) if same else -0.0 if self.mode == "rm" else 0.0
        return self._out(x + y, zero)

    def add(self, x: float, y: float) -> float:
        x, y = self._in(x, y)
        if not (math.isfinite(x) and math.isfinite(y)):
            return self._out(x + y)
        return self._sum(Fraction(x), Fraction(y), x, y)

    def sub(self, x: float, y: float) -> float:
        return self.add(x, -y)

    def mul(self, x: float, y: float) -> float:
        x, y = self._in(x, y)
        if not (math.isfinite(x) and math.isfinite(y)):
            return self._out(x * y)
        return self._out(Fraction(x) * Fraction(y), math.copysign(0.0, _sign(x) * _sign(y)))

    def fma(self, x: float, y: float, z: float) -> float:
        x, y, z = self._in(x, y, z)
        if not (math.isfinite(x) and math.isfinite(y)):
            return self._out(x * y + z)
        if not math.isfinite(z):
            return self._out(z)
        return self._sum(Fraction(x) * Fraction(y), Fraction(z), _sign(x) * _sign(y), z)

    def div(self, x: float, y: float) -> float:
        x, y = self._in(x, y)
        sign = _sign(x) * _sign(y)
        if math.isnan(x) or math.isnan(y) or (x == 0 and y == 0) or (math.isinf(x) and math.isinf(y)):
            return self._out(math.nan)
        if math.isinf(x) or y == 0:
            return self._out(sign * math.inf)
        if math.isinf(y):
            return self._out(sign * 0.0)
        return self._out(Fraction(x) / Fraction(y), math.copysign(0.0, sign))

    def rcp(self, x: float) -> float:
        return self.div(1.0, x)

    def sqrt(self, x: float) -> float:
        (x,) = self._in(x)
        if math.isnan(x) or x < 0:
            return self._out(math.nan)
        if x == 0 or math.isinf(x):
            return self._out(x)
        exact = Fraction(x)
        shift = 200 + (exact.denominator.bit_length() if exact < 1 else 0)
        scaled, rest = divmod(exact.numerator << 2 * shift, exact.denominator)
        root = math.isqrt(scaled)
        inexact = rest != 0 or root * root != scaled
        return self._out(Fraction(2 * root + inexact, 1 << (shift + 1)))


def _sign(value: float) -> float:
    return math.copysign(1.0, value)


def ulps(format_: Format, got: float, exact: float) -> float:
    """How far `got` is from a value known to more precision than the format's."""
    if math.isnan(exact) or math.isnan(got):
        return 0.0 if math.isnan(exact) and math.isnan(got) else math.inf
    if math.isinf(exact) or math.isinf(got):
        return 0.0 if got == exact or (math.isinf(got) and abs(exact) > format_.largest) else math.inf
    exponent = (
        max(math.frexp(exact)[1] - 1, format_.smallest_exponent) if exact else format_.smallest_exponent
    )
    return abs(got - exact) / math.ldexp(1.0, exponent - format_.fraction_bits)


def float_bits(value: float) -> int:
    """Of a double."""
    return int.from_bytes(struct.pack("<d", value), "little")
