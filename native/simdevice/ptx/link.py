"""Links modules: extern and weak names are resolved across them, private names stay apart."""

from __future__ import annotations

import re
from collections.abc import Iterator, Set

from .errors import DefinedTwice, NotDefined, OtherPrototype, PtxError
from .lexer import IDENTIFIER
from .model import RUNTIME, Function, Parameter, Symbol, Variable
from .module import Module, Unit

# Functions of NVIDIA's device runtime library, by which kernels launch kernels: those of CUDA 12 and later
# are there where that library is linked in.
_LAUNCHES = re.compile(r"(?:__)?cuda(?:CDP2)?(?:LaunchDevice|GetParameterBuffer)\w*\Z")


def link(modules: list[Module]) -> Module:
    """One module that holds all of them. The given modules must not be used any more."""
    units = [unit for module in modules for unit in module.units]
    if not units:
        raise PtxError("", 0, "", "nothing to link")
    chosen = _choose_all(units)
    for unit in units:
        _resolve(unit, chosen)
    return Module(units)


def check(modules: list[Module]) -> None:
    """Raises DefinedTwice or OtherPrototype if they do not go together. The modules stay as they are."""
    _choose_all([unit for module in modules for unit in module.units])


def check_complete(module: Module) -> None:
    """Raises NotDefined for the first name in use that neither the module nor the runtime defines."""
    for unit in module.units:
        for name in _missing(unit):
            raise NotDefined(name, unit.name, _hint(name))


def check_calls(module: Module) -> None:
    """Raises PtxError for the first function in use that is defined nowhere. Variables may be missing: what a
    text that is loaded by itself declares, it has."""
    for unit in module.units:
        undefined = {
            name
            for name, symbol in unit.symbols.items()
            if isinstance(symbol, Function) and name not in RUNTIME and not _defined(symbol)
        }
        for name in _used(unit, undefined):
            raise PtxError(
                "", unit.symbols[name].line, "", f"Unresolved extern function '{name}'{_hint(name)}"
            )


def _hint(name: str) -> str:
    return (
        " (kernels that launch kernels need libcudadevrt of CUDA 12 or newer)"
        if _LAUNCHES.match(name)
        else ""
    )


def missing(modules: list[Module]) -> set[str]:
    """Names in use that none of them defines."""
    defined = {name for module in modules for name in definitions(module)}
    return {name for module in modules for unit in module.units for name in _missing(unit)} - defined


def definitions(module: Module) -> set[str]:
    """The names that a module defines for others."""
    return {
        name
        for unit in module.units
        for name, symbol in unit.symbols.items()
        if symbol.linkage and _defined(symbol) and not _is_dynamic_shared(symbol)
    }


def runtime_functions(module: Module) -> list[str]:
    """The names of the runtime's functions that the module uses."""
    used = {name for unit in module.units for name in _used(unit, RUNTIME & unit.symbols.keys())}
    return sorted(used)


def _missing(unit: Unit) -> Iterator[str]:
    undefined = {
        name
        for name, symbol in unit.symbols.items()
        if name not in RUNTIME and not _is_dynamic_shared(symbol) and not _defined(symbol)
    }
    yield from _used(unit, undefined)


def _used(unit: Unit, names: Set[str]) -> Iterator[str]:
    """Those of the names that a body or an initialiser of the unit mentions, in order."""
    places = [(each.text, each.start, each.end) for each in unit.functions if each.start >= 0]
    places += [(each.text, *each.initial) for each in unit.variables if each.initial is not None]
    left = set(names)
    for text, start, end in places if left else ():
        for word in IDENTIFIER.findall(text, start, end):
            if word in left:
                left.remove(word)
                yield word


def _is_dynamic_shared(symbol: Symbol) -> bool:
    return isinstance(symbol, Variable) and symbol.space == "shared"


def _defined(symbol: Symbol) -> bool:
    return symbol.start >= 0 if isinstance(symbol, Function) else symbol.linkage != "extern"


def _choose_all(units: list[Unit]) -> dict[str, Symbol]:
    """The definition of each name that units share."""
    chosen: dict[str, tuple[Symbol, Unit]] = {}
    for unit in units:
        for name, symbol in unit.symbols.items():
            if not symbol.linkage or _is_dynamic_shared(symbol):
                continue
            known, first = chosen.setdefault(name, (symbol, unit))
            if (
                isinstance(known, Function)
                and isinstance(symbol, Function)
                and not _go_together(known, symbol)
            ):
                raise OtherPrototype(name, first.name, unit.name)
            best = _choose(known, symbol)
            if best is None:
                raise DefinedTwice(name, first.name, unit.name)
            if best is not known:
                chosen[name] = best, unit
    return {name: symbol for name, (symbol, _) in chosen.items()}


def _go_together(known: Function, symbol: Function) -> bool:
    """Whether two functions of one name take and return the same, as NVIDIA's linker compares them: what is
    whole numbers, floats or bytes, and how large. Where it is defined a function may return nothing that is
    declared to: Numba declares C's functions so, and links them in a way that compares nothing."""
    if known.is_kernel or symbol.is_kernel:
        return known.is_kernel == symbol.is_kernel
    if _prototype(known.parameters) != _prototype(symbol.parameters):
        return False
    returns = _prototype(known.returns), _prototype(symbol.returns)
    return returns[0] == returns[1] or any(
        not given and _defined(by) for given, by in zip(returns, (known, symbol), strict=True)
    )


def _prototype(parameters: list[Parameter]) -> list[tuple[bool, int, int]]:
    return [(each.type.is_float, each.type.bytes, each.size) for each in parameters]


def _choose(known: Symbol, symbol: Symbol) -> Symbol | None:
    """Which of two counts; None: neither gives way."""
    if not _defined(symbol) or known is symbol:
        return known
    if not _defined(known):
        return symbol
    if symbol.linkage == "weak":
        return known
    if known.linkage == "weak":
        return symbol
    if (
        isinstance(known, Variable)
        and isinstance(symbol, Variable)
        and "common" in (known.linkage, symbol.linkage)
    ):
        if known.linkage != symbol.linkage:
            return symbol if known.linkage == "common" else known
        return known if known.size >= symbol.size else symbol
    return None


def _resolve(unit: Unit, chosen: dict[str, Symbol]) -> None:
    for name, symbol in list(unit.symbols.items()):
        if symbol.linkage and name in chosen:
            unit.symbols[name] = chosen[name]
    unit.functions = [each for each in unit.functions if unit.symbols.get(each.name) is each]
    unit.variables = [each for each in unit.variables if unit.symbols.get(each.name) is each]
