"""A module: functions and variables of one or more PTX texts, and what is derived from them lazily."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b

from .body import parse_body
from .declarations import Cursor, locals_
from .errors import PtxError
from .initial import MOST_INITIAL, Initial, initial_bytes
from .lexer import IDENTIFIER, tokenize
from .model import Function, Item, KernelInfo, Local, Symbol, Variable, VariableInfo
from .types import REFERENCES
from .vectors import elements_apart

# A function's address is a number that holds for the whole module, since each kernel is an object of its own
# and function pointers outlive a kernel (vtables of objects that another one made), in a migration even the
# process. A call switches over it. Between these bits and the index is a hash of the PTX, so that a
# pointer into another module is a fault.
FUNCTION_HANDLE = 0x7E00_0000_0000_0000
_HASH_SHIFT = 24

SHARED_ALIGNMENT = 16

# As much as there may be, of a kernel and in a module; ptxas refuses more, too. Devices have more shared
# memory, for what is dynamic.
MOST_SHARED = 48 << 10
_MOST_EXTENT = 1 << 16  # of a cluster: more than there can be
MOST_LOCAL = 512 << 10
PAGE = 4096
MOST_PARAMETERS = 32764

# What begins like one of these is matched to its end, whatever it is: a text that is none is not read twice.
_DECLARATION = re.compile(r"(?<!\w)\.(shared|local|reg)\s[^;{}]*;?")
_INDIRECT = re.compile(r"\.callprototype|\.calltargets")
# A function's name stands for its address in whatever takes 64 bits: mov, st, selp.
_WIDE = re.compile(r"\.[bsu]64\s([^;]*)")
_TARGETS = re.compile(r"\.calltargets([^;]*);?")
_CALL = re.compile(r"\bcall(?:\s*\.uni)?\s([^;]*);?")


@dataclass
class Unit:
    """One PTX text and its names."""

    symbols: dict[str, Symbol] = field(default_factory=dict)
    functions: list[Function] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    isa: int = 0
    target: str = ""
    any_target: bool = False  # it may have instructions that its target does not have (targets.py)
    name: str = ""  # of the text, for messages

    def find(self, function: Function, name: str) -> Symbol | None:
        """What a name means in a function."""
        return self.symbols.get(own_name(function.name, name) if name in function.own else name)


def own_name(function: str, name: str) -> str:
    """The name in the module of a function's own variable: no PTX text can spell it."""
    return f"{function}.{name}"


@dataclass
class SharedLayout:
    """Offsets of a kernel's static shared variables, by (function index or -1, name, number): of one name a
    function may have several, in scopes of their own."""

    offsets: dict[tuple[int, str, int], int] = field(default_factory=dict)
    size: int = 0

    def place(self, variables: dict[tuple[int, str, int], Variable | Local]) -> None:
        """In the order of ptxas: programs use arrays as if they were aligned as what comes before them."""
        for key, variable in sorted(variables.items(), key=lambda item: (-item[1].align, item[1].size)):
            offset = -(-self.size // variable.align) * variable.align
            self.offsets[key] = offset
            self.size = offset + variable.size

    @property
    def dynamic(self) -> int:
        """The offset at which dynamic shared memory starts."""
        return -(-self.size // SHARED_ALIGNMENT) * SHARED_ALIGNMENT


class Module:
    """Functions and variables with their module-wide indices."""

    def __init__(self, units: list[Unit]) -> None:
        self.units = units
        self.isa = max(unit.isa for unit in units)
        self.target_name = max((unit.target for unit in units), key=_target_number)
        self.target = _target_number(self.target_name)
        self.functions: list[Function] = []
        self.globals: list[Variable] = []
        self._unit_of: dict[int, Unit] = {}
        self._home_of: dict[int, Unit] = {}  # of variables
        for unit in units:
            for function in unit.functions:
                function.index = len(self.functions)
                self.functions.append(function)
                self._unit_of[function.index] = unit
            for variable in unit.variables:
                if variable.space in ("global", "const"):
                    variable.index = len(self.globals)
                    self.globals.append(variable)
                    self._home_of[variable.index] = unit
        self._references: dict[int, list[Symbol]] = {}
        self._declarations: dict[int, tuple[list[Local], int]] = {}

    def unit_of(self, function: Function) -> Unit:
        return self._unit_of[function.index]

    def body(self, function: Function) -> list[Item]:
        try:
            items = parse_body(function.text, function.start, function.end, function.body_line)
        except PtxError as error:
            raise PtxError(function.name, error.line, error.args[0], error.reason) from None
        return elements_apart(items)

    @cached_property
    def _first_handle(self) -> int:
        digest = blake2b(digest_size=4)
        for unit in self.units:
            if unit.functions:  # each has the whole text
                digest.update(unit.functions[0].text.encode("utf-8", "surrogateescape"))
        return FUNCTION_HANDLE | int.from_bytes(digest.digest(), "little") << _HASH_SHIFT

    def handle(self, function: Function) -> int:
        return self._first_handle + function.index * 16

    @cached_property
    def variables(self) -> tuple[VariableInfo, ...]:
        found = [(unit, each) for unit in self.units for each in unit.variables if each.index >= 0]
        total = 0
        for _, variable in found:
            total += variable.size if variable.initial is not None else 0
            if total > MOST_INITIAL:
                reason = f"variables with initial values have more than {MOST_INITIAL >> 20} MiB"
                raise PtxError("", variable.line, variable.name, reason)
        return tuple(self._variable_info(unit, each) for unit, each in found)

    def _variable_info(self, unit: Unit, variable: Variable) -> VariableInfo:
        initial = Initial(b"", ())
        if variable.initial is not None:
            initial = initial_bytes(variable, lambda name: self._address(unit, variable, name))
        return VariableInfo(
            variable.name,
            max(variable.size, len(initial.data)),
            variable.align,
            initial.data.ljust(variable.size, b"\0") if variable.initial is not None else None,
            initial.relocations,
            variable.space == "const",
            variable.managed,
            variable.linkage,
            variable.reference if variable.reference in REFERENCES else "",
        )

    def _address(self, unit: Unit, variable: Variable, name: str) -> tuple[int | None, int]:
        """(variable index or None, constant) of a symbol in an initialiser."""
        owner = variable.name.rpartition(".")[0]
        symbol = unit.symbols.get(own_name(owner, name)) or unit.symbols.get(name)
        if isinstance(symbol, Function):
            return None, self.handle(symbol)
        if symbol is None or symbol.index < 0:
            raise PtxError(
                "",
                variable.line,
                name,
                f"the initialiser of {variable.name} names nothing that has an address",
            )
        return symbol.index, 0

    @cached_property
    def kernels(self) -> tuple[KernelInfo, ...]:
        return tuple(self._kernel_info(each) for each in self.functions if each.is_kernel and each.start >= 0)

    def kernel(self, name: str) -> Function:
        for function in self.functions:
            if function.name == name and function.is_kernel and function.start >= 0:
                return function
        raise PtxError(name, 0, "", "the module has no such kernel")

    def references(self, function: Function) -> list[Symbol]:
        """The module's symbols that a body mentions; scanned, not parsed, as most bodies never run."""
        found = self._references.get(function.index)
        if found is None:
            found = []
            unit = self._unit_of[function.index]
            if function.start >= 0:
                words = dict.fromkeys(IDENTIFIER.findall(function.text, function.start, function.end))
                named = (unit.find(function, word) for word in words)
                found = [symbol for symbol in named if symbol is not None]
                if _INDIRECT.search(function.text, function.start, function.end):
                    found += self.address_taken
                for operands in _CALL.findall(function.text, function.start, function.end):
                    table = unit.find(function, operands.rpartition(",")[2].strip())
                    if isinstance(table, Variable):
                        found += self.call_table(table)
            self._references[function.index] = found
        return found

    def call_table(self, variable: Variable) -> list[Function]:
        """The functions that a variable's initialiser names."""
        if variable.initial is None or variable.index < 0:
            return []
        owner = self._home_of[variable.index]
        names = dict.fromkeys(IDENTIFIER.findall(variable.text, *variable.initial))
        named = (owner.symbols.get(each) for each in names)
        return [each for each in named if isinstance(each, Function)]

    @cached_property
    def address_taken(self) -> list[Function]:
        """Functions that an indirect call may reach."""
        taken: dict[int, Function] = {}
        for unit in self.units:
            names: set[str] = set()
            for function in unit.functions:
                if function.start >= 0:
                    for pattern in (_WIDE, _TARGETS):
                        for operands in pattern.findall(function.text, function.start, function.end):
                            names.update(IDENTIFIER.findall(operands))
            for variable in unit.variables:
                if (variable.initial is not None and variable.element == 8) or variable.element == 1:
                    start, end = variable.initial or (0, 0)
                    names.update(IDENTIFIER.findall(variable.text, start, end))
            for name in names:
                symbol = unit.symbols.get(name)
                if isinstance(symbol, Function) and not symbol.is_kernel and symbol.start >= 0:
                    taken[symbol.index] = symbol
        return [taken[index] for index in sorted(taken)]

    def reachable(self, kernel: Function) -> list[Function]:
        """The kernel and every function it may call, in a stable order."""
        order = [kernel]
        seen = {kernel.index}
        for function in order:
            for symbol in self.references(function):
                if isinstance(symbol, Function) and symbol.index not in seen and not symbol.is_kernel:
                    seen.add(symbol.index)
                    order.append(symbol)
        return order

    def declarations(self, function: Function) -> tuple[list[Local], int]:
        """(shared and local variables, number of 32-bit registers) declared in a body, by a scan."""
        found = self._declarations.get(function.index)
        if found is None:
            found = self._declarations[function.index] = self._scan_declarations(function)
        return found

    def _scan_declarations(self, function: Function) -> tuple[list[Local], int]:
        variables: list[Local] = []
        registers = 0
        if function.start < 0:
            return variables, registers
        line, counted = function.body_line, function.start
        for match in _DECLARATION.finditer(function.text, function.start, function.end):
            space = match[1]
            if match[0][-1] != ";":
                continue
            if space == "reg":
                wide = 2 if "64" in match[0] else 1
                registers += wide * sum(int(count) for count in re.findall(r"<(\d{1,6})>", match[0]))
                continue
            line += function.text.count("\n", counted, match.start())
            counted = match.start()
            cursor = Cursor(tokenize(function.text, match.start(), match.end(), line), line)
            cursor.next()
            variables += locals_(cursor, space)
        return variables, registers

    def shared_layout(self, kernel: Function) -> SharedLayout:
        layout = SharedLayout()
        variables: dict[tuple[int, str, int], Variable | Local] = {}
        dynamic = 1
        for function in self.reachable(kernel):
            for symbol in self.references(function):
                if not isinstance(symbol, Variable) or symbol.space != "shared":
                    continue
                if symbol.is_dynamic:
                    dynamic = max(dynamic, symbol.align, SHARED_ALIGNMENT)
                else:
                    variables[-1, f"{id(self.unit_of(function))}:{symbol.name}", 0] = symbol
            names: Counter[str] = Counter()
            for variable in self.declarations(function)[0]:
                if variable.space == "shared":
                    variables[function.index, variable.name, names[variable.name]] = variable
                    names[variable.name] += 1
        layout.place(variables)
        # As ptxas counts it: what is dynamic begins behind it.
        layout.size = -(-layout.size // dynamic) * dynamic
        return layout

    def shared_offset(self, layout: SharedLayout, function: Function, variable: Variable) -> int:
        if variable.is_dynamic:
            return layout.dynamic
        return layout.offsets[-1, f"{id(self.unit_of(function))}:{variable.name}", 0]

    def _kernel_info(self, kernel: Function) -> KernelInfo:
        reachable = self.reachable(kernel)
        own = [v for f in reachable for v in self.declarations(f)[0] if v.space == "local"]
        local = sum(v.size for v in own)
        constants = {
            symbol.index: symbol.size
            for function in reachable
            for symbol in self.references(function)
            if isinstance(symbol, Variable) and symbol.space == "const"
        }
        offsets = parameter_offsets(kernel)
        shared = self.shared_layout(kernel).size
        parameters = offsets[-1] + kernel.parameters[-1].size if offsets else 0
        _bound(kernel, "static shared memory", shared, MOST_SHARED)
        _bound(kernel, "local memory", local, MOST_LOCAL)
        # What is aligned above a page may leave as much free in front of it.
        local += sum(v.align for v in own if v.align > PAGE)
        _bound(kernel, "parameters", parameters, MOST_PARAMETERS)
        declared = max(self.declarations(each)[1] for each in reachable)
        required = kernel.directives.get("reqntid")
        version = self.target
        return KernelInfo(
            kernel.name,
            tuple((offset, p.size, p.align) for offset, p in zip(offsets, kernel.parameters, strict=True)),
            parameters,
            shared,
            local,
            sum(constants.values()),
            # What ptxas would take is not knowable here; 64 still lets a block of 1024 threads run.
            min(64, max(16, declared // 6 + 8)),
            _product(kernel.directives.get("maxntid")) or _product(required),
            _extents(required),
            version,
            version,
            _extents(kernel.directives.get("reqnctapercluster")),
            _extents(kernel.directives.get("maxclusterrank"))[0],
            "explicitcluster" in kernel.directives,
            self.handle(kernel),
        )


def _bound(kernel: Function, what: str, size: int, most: int) -> None:
    if size > most:
        raise PtxError(kernel.name, kernel.line, "", f"{size} bytes of {what}, of which there are {most}")


def parameter_offsets(kernel: Function) -> list[int]:
    """Return the offset of each kernel parameter in the packed parameter block."""
    offsets: list[int] = []
    end = 0
    for parameter in kernel.parameters:
        offset = -(-end // parameter.align) * parameter.align
        offsets.append(offset)
        end = offset + parameter.size
    return offsets


def _product(extents: list[int] | None) -> int:
    result = 1 if extents else 0
    for extent in extents or ():
        result *= extent
    return result


def _extents(given: list[int] | None) -> tuple[int, int, int]:
    x, y, z = (min(max(each, 0), _MOST_EXTENT) for each in ([*given, 1, 1] if given else [0] * 3)[:3])
    return x, y, z


def _target_number(target: str) -> int:
    digits = re.match(r"(?:sm|compute)_(\d{1,6})", target)
    return int(digits[1]) if digits else 0
