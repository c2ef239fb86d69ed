"""What a family of functions takes: lines in the spec, and lines written by hand on either side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from . import written
from .generate import ROOT
from .model import By, Class, Spec, Use, Variant


@dataclass(frozen=True)
class Row:
    """A function, operation or kind of object: who writes its guest side, and how many lines it takes."""

    name: str
    guest: str
    spec: int
    by_hand: int
    server: int


def entry_lines(file: str, begin: int, root: Path = ROOT) -> int:
    """Lines of the entry of a spec file that begins on this line, without comments and empty lines."""
    lines = (root / file).read_text(encoding="utf-8").split("\n")[begin - 1 :]

    def depth(line: str) -> int:
        return len(line) - len(line.lstrip(" "))

    found = 1
    for line in lines[1:]:
        if line.strip() and not line.lstrip().startswith("#"):
            if depth(line) <= depth(lines[0]):
                break
            found += 1
    return found


def chosen(spec: Spec, names: Sequence[str]) -> list[Variant]:
    """The carried functions of cuda.h in these groups, or whose symbols match these patterns (as `cuLink*`).

    Raises LookupError for a name that matches no function at all."""
    found: dict[str, Variant] = {}
    for name in names:
        matching = [v for v in spec.driver.variants if name == v.group or fnmatchcase(v.symbol, name)]
        if not matching:
            raise LookupError(f"no group or function {name!r}")
        found |= {v.symbol: v for v in matching if v.klass is not Class.UNSUPPORTED and v.alias is None}
    return sorted(found.values(), key=lambda v: v.id)


def operations(spec: Spec, family: list[Variant]) -> list[Variant]:
    """Our operations that nothing but these functions goes by."""
    inside = {name for v in family for name in v.via}
    outside = {name for v in spec.driver.variants if v not in family for name in v.via}
    return [v for name, v in spec.by_symbol.items() if name in inside - outside]


def guest_side(variant: Variant) -> str:
    if variant.guest is By.CUSTOM:
        return "by hand"
    steps = ", ".join(step.value for step in variant.guest_steps)
    return f"generated but {steps}" if steps else "generated" if variant.guest is By.GENERATED else ""


def rows(spec: Spec, names: Sequence[str]) -> list[Row]:
    """A row for each kind of object that the functions create, each function, each of their operations."""
    family = chosen(spec, names)
    guest, server = written.of_guest(spec), written.of_server(spec)
    created = {kind: None for v in family for a in v.args if a.use is Use.CREATE for kind in a.of}
    found = []
    for name in created:
        where = spec.objects[name].where  # of its first key; its name is on the line before
        found.append(Row(f"object {name}", "", entry_lines(where.file, where.line - 1), 0, 0))
    for v in [*family, *operations(spec, family)]:
        hands = guest.get(v.symbol, 0), server.get(v.symbol, 0)
        found.append(Row(v.symbol, guest_side(v), entry_lines(v.where.file, v.where.line), *hands))
    return found


def as_markdown(spec: Spec, names: Sequence[str]) -> str:
    """The rows as a table, their sum, and what one function takes on average."""
    found = rows(spec, names)
    functions = len(chosen(spec, names))
    if not functions:
        return "Not carried yet.\n"
    sums = [sum(column) for column in zip(*((r.spec, r.by_hand, r.server) for r in found), strict=True)]
    lines = ["| | guest | lines in the spec | by hand, guest | by hand, server |", "|---|---|--:|--:|--:|"]
    lines += [
        f"| {row.name} | {row.guest} | {row.spec} | {row.by_hand or ''} | {row.server or ''} |"
        for row in found
    ]
    lines.append("| **all** | | " + " | ".join(map(str, sums)) + " |")
    per = " | ".join(f"{number / functions:.1f}" for number in sums)
    return "\n".join([*lines, f"| **for each of {functions} functions** | | {per} |"]) + "\n"
