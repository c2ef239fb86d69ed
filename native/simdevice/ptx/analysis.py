"""Which functions a kernel needs, whether its threads may wait for each other, and where a wait yields."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from .errors import PtxError
from .model import (
    RUNTIME,
    Function,
    Instruction,
    Item,
    Label,
    Local,
    Prototype,
    Register,
    Registers,
    ScopeBegin,
    ScopeEnd,
    Symbol,
    Targets,
    Variable,
)
from .module import Module, Unit
from .usage import names

# Instructions that wait for, or exchange values with, other threads.
_COOPERATIVE = {"bar", "barrier", "shfl", "vote", "match", "redux", "activemask", "elect"} | {
    *("ldmatrix", "stmatrix", "mma", "wmma", "movmatrix", "nanosleep", "mapa", "getctarank")
}
# Where lanes of one warp wait for, or hear of, each other.
_MEETING = {"bar", "barrier", "shfl", "vote", "match", "redux", "elect", "mma", "wmma"} | {
    *("ldmatrix", "stmatrix", "movmatrix")
}
_ASKING = {"shfl", "vote"}  # before there was .sync
_EXCHANGING = {"shared", "shared::cta", "volatile"}
_OBSERVING_LOADS = {"volatile", "acquire", "relaxed", "cv", "cg"}
_LOCAL = "local memory"  # among the names of registers


@dataclass
class Body:
    function: Function
    items: list[Item]
    callees: dict[int, list[Function]] = field(default_factory=dict)
    observes: set[int] = field(default_factory=set)
    cooperative: bool = False
    asks: bool = False  # which lanes are there
    exits: bool = False
    meetings: set[int] = field(default_factory=set)  # positions where lanes meet
    exchanges: set[str] = field(
        default_factory=set
    )  # ld, st: of what the threads of a block may tell each other by


class Program:
    """A kernel and the functions it reaches. `yields` maps a function's index to positions of branches."""

    def __init__(
        self, module: Module, kernel: Function, rewritten: Mapping[int, list[Item] | None] | None = None
    ) -> None:
        """`rewritten`: by the indices of functions, bodies that take the place of what the text says."""
        self.module = module
        self.kernel = kernel
        self.rewritten = rewritten or {}
        self.bodies: dict[int, Body] = {}
        pending = [kernel]
        while pending:
            function = pending.pop()
            if function.index in self.bodies:
                continue
            body = self.bodies[function.index] = self._scan(function)
            for callees in body.callees.values():
                pending += callees
        # Functions that read memory another thread may be writing.
        observing = self.calling({index for index, body in self.bodies.items() if body.observes})
        self.yields: dict[int, set[int]] = {
            index: _waiting_branches(body, observing) for index, body in self.bodies.items()
        }
        # By the index of a function, the positions of calls from which a thread may not come back.
        self.endings = self._calls_of({index for index, body in self.bodies.items() if body.exits})
        # And where lanes, or warps, meet, there or in what is called there.
        self.meetings = self._calls_of({index for index, body in self.bodies.items() if body.meetings})
        for index, body in self.bodies.items():
            self.meetings[index] |= body.meetings
        functions = [body for index, body in self.bodies.items() if index != kernel.index]
        exits = any(body.exits for body in functions)
        # Whether lanes that ask which of them are there may have come by different calls.
        self.asks_in_functions = any(body.asks for body in functions)
        cooperative = any(body.cooperative for body in self.bodies.values())
        # Whether the threads may rely on running in step, with nothing that says so.
        self.exchanges = set().union(*(body.exchanges for body in self.bodies.values())) == {"ld", "st"}
        # Volatile shared memory is how programs said so before there was __syncwarp.
        self.in_step = any(
            isinstance(item, Instruction)
            and item.opcode == "st"
            and {"volatile", "shared"} <= set(item.modifiers)
            for body in self.bodies.values()
            for item in body.items
        )
        self.uses_fibers = cooperative or exits or any(self.yields.values())

    def _scan(self, function: Function) -> Body:
        body = Body(function, self.rewritten.get(function.index) or self.module.body(function))
        tables = visible(body.items, (Prototype, Targets), {"call"})
        for position, item in enumerate(body.items):
            if not isinstance(item, Instruction):
                continue
            opcode = item.opcode
            if opcode in ("ld", "st") and _EXCHANGING & set(item.modifiers):
                body.exchanges.add(opcode)
            if opcode == "call":
                table = tables[position].get(call_target(item)[1] or "")
                callees = self._callees(function, item, body.items[table] if table is not None else None)
                body.exits |= call_target(item)[0] == "__assertfail"
                if callees is not None:
                    body.callees[position] = callees
            elif opcode in _COOPERATIVE:
                body.cooperative = True
                body.asks |= opcode == "activemask" or (opcode in _ASKING and "sync" not in item.modifiers)
                if opcode in _MEETING:
                    body.meetings.add(position)
            elif opcode == "mbarrier" and item.modifiers[:1] in (("try_wait",), ("test_wait",)):
                body.observes.add(position)
                body.cooperative = True
            elif opcode == "exit":
                body.exits = True
            elif opcode == "atom" or (opcode in ("ld", "ldu") and _OBSERVING_LOADS & set(item.modifiers)):
                body.observes.add(position)
        return body

    def _callees(self, function: Function, call: Instruction, of_body: Item | None) -> list[Function] | None:
        """None for a call of the runtime. `of_body`: the prototype or targets that it sees in the body."""
        unit = self.module.unit_of(function)
        target, table = call_target(call)
        symbol = called(unit, call)
        if isinstance(symbol, Function):
            if symbol.start >= 0:
                return [symbol]
            if symbol.name in RUNTIME:
                return None
            raise PtxError(function.name, call.line, target, "the called function is not defined")
        if table is None:
            raise PtxError(function.name, call.line, target, "an indirect call needs a prototype or targets")
        known = of_body or unit.find(function, table)
        if isinstance(known, (Targets, Variable)):
            found: list[Symbol | None] = (
                [unit.symbols.get(name) for name in known.targets]
                if isinstance(known, Targets)
                else [*self.module.call_table(known)]
            )
            if not all(isinstance(each, Function) and each.start >= 0 for each in found):
                raise PtxError(function.name, call.line, table, "a call target is not defined")
            callees = [each for each in found if isinstance(each, Function)]
            if not all(_matches(each, callees[0]) for each in callees):
                raise PtxError(function.name, call.line, table, "call targets differ in what they take")
            return callees
        if isinstance(known, Prototype):
            return [each for each in self.module.address_taken if _matches(each, known)]
        raise PtxError(function.name, call.line, table, "not a prototype")

    def _calls_of(self, found: set[int]) -> dict[int, set[int]]:
        """By the index of a function, the positions of its calls that come to these functions."""
        coming = self.calling(found)
        return {
            index: {
                position
                for position, callees in body.callees.items()
                if any(each.index in coming for each in callees)
            }
            for index, body in self.bodies.items()
        }

    @property
    def is_recursive(self) -> bool:
        """Whether a function may be called while it runs."""
        left = set(self.bodies)
        while leaves := {index for index in left if not left & self._called(index)}:
            left -= leaves
        return bool(left)

    def _called(self, index: int) -> set[int]:
        return {each.index for callees in self.bodies[index].callees.values() for each in callees}

    def calling(self, found: set[int]) -> set[int]:
        """These functions, and all that come to them through what they call."""
        changed = True
        while changed:
            changed = False
            for index in self.bodies:
                if index not in found and found & self._called(index):
                    found.add(index)
                    changed = True
        return found


def visible(
    items: list[Item], kinds: tuple[type[Label | Prototype | Targets], ...], opcodes: Container[str]
) -> dict[int, ChainMap[str, int]]:
    """For each instruction of these opcodes, by its position, the items that it sees: their positions, by
    name. What stands behind it in a scope around it is seen, too."""
    stack: list[dict[str, int]] = [{}]
    seen: dict[int, ChainMap[str, int]] = {}
    for position, item in enumerate(items):
        if isinstance(item, ScopeBegin):
            stack.append({})
        elif isinstance(item, ScopeEnd):
            stack.pop()
        elif isinstance(item, kinds):
            stack[-1][item.name] = position
        elif isinstance(item, Instruction) and item.opcode in opcodes:
            seen[position] = ChainMap(*reversed(stack))
    return seen


def branch_targets(items: list[Item]) -> dict[int, list[str]]:
    """The names of the labels that each branch, by its position, may go to."""
    found: dict[int, list[str]] = {}
    for position, tables in visible(items, (Targets,), {"bra", "brx"}).items():
        branch = items[position]
        assert isinstance(branch, Instruction)
        names_of = [operand.name for operand in branch.operands[-1:] if isinstance(operand, Register)]
        if branch.opcode == "bra":
            found[position] = names_of
        else:
            known = [items[tables[name]] for name in names_of if name in tables]
            found[position] = [
                label for table in known if isinstance(table, Targets) for label in table.targets
            ]
    return found


def call_target(call: Instruction) -> tuple[str, str | None]:
    """(callee's name or register, name of the prototype or targets)."""
    named = [operand.name for operand in call.operands if isinstance(operand, Register)]
    if not 1 <= len(named) <= 2:
        raise PtxError("", call.line, call.text, "not a call")
    return named[0], named[1] if len(named) == 2 else None


def called(unit: Unit, call: Instruction) -> Symbol | None:
    """What a call names; None where a register has the address, and a table says of what it may be."""
    target, table = call_target(call)
    return unit.symbols.get(target) if table is None else None


def _matches(function: Function, prototype: Function | Prototype) -> bool:
    def sizes(which: Function | Prototype) -> tuple[list[int], list[int]]:
        return [each.size for each in which.returns], [each.size for each in which.parameters]

    return sizes(function) == sizes(prototype)


def _waiting_branches(body: Body, observing: set[int]) -> set[int]:
    """Backward branches of loops that an observed value controls: such a loop may wait for another thread."""
    loops = _loops(body.items)
    if not loops:
        return set()
    sources = set(body.observes)
    for position, callees in body.callees.items():
        if any(each.index in observing for each in callees):
            sources.add(position)
    if not sources:
        return set()
    tainted = _tainted(body.items, sources)
    found: set[int] = set()
    for start, end in loops:
        if not any(start <= position <= end for position in sources):
            continue
        for position in range(start, end + 1):
            item = body.items[position]
            if isinstance(item, Instruction) and not tainted.isdisjoint(_deciding(item)):
                found.add(end)
                break
    return found


def _deciding(item: Instruction) -> list[str]:
    """The registers that decide where a thread goes on."""
    if item.opcode not in ("bra", "brx", "ret", "exit"):
        return []
    indices = [name for operand in item.operands[:1] for name in names(operand) if item.opcode == "brx"]
    return indices if item.guard is None else [item.guard, *indices]


def _loops(items: list[Item]) -> list[tuple[int, int]]:
    """(position of the label, of several the first, position of the branch) of every backward branch."""
    targets = branch_targets(items)
    stack: list[dict[str, int]] = [{}]
    loops: list[tuple[int, int]] = []
    for position, item in enumerate(items):
        if isinstance(item, ScopeBegin):
            stack.append({})
        elif isinstance(item, ScopeEnd):
            stack.pop()
        elif isinstance(item, Label):
            stack[-1][item.name] = position
        elif position in targets:
            seen = ([scope[label] for scope in stack if label in scope] for label in targets[position])
            begins = [known[-1] for known in seen if known]
            if begins:
                loops.append((min(begins), position))
    return loops


def _local_pointers(items: list[Item]) -> set[str]:
    """The names of local variables, and of registers that are formed with their addresses."""
    found: set[str] = set()
    for item in items:
        if isinstance(item, Local) and item.space == "local":
            found.add(item.name)
        elif (
            isinstance(item, Instruction)
            and item.opcode in ("mov", "cvta", "add", "sub")
            and any(name in found for operand in item.operands[1:] for name in names(operand))
        ):
            found.update(names(item.operands[0]))
    return found


def _tainted(items: list[Item], sources: set[int]) -> set[str]:
    """Registers whose value depends on what the instructions at `sources` read, also by way of local memory,
    where code that is not optimised has its variables."""
    local = _local_pointers(items)
    edges: dict[str, set[str]] = {}
    tainted: set[str] = set()
    for position, item in enumerate(items):
        if isinstance(item, Registers) or not isinstance(item, Instruction) or not item.operands:
            continue
        written = names(item.operands[0])
        if position in sources:
            tainted.update(written)
        read = [name for operand in item.operands[1:] for name in names(operand)]
        if item.guard is not None:
            read.append(item.guard)
        if item.opcode == "st" and "param" not in item.modifiers:
            if "local" not in item.modifiers and local.isdisjoint(written):
                continue
            written = [_LOCAL]
        elif item.opcode == "ld" and ("local" in item.modifiers or not local.isdisjoint(read)):
            read.append(_LOCAL)
        for name in read:
            edges.setdefault(name, set()).update(written)
    pending = list(tainted)
    while pending:
        for name in edges.get(pending.pop(), ()):
            if name not in tainted:
                tainted.add(name)
                pending.append(name)
    return tainted
