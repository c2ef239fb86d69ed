"""setp, set, selp, slct: comparisons, ordered and unordered, with and without a Boolean operation."""

from __future__ import annotations

import math
import operator

import pytest

from .formats import F32
from .table import Row, Table, Value

ORDERED = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
UNSIGNED_NAMES = {"lo": operator.lt, "ls": operator.le, "hi": operator.gt, "hs": operator.ge}


def compare(name: str, x: float, y: float) -> bool:
    """Of floats: `ltu` is true too if either is NaN, `lt` (and `ne`) false."""
    unordered = math.isnan(x) or math.isnan(y)
    if name in ("num", "nan"):
        return unordered == (name == "nan")
    if len(name) == 3:
        return unordered or ORDERED[name[:2]](x, y)
    return not unordered and ORDERED[name](x, y)


def comparisons() -> list[Row]:
    rows = []
    for t in ("s16", "u16", "s32", "u32", "s64", "u64"):
        rows += [Row(f"setp.{name}.{t}", f"{t} {t} -> pred", is_) for name, is_ in ORDERED.items()]
    for t in ("u32", "u64"):
        rows += [Row(f"setp.{name}.{t}", f"{t} {t} -> pred", is_) for name, is_ in UNSIGNED_NAMES.items()]
    for t in ("f16", "bf16", "f32", "f64"):
        for name in (*ORDERED, *(f"{name}u" for name in ORDERED), "num", "nan"):
            rows.append(
                Row(f"setp.{name}.{t}", f"{t} {t} -> pred", lambda x, y, name=name: compare(name, x, y))
            )
    flush = F32.flush
    rows += [
        Row("setp.gt.ftz.f32", "f32 f32 -> pred", lambda x, y: compare("gt", flush(x), flush(y))),
        Row("setp.neu.ftz.f32", "f32 f32 -> pred", lambda x, y: compare("neu", flush(x), flush(y))),
        Row("set.lt.u32.s32", "s32 s32 -> u32", lambda x, y: -(x < y)),
        Row("set.lt.f32.u32", "u32 u32 -> f32", lambda x, y: float(x < y)),
        Row("set.geu.u32.f32", "f32 f32 -> u32", lambda x, y: -compare("geu", x, y)),
        Row(
            "selp.b32",
            "u32 u32 u32 -> u32",
            lambda x, y, z: x if z > 7 else y,
            "setp.gt.u32 %p, %c, 7; selp.b32 %d, %a, %b, %p;",
        ),
        Row("selp.f64", "f64 f64 -> f64", lambda x, y: y, "setp.ne.u32 %p, 0, 0; selp.f64 %d, %a, %b, %p;"),
        Row("slct.u32.s32", "u32 u32 s32 -> u32", lambda x, y, z: x if z >= 0 else y),
        Row("slct.s64.f32", "s64 s64 f32 -> s64", lambda x, y, z: x if z >= 0 else y),
    ]
    return rows


def combined() -> list[Row]:
    rows = []
    operations = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}
    for name, operation in operations.items():
        for negated in (False, True):
            code = f"setp.ne.u32 %q, %c, 0; setp.lt.{name}.s32 %p|%past, %a, %b, {'!' if negated else ''}%q;"

            def first(x: Value, y: Value, z: Value, operation=operation, negated=negated) -> bool:  # type: ignore[no-untyped-def]
                return bool(operation(x < y, (z != 0) != negated))

            def second(x: Value, y: Value, z: Value, operation=operation, negated=negated) -> bool:  # type: ignore[no-untyped-def]
                return bool(operation(not x < y, (z != 0) != negated))

            label = f"setp.{name}{' not' if negated else ''}"
            rows += [
                Row(f"{label} p", "s32 s32 u32 -> pred", first, code),
                Row(f"{label} q", "s32 s32 u32 -> pred", second, code + "mov.pred %p, %past;"),
            ]
    logic = "setp.ne.u32 %p, %a, 0; setp.ne.u32 %q, %b, 0; {}.pred %p, %p, %q;"
    rows += [
        Row(
            f"{name}.pred", "u32 u32 -> pred", lambda x, y, o=operation: o(x != 0, y != 0), logic.format(name)
        )
        for name, operation in operations.items()
    ]
    rows.append(Row("not.pred", "u32 -> pred", lambda x: x == 0, "setp.ne.u32 %p, %a, 0; not.pred %p, %p;"))
    return rows


TABLE = Table([*comparisons(), *combined()])


@pytest.mark.some(50)
@pytest.mark.parametrize("row", TABLE.rows, ids=lambda row: row.kernel[2:80])
def test_comparison(row: Row) -> None:
    TABLE.check(row)
