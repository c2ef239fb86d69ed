"""The bytes of an initialised variable."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from .errors import PtxError
from .lexer import IDENTIFIER, float_bits, integer_literal, tokenize
from .model import Relocation, Variable
from .operands import Operands

MOST_INITIAL = 64 << 20  # bytes of a module, as much as its variables may have of initial values
_OCTAL = re.compile(r"\b0\d")


@dataclass(frozen=True)
class Initial:
    data: bytes
    relocations: tuple[Relocation, ...]


def initial_bytes(variable: Variable, address: Callable[[str], tuple[int | None, int]]) -> Initial:
    """`address` gives (variable index or None, constant) of a name."""
    assert variable.initial is not None
    start, end = variable.initial
    plain = _plain(variable, variable.text[start:end])
    found = Initial(plain, ()) if plain is not None else _Reader(variable, address).read(start, end)
    if len(found.data) > variable.size and None not in variable.extents:
        raise PtxError("", variable.line, variable.name, "more initial values than there is room for")
    return found


def _plain(variable: Variable, text: str) -> bytes | None:
    """Large tables are one-dimensional lists of small decimal numbers: no need to tokenise them."""
    inner = text.strip()
    if variable.is_float or not inner.startswith("{") or inner.count("{") != 1 or not inner.endswith("}"):
        return None
    if _OCTAL.search(inner):
        return None
    size = variable.element
    mask = (1 << 8 * size) - 1
    try:
        numbers = [int(each) for each in inner[1:-1].split(",")]
        if size == 1:
            return bytes(number & 255 for number in numbers)
        return b"".join((number & mask).to_bytes(size, "little") for number in numbers)
    except ValueError:
        return None


def _is_name(token: str) -> bool:
    return IDENTIFIER.match(token) is not None and token != "WARP_SZ"


def _sizes(variable: Variable) -> list[int | None]:
    """Bytes of a part of the array, by the braces around it, as far as they matter; None: nobody knows."""
    sizes: list[int | None] = [variable.element]
    for extent in (variable.vector, *reversed(variable.extents)):
        inner = sizes[-1]
        known = inner is not None and extent is not None
        sizes.append(min((inner or 0) * (extent or 0), MOST_INITIAL + 1) if known else None)
    return sizes[:0:-1]


class _Reader:
    def __init__(self, variable: Variable, address: Callable[[str], tuple[int | None, int]]) -> None:
        self.variable = variable
        self.address = address
        self.data = bytearray()
        self.relocations: list[Relocation] = []
        self.sizes = _sizes(variable)

    def read(self, start: int, end: int) -> Initial:
        tokens = [
            each for each in tokenize(self.variable.text, start, end, self.variable.line) if each != "\n"
        ]
        begun: list[int] = []  # where the part in each open brace begins
        element: list[str] = []
        nesting = 0
        for token in tokens:
            if token == "{":
                begun.append(len(self.data))
            elif token == "}":
                self._flush(element)
                if not begun:
                    break
                self._fill(begun.pop(), len(begun))
            elif token == "," and nesting == 0:
                self._flush(element)
            else:
                nesting += (token == "(") - (token == ")")
                element.append(token)
        else:
            self._flush(element)
            if not begun:
                return Initial(bytes(self.data), tuple(self.relocations))
        raise self._fail("the braces of an initialiser do not match", "")

    def _fill(self, begin: int, depth: int) -> None:
        """What braces leave out is zero: those inside others are a part of the array as large as the rest."""
        size = self.sizes[depth] if depth < len(self.sizes) else self.variable.element
        if depth and size is not None:
            end = begin + size
            if not len(self.data) <= end <= MOST_INITIAL:
                raise self._fail("more initial values than there is room for", "")
            self.data += bytes(end - len(self.data))

    def _fail(self, reason: str, text: str) -> PtxError:
        return PtxError("", self.variable.line, text, f"{self.variable.name}: {reason}")

    def _flush(self, element: list[str]) -> None:
        if element:
            self._element(element)
            element.clear()

    def _element(self, tokens: list[str]) -> None:
        size = self.variable.element
        text = " ".join(tokens)
        if any(_is_name(token) for token in tokens):
            self._symbol(tokens, text)
            return
        operands = Operands(tokens, self.variable.line)
        value = operands.immediate().value
        if operands.peek():
            raise self._fail("not an initialiser", text)
        if isinstance(value, int):
            self._number(float_bits(float(value), size * 8) if self.variable.is_float else value)
            return
        if not self.variable.is_float and not isinstance(value, tuple):
            raise self._fail("a float in an integer's initialiser", text)
        if size < 2:
            raise self._fail("a float of eight bits", text)
        self._number(float_bits(value, size * 8))

    def _number(self, value: int) -> None:
        size = self.variable.element
        self.data += (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")

    def _symbol(self, tokens: list[str], text: str) -> None:
        """`name`, `generic(name)`, `name + 4`, or one byte of these: `0xFF00(generic(name))`."""
        shift = 0
        masked = False
        mask = integer_literal(tokens[0])
        if mask is not None and tokens[1:2] == ["("] and tokens[-1] == ")":
            shift = max((mask & -mask).bit_length() - 1, 0)
            if mask != 0xFF << shift or shift % 8:
                raise self._fail("not a mask of one byte", text)
            masked = True
            tokens = tokens[2:-1]
        addend = 0
        if "+" in tokens or "-" in tokens:
            at = next(i for i, token in enumerate(tokens) if token in "+-")
            if tokens[0] == "generic" and ")" in tokens[at:]:
                close = len(tokens) - 1 - tokens[::-1].index(")")
                addend = Operands(tokens[at + (tokens[at] == "+") : close], self.variable.line).integer(0)
                tokens = tokens[:at] + tokens[close:]
            else:
                addend = Operands(tokens[at + (tokens[at] == "+") :], self.variable.line).integer(0)
                tokens = tokens[:at]
        if len(tokens) == 4 and tokens[0] == "generic" and tokens[1] == "(":
            tokens = tokens[2:3]
        if len(tokens) == 2 and tokens[-1] == ")":
            tokens = tokens[:1]
        if len(tokens) != 1:
            raise self._fail("not an initialiser", text)
        index, constant = self.address(tokens[0])
        if index is None:
            self._number((constant + addend) >> shift & 255 if masked else constant + addend)
            return
        if not masked and self.variable.element < 4:
            raise self._fail("an address needs 32 bits, or 64", text)
        first, size = (shift // 8, 1) if masked else (0, self.variable.element)
        self._relocate(Relocation(len(self.data), index, addend, first, size))
        self._number(0)

    def _relocate(self, new: Relocation) -> None:
        """Bytes of one address that follow each other are one."""
        if self.relocations:
            last = self.relocations[-1]
            begins = last.offset + last.size, last.variable, last.addend, last.first + last.size
            if begins == new[:4]:
                self.relocations[-1] = last._replace(size=last.size + new.size)
                return
        self.relocations.append(new)
