"""From an LLVM instruction for one thread to the same instruction for the lanes of a warp."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

WARP = 32

_NAME = re.compile(r"%[\w.$]+")
_BINARY = re.compile(
    r"(add|sub|mul|and|or|xor|shl|lshr|ashr|udiv|sdiv|urem|srem|fadd|fsub|fmul|fdiv|frem)((?: nuw| nsw)*)"
    r" (\w+) (\S+), (\S+)\Z"
)
_COMPARE = re.compile(r"([if]cmp) (\w+) (\w+) (\S+), (\S+)\Z")
_UNARY = re.compile(r"(fneg|freeze) (\w+) (\S+)\Z")
_CAST = re.compile(
    r"(zext|sext|trunc|bitcast|fpext|fptrunc|sitofp|uitofp|ptrtoint|inttoptr) (\w+) (\S+) to (\w+)\Z"
)
_SELECT = re.compile(r"select i1 (\S+), (\w+) (\S+), \w+ (\S+)\Z")
_GEP = re.compile(r"getelementptr (\w+), ptr (\S+), (i\d+) (\S+)\Z")
_PART = re.compile(r"extractvalue \{ (\w+), (\w+) \} (\S+), (\d)\Z")
_STORE = re.compile(r"store (?:atomic )?(\w+) (\S+), ptr (\S+?)(?: \w+)?, align (\d+)\Z")
_SUFFIX = re.compile(r"\.(i\d+|f\d+)(?=\.|\Z)")
# Arguments that stay constants, by their places.
_IMMEDIATE = {"llvm.ctlz": 1, "llvm.cttz": 1, "llvm.abs": 1, "llvm.is.fpclass": 1}


class NotVector(Exception):
    """There is no such instruction of vectors: the lanes take turns."""


@dataclass(frozen=True)
class Wide:
    """The instruction, and the type of one lane's result."""

    text: str
    kind: str


def vector(kind: str) -> str:
    """The type of a warp's values."""
    return f"<{WARP} x {kind}>"


def names(text: str) -> list[str]:
    """The values that a text mentions."""
    return _NAME.findall(text)


class Widener:
    """Rewrites instructions. `spread` yields a value as a vector; it splats what is the same for all
    lanes."""

    def __init__(self, spread: Callable[[str, str], str], kind_of: Callable[[str], str | None]) -> None:
        self.spread = spread
        self.kind_of = kind_of

    def instruction(self, text: str) -> Wide:
        for pattern, rewrite in self._forms:
            found = pattern.match(text)
            if found is not None:
                return rewrite(self, found)
        raise NotVector(text)

    def _binary(self, found: re.Match[str]) -> Wide:
        name, flags, kind, a, b = found.groups()
        return Wide(f"{name}{flags} {vector(kind)} {self.spread(kind, a)}, {self.spread(kind, b)}", kind)

    def _compare(self, found: re.Match[str]) -> Wide:
        name, predicate, kind, a, b = found.groups()
        values = f"{self.spread(kind, a)}, {self.spread(kind, b)}"
        return Wide(f"{name} {predicate} {vector(kind)} {values}", "i1")

    def _unary(self, found: re.Match[str]) -> Wide:
        name, kind, a = found.groups()
        return Wide(f"{name} {vector(kind)} {self.spread(kind, a)}", kind)

    def _cast(self, found: re.Match[str]) -> Wide:
        name, source, a, to = found.groups()
        return Wide(f"{name} {vector(source)} {self.spread(source, a)} to {vector(to)}", to)

    def _select(self, found: re.Match[str]) -> Wide:
        condition, kind, a, b = found.groups()
        values = f"{vector(kind)} {self.spread(kind, a)}, {vector(kind)} {self.spread(kind, b)}"
        if self.kind_of(condition) is None:
            return Wide(f"select i1 {condition}, {values}", kind)
        return Wide(f"select {vector('i1')} {condition}, {values}", kind)

    def _gep(self, found: re.Match[str]) -> Wide:
        element, base, index_kind, index = found.groups()
        where = f"{vector('ptr')} {base}" if self.kind_of(base) else f"ptr {base}"
        by = f"{vector(index_kind)} {index}" if self.kind_of(index) else f"{index_kind} {index}"
        return Wide(f"getelementptr {element}, {where}, {by}", "ptr")

    def _part(self, found: re.Match[str]) -> Wide:
        first, second, value, index = found.groups()
        pair = f"{{ {vector(first)}, {vector(second)} }}"
        return Wide(f"extractvalue {pair} {value}, {index}", first if index == "0" else second)

    _forms = (
        (_BINARY, _binary),
        (_COMPARE, _compare),
        (_UNARY, _unary),
        (_CAST, _cast),
        (_SELECT, _select),
        (_GEP, _gep),
        (_PART, _part),
    )

    def intrinsic(
        self, name: str, result: str, arguments: tuple[str, ...]
    ) -> tuple[str, str, list[str], str]:
        """(name, result type, arguments, type of one lane's result) of an intrinsic."""
        if not name.startswith("llvm."):
            raise NotVector(name)
        stem = next((stem for stem in _IMMEDIATE if name.startswith(stem + ".")), None)
        wide = []
        for index, argument in enumerate(arguments):
            kind, value = argument.split(" ", 1)
            if stem is not None and index == _IMMEDIATE[stem]:
                wide.append(argument)
            else:
                wide.append(f"{vector(kind)} {self.spread(kind, value)}")
        wide_name = _SUFFIX.sub(lambda found: f".v{WARP}{found[1]}", name)
        if result.startswith("{"):
            kinds = result.strip("{} ").split(", ")
            return wide_name, "{ " + ", ".join(vector(kind) for kind in kinds) + " }", wide, result
        return wide_name, vector(result), wide, result


def store_of(text: str) -> tuple[str, str, str, int] | None:
    """(type, value, pointer, alignment) of a store."""
    found = _STORE.match(text)
    return (found[1], found[2], found[3], int(found[4])) if found else None
