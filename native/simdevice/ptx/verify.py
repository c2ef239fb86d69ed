"""PTX that is none, found in bodies when an image is loaded: what is not an instruction, names that nothing
declares, operands of other types or numbers than the ISA says.

Bodies are not parsed for it, since most never run. Their statements are compared by their *shapes*, the text
without the numbers of registers and the values of constants, of which a module has few; each is parsed and
checked once. Names are looked up as a set. Only where one of the two is not in order is a body parsed, which
decides, and says the line. What is valid and cannot be run here is told at a launch.
"""

from __future__ import annotations

import re

from . import isa
from .body import parse_body
from .declarations import Cursor, registers
from .errors import PtxError
from .lexer import tokenize
from .model import (
    Function,
    Instruction,
    Item,
    Label,
    Local,
    Prototype,
    Registers,
    Targets,
)
from .module import Module, Unit
from .targets import Target
from .types import PRED, Type
from .usage import names
from .well_formed import fault

# A name, or a text in quotes or a line for debuggers, whose words are none. What a modifier is made of and
# what follows a dot are not looked at. What begins a declaration is matched to its end, whatever it is.
_WORDS = re.compile(r'"[^"\n]*"|\.(?:loc|file)\b[^\n]*|(?<![\w.$%:])[A-Za-z_$%][\w$]*')
_REGISTERS = re.compile(r"(?<![\w.$%])\.reg\b\s*([^;]*;?)")
_VARIABLES = re.compile(r"(?<![\w.$%])\.(?:local|shared|param)\s([^;{}]*)")
_VARIABLE = re.compile(r"([A-Za-z_$%][\w$]*)(?:<(\d{1,9})>)?\s*(?:\[[^,]*)?(?:,|\Z)")
_LABELS = re.compile(r"^[ \t]*([A-Za-z_$%][\w$]*)[ \t]*:(?!:)", re.MULTILINE)
# Of a register's name, where its end shows that it is no modifier; what is left only makes more shapes.
_NUMBER = re.compile(r"(?<=[A-Za-z_$])\d+(?=[,;\]})+|:])|(?<=@%p)\d+|(?<=@!%p)\d+")
_FLOAT = re.compile(r"\b0[fFdD][0-9a-fA-F]{8,16}\b")
_INTEGER = re.compile(r"(?<=[ \t+\-,\[({])(?:0x[0-9a-fA-F]+|\d+)(?=[,;\]})])")
_LEADING = re.compile(r"(?:[\s{}]+|\.(?:loc|file)\b[^\n]*\n|[A-Za-z_$%][\w$]*\s*:(?!:|\s*\.))+")
_DIGITS = "0123456789"
_MOST_CONSTANT = 1 << 16  # bytes
# Words of bodies that name nothing.
_OTHER = isa.OPCODES | {"_", "WARP_SZ"}


def check_bodies(module: Module) -> None:
    """Raises PtxError for the first function whose body NVIDIA's assembler would refuse, and for what has no
    place in the constant space."""
    for unit in module.units:
        _check_constants(unit)
        target = None if unit.any_target else Target(unit.target)
        shapes = _Shapes(target)
        for function in unit.functions:
            if function.start >= 0 and not _in_order(unit, function, shapes):
                _Body(unit, function, module.body(function), target).check()


def _check_constants(unit: Unit) -> None:
    """All that a file declares counts, used or not, in its order."""
    end = line = 0
    for each in unit.variables:
        if each.space == "const" and each.linkage != "extern":
            end += -end % each.align + each.size
            line = line or (each.line if end > _MOST_CONSTANT else 0)
    if line:
        much = f"File uses too much global constant data ({end:#x} bytes, {_MOST_CONSTANT:#x} max)"
        raise PtxError("", line, "", much)


def _in_order(unit: Unit, function: Function, shapes: _Shapes) -> bool:
    """Whether a quick look by regular expressions finds nothing that the slower, full check must decide."""
    text = function.text[function.start : function.end]
    declared = _Declared(unit, function, text)
    words = set(_WORDS.findall(text))
    if not all(declared.knows(word) for word in words if word not in _OTHER and word[0] not in '".'):
        return False
    if (types := declared.types) is None:
        return False
    return shapes.of(types).hold(text)


class _Declared:
    """What a body declares in any of its scopes, found without parsing its statements."""

    def __init__(self, unit: Unit, function: Function, text: str) -> None:
        self._unit = unit
        self._ranges: dict[str, int] = {}
        self._names = {each.name for each in (*function.parameters, *function.returns)} | function.own
        # The types of registers by their names without numbers; None: one has several.
        self.types: dict[str, Type] | None = {}
        for each in (*function.parameters, *function.returns):
            if each.register:
                self._type(each.name, each.type)
        for found in set(_REGISTERS.findall(text)):
            self._registers(found)
        self._names.update(_LABELS.findall(text))
        for found in set(_VARIABLES.findall(text)):
            for name, count in _VARIABLE.findall(found):
                if count:
                    self._range(name, int(count))
                else:
                    self._names.add(name)

    def _registers(self, text: str) -> None:
        try:
            found = registers(Cursor(tokenize(text, 0, len(text), 0), 0))
        except PtxError:
            self.types = None  # parsing the body tells
            return
        for name, count in found.names:
            self._type(name, found.type)
            if count:
                self._range(name, count)
            else:
                self._names.add(name)

    def _range(self, name: str, count: int) -> None:
        self._ranges[name] = max(count, self._ranges.get(name, 0))

    def _type(self, name: str, kind: Type) -> None:
        if self.types is not None and self.types.setdefault(name.rstrip(_DIGITS), kind) is not kind:
            self.types = None

    def knows(self, word: str) -> bool:
        if word in self._names or word in self._unit.symbols:
            return True
        base = word.rstrip(_DIGITS)
        if base in self._ranges:  # the name alone is the declaration's
            return base == word or _number(word[len(base) :]) < self._ranges[base]
        return isa.is_special(word)


class _Shapes:
    """Statements that were found right, for functions whose registers of one name have one type."""

    def __init__(self, target: Target | None) -> None:
        self._target = target
        self._types: dict[str, Type] = {}
        self._right: set[str] = set()

    def of(self, types: dict[str, Type]) -> _Shapes:
        """These, or empty ones where a name has another type here."""
        known = self._types
        if any(known.get(name, kind) is not kind for name, kind in types.items()):
            other = _Shapes(self._target)
            other._types = types
            return other
        known.update(types)
        return self

    def hold(self, text: str) -> bool:
        text = _NUMBER.sub("", _INTEGER.sub("1", _FLOAT.sub("1.0", text)))
        statements = set(text.split(";"))
        return all(map(self._is_right, statements - self._right))

    def _is_right(self, statement: str) -> bool:
        leading = _LEADING.match(statement)
        begin = leading.end() if leading else 0
        if begin < len(statement):
            try:
                items = parse_body(statement + ";", begin, len(statement) + 1, 0)
            except PtxError:
                return False
            if any(isinstance(each, Instruction) and self._fault(each) for each in items):
                return False
        self._right.add(statement)
        return True

    def _fault(self, instruction: Instruction) -> str | None:
        return fault(instruction, self._type, self._is_predicate) or _lacks(self._target, instruction)

    def _type(self, name: str) -> Type | None:
        return self._types.get(name.rstrip(_DIGITS))

    def _is_predicate(self, name: str) -> bool:
        return self._type(name) is PRED


class _Body:
    """A body whose items are known."""

    def __init__(self, unit: Unit, function: Function, items: list[Item], target: Target | None) -> None:
        self._unit, self._function, self._items, self._target = unit, function, items, target
        self._ranges: dict[str, dict[Type, int]] = {}
        self._kinds: dict[str, set[Type | None]] = {}  # of a name, in all scopes; None: it is no register's
        for each in (*function.parameters, *function.returns):
            self._declare(each.name, each.type if each.register else None)
        for name in function.own:
            self._declare(name, None)
        for item in items:
            if isinstance(item, Registers):
                for name, count in item.names:
                    if count:
                        counts = self._ranges.setdefault(name, {})
                        counts[item.type] = max(count, counts.get(item.type, 0))
                    else:
                        self._declare(name, item.type)
            elif isinstance(item, (Label, Local, Targets, Prototype)):
                self._declare(item.name, None)

    def _declare(self, name: str, kind: Type | None) -> None:
        self._kinds.setdefault(name, set()).add(kind)

    def _find(self, name: str) -> set[Type | None]:
        """The types that a name has in the scopes in which it is declared; none: there is no such name."""
        if name in self._kinds:
            return self._kinds[name]
        base = name.rstrip(_DIGITS)
        found: set[Type | None] = set()
        for split in range(max(len(base), len(name) - 9), len(name)):  # `%a1<5>` makes %a12 as well
            counts = self._ranges.get(name[:split], {})
            found |= {kind for kind, count in counts.items() if int(name[split:]) < count}
        if found:
            return found
        plain = name.partition(".")[0]
        if plain != name:
            return {None} if self._find(plain) else set()
        return {None} if name in self._unit.symbols or isa.is_special(name) or name == "_" else set()

    def _type(self, name: str) -> Type | None:
        """The type that a name has wherever it is declared."""
        found = self._find(name)
        return next(iter(found)) if len(found) == 1 else None

    def _is_predicate(self, name: str) -> bool:
        """In a scope at least: texts of inline assembly have the same names for different things."""
        return PRED in self._find(name)

    def check(self) -> None:
        for item in self._items:
            if isinstance(item, Instruction):
                reason = fault(item, self._type, self._is_predicate)
                reason = reason or _lacks(self._target, item) or self._unknown(item)
                if reason is not None:
                    raise PtxError(self._function.name, item.line, item.text, reason)

    def _unknown(self, instruction: Instruction) -> str | None:
        mentioned = [name for operand in instruction.operands for name in names(operand)]
        if instruction.guard is not None:
            mentioned.append(instruction.guard)
        unknown = (name for name in mentioned if not self._find(name))
        return next((f"Unknown symbol '{name}'" for name in unknown), None)


def _lacks(target: Target | None, instruction: Instruction) -> str | None:
    return target.lacks(instruction) if target is not None else None


def _number(digits: str) -> int:
    return int(digits) if len(digits) < 10 else 1 << 32
