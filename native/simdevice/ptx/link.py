"""Links modules: extern and weak names are resolved across them, private names stay apart."""

from __future__ import annotations

from .errors import PtxError
from .model import Function
from .module import Module, Symbol, Unit, Variable


def link(modules: list[Module]) -> Module:
    """One module that holds all of them. The given modules must not be used any more."""
    units = [unit for module in modules for unit in module.units]
    if not units:
        raise PtxError("", 0, "", "nothing to link")
    chosen: dict[str, Symbol] = {}
    for unit in units:
        for name, symbol in unit.symbols.items():
            if symbol.linkage and not _is_dynamic_shared(symbol):
                known = chosen.get(name)
                chosen[name] = symbol if known is None else _choose(known, symbol)
    for unit in units:
        _resolve(unit, chosen)
    return Module(units)


def _is_dynamic_shared(symbol: Symbol) -> bool:
    return isinstance(symbol, Variable) and symbol.space == "shared"


def _defined(symbol: Symbol) -> bool:
    return symbol.start >= 0 if isinstance(symbol, Function) else symbol.linkage != "extern"


def _choose(known: Symbol, symbol: Symbol) -> Symbol:
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
    raise PtxError("", symbol.line, symbol.name, "defined in two of the linked modules")


def _resolve(unit: Unit, chosen: dict[str, Symbol]) -> None:
    for name, symbol in list(unit.symbols.items()):
        if symbol.linkage and name in chosen:
            unit.symbols[name] = chosen[name]
    unit.functions = [each for each in unit.functions if unit.symbols.get(each.name) is each]
    unit.variables = [each for each in unit.variables if unit.symbols.get(each.name) is each]
