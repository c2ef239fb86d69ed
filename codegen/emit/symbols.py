"""The table behind cuGetProcAddress: (name, version, default stream) to symbol."""

from __future__ import annotations

from dataclasses import dataclass

from ..model import Spec
from ..render import render


@dataclass(frozen=True, order=True)
class Row:
    name: str
    since: int
    per_thread: int
    symbol: str


def rows(spec: Spec) -> list[Row]:
    found = []
    for variant in spec.driver.variants:
        found.append(Row(variant.base, variant.since, 0, variant.symbol))
        found += [Row(more.name, more.since, 0, variant.symbol) for more in variant.lookup]
        if variant.per_thread:
            found.append(Row(variant.base, variant.per_thread.since, 1, variant.per_thread.symbol))
    return sorted(found)


def outputs(spec: Spec) -> dict[str, str]:
    text = render("shared_symbols.c.j2", __file__, spec.driver.file, rows=rows(spec))
    return {"native/_generated/gpuferry_symbols.c": text}
