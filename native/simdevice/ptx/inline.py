"""Functions in which a thread may wait for another become part of those that call them.

A warp has one stack: lanes that have left such a function, with a lock, could not go on before those that
wait in it have come back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from . import usage
from .analysis import Body, Program, called
from .model import (
    Address,
    Bracket,
    Function,
    Group,
    Instruction,
    Item,
    Label,
    Local,
    Negative,
    Not,
    Operand,
    Pair,
    Prototype,
    Register,
    Registers,
    ScopeBegin,
    ScopeEnd,
    Targets,
    Vector,
)

# Items of a kernel with its functions, beyond which nothing is made part of anything.
_MOST = 12_000
_DEEPEST = 100  # functions, each in the next


class _Impossible(Exception):
    """A call whose place a body cannot take."""


def inlined(program: Program) -> dict[int, list[Item]] | None:
    """New bodies for those that call functions in which threads wait, by index; None: there are none, or they
    call themselves, or are called by address."""
    waiting = program.calling({index for index, found in program.yields.items() if found})
    if not waiting - {program.kernel.index}:
        return None
    try:
        body = _Inliner(program, waiting).body(program.kernel.index)
    except _Impossible:
        return None
    return {program.kernel.index: body}


class _Inliner:
    def __init__(self, program: Program, waiting: set[int]) -> None:
        self.program = program
        self.waiting = waiting
        self.entered: list[int] = []
        self.calls = 0
        self.made = 0

    def body(self, index: int) -> list[Item]:
        """A function's items, with those of what it calls in their places."""
        if index in self.entered or len(self.entered) == _DEEPEST:
            raise _Impossible
        self.entered.append(index)
        body = self.program.bodies[index]
        items: list[Item] = []
        for position, item in enumerate(body.items):
            callees = [each for each in body.callees.get(position, ()) if each.index in self.waiting]
            if callees and isinstance(item, Instruction):
                items += self._call(body, item, callees)
            else:
                items.append(item)
        self.entered.pop()
        self.made += len(items)
        if self.made > _MOST:
            raise _Impossible
        return items

    def _call(self, caller: Body, call: Instruction, callees: list[Function]) -> Iterator[Item]:
        unit_of = self.program.module.unit_of
        (callee, *others) = callees
        unit = unit_of(caller.function)
        if others or called(unit, call) is not callee or unit_of(callee) is not unit:
            raise _Impossible
        if callee.own:
            raise _Impossible  # they go by the name of the function that has them
        items = self.body(callee.index)
        self.calls += 1
        number, end = self.calls, f"$end{self.calls}"
        numbered = _numbered(items)
        names = {name: f"{name}$in{number}" for name in _declared(items, numbered)}
        before: list[Item] = []
        after: list[Item] = []
        groups = [each.items for each in call.operands if isinstance(each, Group)]
        returns = groups[0] if isinstance(call.operands[0], Group) else []
        arguments = groups[-1] if len(groups) > bool(returns) else []
        formals = [
            *zip(callee.returns, returns, strict=False),
            *zip(callee.parameters, arguments, strict=False),
        ]
        if len(formals) != len(callee.returns) + len(callee.parameters):
            raise _Impossible
        places = {each.name: each for each in caller.items if isinstance(each, Local)}
        both = [each for each in arguments if each in returns]
        if any(isinstance(each, Register) and each.name in places for each in both):
            raise _Impossible  # it may write its result before it reads what it was given
        for count, (formal, actual) in enumerate(formals):
            place = places.get(actual.name) if isinstance(actual, Register) else None
            if formal.register or (place is not None and place.size != formal.size):
                raise _Impossible
            if place is not None:
                names[formal.name] = place.name
                continue
            own = names[formal.name] = f"{formal.name}$in{number}"
            before.append(Local("param", own, formal.size, formal.align, formal.size))
            bits, address = f"b{formal.type.bits}", Address(own, 0)
            if count < len(callee.returns):
                after.append(Instruction("ld", ("param", bits), [actual, address], call.line))
            else:
                before.append(Instruction("st", ("param", bits), [address, actual], call.line))
        yield ScopeBegin(call.line)
        if call.guard is not None:
            skip = Instruction("bra", (), [Register(f"$past{number}")], call.line, call.guard)
            yield replace(skip, guard_negated=not call.guard_negated)
        yield from before
        yield ScopeBegin(call.line)
        for item in items:
            yield _renamed(item, names, numbered, end)
        yield ScopeEnd(call.line)
        yield Label(end, call.line)
        yield from after
        yield Label(f"$past{number}", call.line)
        yield ScopeEnd(call.line)


def _numbered(items: list[Item]) -> dict[str, list[tuple[str, int]]]:
    """The names that a body mentions and their numbers, by what stands in front of those: of `%r<1000000>` no
    more are needed."""
    found: dict[str, list[tuple[str, int]]] = {}
    for name in {each for item in items if isinstance(item, Instruction) for each in _mentioned(item)}:
        for split in range(max(len(name.rstrip("0123456789")), len(name) - 9), len(name)):
            found.setdefault(name[:split], []).append((name, int(name[split:])))
    return found


def _mentioned(item: Instruction) -> Iterator[str]:
    for operand in item.operands:
        yield from usage.names(operand)
    if item.guard is not None:
        yield item.guard


def _of(name: str, count: int, numbered: dict[str, list[tuple[str, int]]]) -> list[str]:
    """The registers that a declaration makes; of `name<count>`, those that the body mentions."""
    return [each for each, number in numbered.get(name, ()) if number < count] if count else [name]


def _declared(items: list[Item], numbered: dict[str, list[tuple[str, int]]]) -> Iterator[str]:
    for item in items:
        if isinstance(item, Registers):
            for name, count in item.names:
                yield from _of(name, count, numbered)
        elif isinstance(item, Local):
            if item.space == "shared":
                raise _Impossible  # it is laid out with its function's name
            yield item.name
        elif isinstance(item, (Label, Targets, Prototype)):
            yield item.name


def _renamed(item: Item, names: dict[str, str], numbered: dict[str, list[tuple[str, int]]], end: str) -> Item:
    """In another function's body, where `ret` leads to the label `end`."""
    if isinstance(item, Instruction):
        guard = names.get(item.guard, item.guard) if item.guard else None
        if item.opcode == "ret":
            return replace(item, opcode="bra", modifiers=(), operands=[Register(end)], guard=guard)
        return replace(item, operands=[_operand(each, names) for each in item.operands], guard=guard)
    if isinstance(item, Registers):
        listed = [(names[name], 0) for base, count in item.names for name in _of(base, count, numbered)]
        return replace(item, names=listed)
    if isinstance(item, Targets):
        return Targets(names[item.name], [names.get(each, each) for each in item.targets])
    if isinstance(item, (Label, Local, Prototype)):
        return replace(item, name=names[item.name])
    return item


def _operand(operand: Operand, names: dict[str, str]) -> Operand:
    if isinstance(operand, (Register, Not, Negative)):
        name, dot, part = operand.name.partition(".")  # which video instructions take of a register
        return replace(operand, name=names.get(operand.name) or names.get(name, name) + dot + part)
    if isinstance(operand, Address):
        return replace(operand, base=names.get(operand.base, operand.base) if operand.base else None)
    if isinstance(operand, (Vector, Group, Bracket)):
        return replace(operand, items=[_operand(each, names) for each in operand.items])
    if isinstance(operand, Pair):
        return Pair(_operand(operand.first, names), _operand(operand.second, names))
    return operand
