"""Integer arithmetic, bit operations, logic and shifts against Python's integers."""

from __future__ import annotations

import functools
import operator

import pytest

from .table import BLOCK, Row, Table

SIGNED = ("s16", "s32", "s64")
UNSIGNED = ("u16", "u32", "u64")


def bits(type_: str) -> int:
    return int(type_[1:])


def mask(type_: str) -> int:
    return (1 << bits(type_)) - 1


def limits(type_: str) -> tuple[int, int]:
    if type_[0] == "s":
        return -(1 << bits(type_) - 1), (1 << bits(type_) - 1) - 1
    return 0, mask(type_)


def quotient(x: int, y: int) -> int:
    """Towards zero; what the hardware makes of a zero divisor is not specified, but it does not trap."""
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


def arithmetic() -> list[Row]:
    rows = []
    for t in SIGNED + UNSIGNED:
        low, high = limits(t)
        signed = t[0] == "s"
        divisors = [1, 2, 3, 7, high, high - 1, 10, *([-1, -2, -7, low] if signed else [])]
        dividends = [0, 1, 5, 100, high, high - 1, *([-1, -5, low, low + 1] if signed else [])]
        n = bits(t)
        rows += [
            Row(f"add.{t}", f"{t} {t} -> {t}", lambda x, y: x + y),
            Row(f"sub.{t}", f"{t} {t} -> {t}", lambda x, y: x - y),
            Row(f"mul.lo.{t}", f"{t} {t} -> {t}", lambda x, y: x * y),
            Row(f"mul.hi.{t}", f"{t} {t} -> {t}", lambda x, y, n=n: x * y >> n),
            Row(f"mad.lo.{t}", f"{t} {t} {t} -> {t}", lambda x, y, z: x * y + z),
            Row(f"mad.hi.{t}", f"{t} {t} {t} -> {t}", lambda x, y, z, n=n: (x * y >> n) + z),
            Row(f"div.{t}", f"{t} {t} -> {t}", quotient, inputs=(dividends, divisors)),
            Row(
                f"rem.{t}",
                f"{t} {t} -> {t}",
                lambda x, y: x - y * quotient(x, y),
                inputs=(dividends, divisors),
            ),
            Row(f"min.{t}", f"{t} {t} -> {t}", min),
            Row(f"max.{t}", f"{t} {t} -> {t}", max),
            Row(f"sad.{t}", f"{t} {t} {t} -> {t}", lambda x, y, z: abs(x - y) + z),
            # The result is unspecified; the kernel must survive.
            Row(
                f"div.{t}",
                f"{t} {t} -> {t}",
                lambda x, y: 1,
                f"div.{t} %d, %a, %b; mov.b{n} %d, 1;",
                ([0, 1, high], [0]),
            ),
        ]
        if signed:
            rows += [
                Row(f"neg.{t}", f"{t} -> {t}", lambda x: -x),
                Row(f"abs.{t}", f"{t} -> {t}", abs),
            ]
        if n < 64:
            wide = f"{t[0]}{2 * n}"
            rows += [
                Row(f"mul.wide.{t}", f"{t} {t} -> {wide}", lambda x, y: x * y),
                Row(f"mad.wide.{t}", f"{t} {t} {wide} -> {wide}", lambda x, y, z: x * y + z),
            ]
    clamp = limits("s32")
    rows += [
        Row("add.sat.s32", "s32 s32 -> s32", lambda x, y: max(clamp[0], min(x + y, clamp[1]))),
        Row("add.sat.u32", "u32 u32 -> u32", lambda x, y: min(x + y, limits("u32")[1])),
        Row("sub.sat.s32", "s32 s32 -> s32", lambda x, y: max(clamp[0], min(x - y, clamp[1]))),
        Row(
            "mad.hi.sat.s32",
            "s32 s32 s32 -> s32",
            lambda x, y, z: max(clamp[0], min((x * y >> 32) + z, clamp[1])),
        ),
    ]
    return rows


def low24(x: int, signed: bool) -> int:
    x &= 0xFFFFFF
    return x - (1 << 24) if signed and x >> 23 else x


def carries() -> list[Row]:
    both = "{0}.cc.u32 %t0, %a, %b; {0}c.u32 %t1, 0, 0; {1}"
    carry = both.format("add", "mov.b32 %d, %t1;")
    borrow = both.format("sub", "mov.b32 %d, %t1;")
    split = "mov.b64 {%t0, %t1}, %a; mov.b64 {%t2, %t3}, %b;"
    rows = [
        Row("add.cc", "u32 u32 -> u32", lambda x, y: x + y >> 32, carry),
        Row("sub.cc", "u32 u32 -> u32", lambda x, y: x - y >> 32, borrow),
        # The flag is that of one adder (a - b is a + ~b + 1), as NVVM's division of 128 bits relies on.
        Row(
            "addc of sub.cc",
            "u32 u32 -> u32",
            lambda x, y: x >= y,
            "sub.cc.u32 %t0, %a, %b; addc.u32 %d, 0, 0;",
        ),
        Row(
            "subc of add.cc",
            "u32 u32 -> u32",
            lambda x, y: (x + y >> 32) - 1,
            "add.cc.u32 %t0, %a, %b; subc.u32 %d, 0, 0;",
        ),
        Row(
            "addc chain",
            "u64 u64 -> u64",
            lambda x, y: x + y,
            split + "add.cc.u32 %t0, %t0, %t2; addc.u32 %t1, %t1, %t3; mov.b64 %d, {%t0, %t1};",
        ),
        Row(
            "subc chain",
            "u64 u64 -> u64",
            lambda x, y: x - y,
            split + "sub.cc.s32 %t0, %t0, %t2; subc.cc.s32 %t1, %t1, %t3; mov.b64 %d, {%t0, %t1};",
        ),
        Row(
            "mad.cc chain",
            "u32 u32 u64 -> u64",
            lambda x, y, z: x * y + z,
            "mov.b64 {%t0, %t1}, %c; mad.lo.cc.u32 %t0, %a, %b, %t0; madc.hi.u32 %t1, %a, %b, %t1;"
            "mov.b64 %d, {%t0, %t1};",
        ),
        Row(
            "add.cc, and a register of that name",
            "u32 u32 -> u32",
            lambda x, y: (x + y >> 32) + y,
            ".reg .b32 carry; mov.b32 carry, %b; add.cc.u32 %t0, %a, %b; addc.u32 %d, carry, 0;",
        ),
        Row(
            "add.cc.u64",
            "u64 u64 -> u64",
            lambda x, y: x + y >> 64,
            "add.cc.u64 %x0, %a, %b; addc.u64 %d, 0, 0;",
        ),
    ]
    for t in ("s32", "u32"):
        signed = t[0] == "s"
        rows += [
            Row(f"mul24.lo.{t}", f"{t} {t} -> {t}", lambda x, y, s=signed: low24(x, s) * low24(y, s)),
            Row(f"mul24.hi.{t}", f"{t} {t} -> {t}", lambda x, y, s=signed: low24(x, s) * low24(y, s) >> 16),
            Row(
                f"mad24.lo.{t}",
                f"{t} {t} {t} -> {t}",
                lambda x, y, z, s=signed: low24(x, s) * low24(y, s) + z,
            ),
        ]
    return rows


def dot(x: int, y: int, z: int, x_signed: bool, y_signed: bool, x_bits: int, first: int = 0) -> int:
    def part(value: int, at: int, width: int, signed: bool) -> int:
        value = value >> at & (1 << width) - 1
        return value - (1 << width) if signed and value >> (width - 1) else value

    count = 32 // x_bits
    return z + sum(
        part(x, i * x_bits, x_bits, x_signed) * part(y, 8 * (first + i), 8, y_signed) for i in range(count)
    )


def dots() -> list[Row]:
    rows = []
    for a in "su":
        for b in "su":
            z = "u32" if a == b == "u" else "s32"
            s, t = a == "s", b == "s"
            rows += [
                Row(
                    f"dp4a.{a}32.{b}32",
                    f"u32 u32 {z} -> {z}",
                    lambda x, y, z, s=s, t=t: dot(x, y, z, s, t, 8),
                ),
                Row(
                    f"dp2a.lo.{a}32.{b}32",
                    f"u32 u32 {z} -> {z}",
                    lambda x, y, z, s=s, t=t: dot(x, y, z, s, t, 16),
                ),
                Row(
                    f"dp2a.hi.{a}32.{b}32",
                    f"u32 u32 {z} -> {z}",
                    lambda x, y, z, s=s, t=t: dot(x, y, z, s, t, 16, 2),
                ),
            ]
    return rows


def bfe(x: int, position: int, length: int, t: str) -> int:
    """As the PTX ISA spells it out."""
    msb = bits(t) - 1
    position, length = position & 0xFF, length & 0xFF
    raw = x & mask(t)
    sign = 0 if t[0] == "u" or length == 0 else raw >> min(position + length - 1, msb) & 1
    return sum(
        (raw >> position + i & 1 if i < length and position + i <= msb else sign) << i for i in range(msb + 1)
    )


def bfi(x: int, y: int, position: int, length: int, t: str) -> int:
    result = y
    for i in range(length & 0xFF):
        at = (position & 0xFF) + i
        if at < bits(t):
            result = result & ~(1 << at) | (x >> i & 1) << at
    return result


def bfind(x: int, t: str, amount: bool) -> int:
    value = ~x if t[0] == "s" and x < 0 else x
    found = value.bit_length() - 1
    return bits(t) - 1 - found if amount and found >= 0 else found


def fns(x: int, base: int, offset: int) -> int:
    if offset == 0:
        return base if x >> base & 1 else 0xFFFFFFFF
    step = 1 if offset > 0 else -1
    found, at = 0, base
    while 0 <= at < 32:
        if x >> at & 1:
            found += 1
            if found == abs(offset):
                return at
        at += step
    return 0xFFFFFFFF


def carryless(x: int, y: int) -> int:
    return functools.reduce(operator.xor, (x << bit for bit in range(64) if y >> bit & 1), 0)


def fields() -> list[Row]:
    rows = []
    positions = [0, 1, 5, 16, 31, 32, 33, 63, 64, 255, 256 + 4]
    for t in ("u32", "s32", "u64", "s64"):
        values = [
            v & mask(t) if t[0] == "u" else v
            for v in (0, 1, -1, 0x1234567, limits(t)[1], limits(t)[0], 0x5A5A5A5A)
        ]
        rows += [
            Row(
                f"bfe.{t}",
                f"{t} u32 u32 -> {t}",
                lambda x, p, n, t=t: bfe(x, p, n, t),
                inputs=(values, positions, positions),
            ),
            Row(f"bfind.{t}", f"{t} -> u32", lambda x, t=t: bfind(x, t, False)),
            Row(f"bfind.shiftamt.{t}", f"{t} -> u32", lambda x, t=t: bfind(x, t, True)),
        ]
    for n in (32, 64):
        t, v = f"u{n}", [0, (1 << n) - 1, 0x12345678, 0x5A5A5A5A]
        register = "%x0" if n == 64 else "%t0"
        rows += [
            Row(
                "bfi",
                f"{t} u32 u32 -> {t}",
                lambda x, p, m, t=t, y=y: bfi(x, y, p, m, t),
                f"mov.b{n} {register}, {y}; bfi.b{n} %d, %a, {register}, %b, %c;",
                inputs=(v, positions, positions),
            )
            for y in (0, 0x0F0F0F0F)
        ]
        rows += [
            Row(f"clz.b{n}", f"{t} -> u32", lambda x, n=n: n - x.bit_length()),
            Row(f"popc.b{n}", f"{t} -> u32", lambda x: bin(x).count("1")),
            Row(f"brev.b{n}", f"{t} -> {t}", lambda x, n=n: int(f"{x:0{n}b}"[::-1], 2)),
        ]
    rows += [
        Row(
            "fns.b32",
            "u32 u32 s32 -> u32",
            fns,
            inputs=([0, 1, 0x80000001, 0xF0F0, 0xFFFFFFFF], [0, 3, 15, 31], [0, 1, 2, 8, 32, -1, -2, -32]),
        ),
        Row("clmad.lo.u64", "u64 u64 u64 -> u64", lambda x, y, z: (carryless(x, y) ^ z) & mask("u64")),
        Row("clmad.hi.u64", "u64 u64 u64 -> u64", lambda x, y, z: carryless(x, y) >> 64 ^ z),
        Row(
            "bmsk.clamp.b32",
            "u32 u32 -> u32",
            lambda a, b: ((1 << min(b, 32)) - 1) << min(a, 32),
            inputs=(positions, positions),
        ),
        Row(
            "bmsk.wrap.b32",
            "u32 u32 -> u32",
            lambda a, b: ((1 << (b & 31)) - 1) << (a & 31),
            inputs=(positions, positions),
        ),
        Row(
            "szext.clamp.s32",
            "s32 u32 -> s32",
            lambda x, n: 0 if n == 0 else x if n >= 32 else (x & (1 << n) - 1) - ((x >> n - 1 & 1) << n),
            inputs=([0, 1, -1, 0x5A5A5A5A, -0x80000000], [0, 1, 4, 8, 31, 32, 40]),
        ),
        Row(
            "szext.wrap.u32",
            "u32 u32 -> u32",
            lambda x, n: x & (1 << (n & 31)) - 1,
            inputs=([0, 1, 0xFFFFFFFF, 0x5A5A5A5A], [0, 1, 8, 31, 32, 40]),
        ),
    ]
    return rows


def logic() -> list[Row]:
    rows = []
    for n in (16, 32, 64):
        t = f"u{n}"
        rows += [
            Row(f"and.b{n}", f"{t} {t} -> {t}", lambda x, y: x & y),
            Row(f"or.b{n}", f"{t} {t} -> {t}", lambda x, y: x | y),
            Row(f"xor.b{n}", f"{t} {t} -> {t}", lambda x, y: x ^ y),
            Row(f"not.b{n}", f"{t} -> {t}", lambda x: ~x),
            Row(f"cnot.b{n}", f"{t} -> {t}", lambda x: int(x == 0)),
            Row(f"shl.b{n}", f"{t} u32 -> {t}", lambda x, y, n=n: x << y if y < n else 0),
            Row(f"shr.b{n}", f"{t} u32 -> {t}", lambda x, y: x >> y),
            Row(f"shr.u{n}", f"{t} u32 -> {t}", lambda x, y: x >> y),
            Row(f"shr.s{n}", f"s{n} u32 -> s{n}", lambda x, y: x >> y),
        ]
    for lut in (0x80, 0xFE, 0x96, 0xE8, 0x1A, 0x00, 0xFF, 0xCA, 0x1E8, -2):
        rows.append(
            Row(
                "lop3",
                "u32 u32 u32 -> u32",
                lambda x, y, z, lut=lut: lop3(x, y, z, lut),
                f"lop3.b32 %d, %a, %b, %c, {lut};",
            )
        )
    for way in ("l", "r"):
        for edge in ("wrap", "clamp"):
            rows.append(
                Row(
                    f"shf.{way}.{edge}.b32",
                    "u32 u32 u32 -> u32",
                    lambda x, y, n, w=way, e=edge: funnel(x, y, n, w, e),
                )
            )
    return rows


def lop3(x: int, y: int, z: int, lut: int) -> int:
    return sum((lut >> ((x >> i & 1) << 2 | (y >> i & 1) << 1 | z >> i & 1) & 1) << i for i in range(32))


def funnel(low: int, high: int, count: int, way: str, edge: str) -> int:
    count = count & 31 if edge == "wrap" else min(count, 32)
    both = high << 32 | low
    return both << count >> 32 if way == "l" else both >> count


PRMT_MODES = {
    "f4e": lambda i: [i, i + 1, i + 2, i + 3],
    "b4e": lambda i: [i, i + 7, i + 6, i + 5],
    "rc8": lambda i: [i] * 4,
    "ecl": lambda i: [max(i, j) for j in range(4)],
    "ecr": lambda i: [min(i, j) for j in range(4)],
    "rc16": lambda i: [i % 2 * 2, i % 2 * 2 + 1] * 2,
}


def prmt(x: int, y: int, selector: int, mode: str) -> int:
    data = (y << 32 | x).to_bytes(8, "little")
    if mode:
        return int.from_bytes(bytes(data[i % 8] for i in PRMT_MODES[mode](selector & 3)), "little")
    out = []
    for i in range(4):
        nibble = selector >> 4 * i & 15
        byte = data[nibble & 7]
        out.append((0xFF if byte >> 7 else 0) if nibble & 8 else byte)
    return int.from_bytes(bytes(out), "little")


def permutes() -> list[Row]:
    data = (
        [0x83828180, 0x13121110, 0x00FF7F80],
        [0x97969594, 0x27262524],
        [0, 1, 2, 3, 0x3210, 0x7654, 0x0123, 0x5140, 0xFEDC, 0x8888, 0xB9A8],
    )
    return [
        Row(
            f"prmt.b32{'.' + mode if mode else ''}",
            "u32 u32 u32 -> u32",
            lambda x, y, s, m=mode: prmt(x, y, s, m),
            inputs=data,
        )
        for mode in ("", *PRMT_MODES)
    ]


def moves() -> list[Row]:
    """A thread's number is that of its value; the whole of %tid has a fourth part, which is zero."""
    code = "mov.v4.u32 {%d, %t0, %t1, %t2}, %tid; or.b32 %t0, %t0, %t1; or.b32 %t0, %t0, %t2;"
    code += " or.b32 %d, %d, %t0;"
    return [Row("mov.v4.u32", "u32 -> u32", lambda x: x, code, inputs=(range(BLOCK),))]


TABLE = Table([*arithmetic(), *carries(), *dots(), *fields(), *logic(), *moves(), *permutes()])


@pytest.mark.some(80)
@pytest.mark.parametrize("row", TABLE.rows, ids=lambda row: row.kernel[2:80])
def test_instruction(row: Row) -> None:
    TABLE.check(row)
