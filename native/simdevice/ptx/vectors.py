"""Registers that are vectors: each element becomes a register of its own, `v.x`, and `v` the list of them."""

from __future__ import annotations

import re
from dataclasses import replace

from .model import (
    Address,
    Bracket,
    Group,
    Instruction,
    Item,
    Negative,
    Not,
    Operand,
    Pair,
    Register,
    Registers,
    ScopeBegin,
    ScopeEnd,
    Vector,
)

_NUMBERED = re.compile(r"(.*?)(0|[1-9]\d{0,7})\Z", re.DOTALL)
_ELEMENTS = {**dict(zip("xyzw", range(4), strict=True)), **dict(zip("rgba", range(4), strict=True))}


def elements_apart(items: list[Item]) -> list[Item]:
    """The same items without registers that are vectors."""
    if not any(isinstance(item, Registers) and item.vector > 1 for item in items):
        return items
    return _Body().items(items)


class _Scope:
    def __init__(self) -> None:
        self.declared: dict[str, tuple[Registers, int]] = {}  # by the name, `%v<` of a range; how many
        self.elements: dict[int, Registers] = {}  # of each declaration, those that the body mentions
        self.mentioned: set[str] = set()


class _Body:
    def __init__(self) -> None:
        self._scopes = [_Scope()]

    def items(self, items: list[Item]) -> list[Item]:
        return [self._item(item) for item in items]

    def _item(self, item: Item) -> Item:
        if isinstance(item, Registers):
            return self._declare(item)
        if isinstance(item, Instruction):
            return replace(item, operands=[self._operand(each) for each in item.operands])
        if isinstance(item, ScopeBegin):
            self._scopes.append(_Scope())
        elif isinstance(item, ScopeEnd):
            self._scopes.pop()
        return item

    def _declare(self, item: Registers) -> Registers:
        scope = self._scopes[-1]
        for name, count in item.names:
            scope.declared[f"{name}<" if count else name] = item, count
        if item.vector == 1:
            return item
        return scope.elements.setdefault(id(item), Registers(item.type, [], 1))

    def _elements(self, name: str) -> list[str]:
        """The registers of a vector; none if the name is another's."""
        numbered = _NUMBERED.match(name)
        for scope in reversed(self._scopes):
            declared, _ = scope.declared.get(name, (None, 0))
            if declared is None and numbered is not None:
                declared, count = scope.declared.get(numbered[1] + "<", (None, 0))
                declared = declared if int(numbered[2]) < count else None
            if declared is not None:
                return self._mention(scope, declared, name) if declared.vector > 1 else []
        return []

    def _mention(self, scope: _Scope, declared: Registers, name: str) -> list[str]:
        names = [f"{name}.{each}" for each in "xyzw"[: declared.vector]]
        if name not in scope.mentioned:
            scope.mentioned.add(name)
            scope.elements[id(declared)].names += [(each, 0) for each in names]
        return names

    def _named(self, name: str) -> str:
        """The one name of an element, which has two."""
        vector, dot, element = name.rpartition(".")
        if not dot or element not in _ELEMENTS:
            return name
        names = self._elements(vector)
        return names[_ELEMENTS[element]] if _ELEMENTS[element] < len(names) else name

    def _operand(self, operand: Operand) -> Operand:
        if isinstance(operand, Register):
            names = self._elements(operand.name)
            return (
                Vector([Register(each) for each in names]) if names else Register(self._named(operand.name))
            )
        if isinstance(operand, (Not, Negative)):
            return replace(operand, name=self._named(operand.name))
        if isinstance(operand, Address):
            return replace(operand, base=self._named(operand.base) if operand.base else None)
        if isinstance(operand, (Vector, Group, Bracket)):
            return replace(operand, items=[self._operand(each) for each in operand.items])
        if isinstance(operand, Pair):
            return Pair(self._operand(operand.first), self._operand(operand.second))
        return operand
