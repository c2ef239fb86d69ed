"""Operands of one statement, from its tokens."""

from __future__ import annotations

from . import constants
from .constants import Constant
from .errors import PtxError
from .lexer import float_literal, integer_literal
from .model import Address, Bracket, Group, Immediate, Negative, Not, Operand, Pair, Register, Vector

_PRECEDENCE = {
    "||": 1,
    "&&": 2,
    "|": 3,
    "^": 4,
    "&": 5,
    "==": 6,
    "!=": 6,
    "<": 7,
    ">": 7,
    "<=": 7,
    ">=": 7,
    "<<": 8,
    ">>": 8,
    "+": 9,
    "-": 9,
    "*": 10,
    "/": 10,
    "%": 10,
}
_DEPTH = 64


def _is_name(token: str) -> bool:
    return (token[:1].isalpha() or token[:1] in ("%", "_", "$")) and token != "WARP_SZ"


class Operands:
    """A cursor over the tokens between an opcode and its semicolon."""

    def __init__(self, tokens: list[str], line: int, calls: bool = False) -> None:
        self.tokens = tokens
        self.line = line
        self.calls = calls
        self.at = 0
        self.depth = 0

    def fail(self, reason: str) -> PtxError:
        return PtxError("", self.line, " ".join(self.tokens)[:120], reason)

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def next(self) -> str:
        if self.at >= len(self.tokens):
            raise self.fail("the statement ends too early")
        token = self.tokens[self.at]
        self.at += 1
        return token

    def expect(self, token: str) -> None:
        found = self.next()
        if found != token:
            raise self.fail(f"expected {token!r}, found {found!r}")

    def all(self) -> list[Operand]:
        """Every operand; the tokens must be used up."""
        operands: list[Operand] = []
        if not self.tokens:
            return operands
        while True:
            operands.append(self.operand())
            if self.at == len(self.tokens):
                return operands
            self.expect(",")

    def _list(self, closing: str) -> list[Operand]:
        items: list[Operand] = []
        if self.peek() == closing:
            self.next()
            return items
        while True:
            items.append(self.operand())
            token = self.next()
            if token == closing:
                return items
            if token != ",":
                raise self.fail(f"expected ',' or {closing!r}, found {token!r}")

    def operand(self) -> Operand:
        self.depth += 1
        if self.depth > _DEPTH:
            raise self.fail("operands nest too deeply")
        result = self._operand()
        self.depth -= 1
        return result

    def _operand(self) -> Operand:
        token = self.peek()
        if _is_name(token):
            self.at += 1
            following = self.peek()
            if following == "|":
                self.at += 1
                return Pair(Register(token), self.operand())
            if following == "[":
                self.at += 1
                index = self.integer(0)
                self.expect("]")
                return Address(token, 0, index)
            if following in ("+", "-") and self.at + 1 < len(self.tokens):
                return Address(token, self.offset())
            return Register(token)
        if token == "{":
            self.at += 1
            found_vector = Vector(self._list("}"))
            if self.peek() == "|":
                self.at += 1
                return Pair(found_vector, self.operand())
            return found_vector
        if token == "[":
            self.at += 1
            found = self._bracket()
            if self.peek() == ".unified":  # the address is of the same memory for every device
                self.at += 1
            return found
        if token == "!":
            self.at += 1
            name = self.next()
            if not (name[0].isalpha() or name[0] in "%_$"):
                self.at -= 2
                return self.immediate()
            return Not(name)
        if token == "-" and self.at + 1 < len(self.tokens) and _is_name(self.tokens[self.at + 1]):
            self.at += 2
            return Negative(self.tokens[self.at - 1])
        if token == "(" and self.calls:
            self.at += 1
            return Group(self._list(")"))
        return self.immediate()

    def _bracket(self) -> Operand:
        items = self._list("]")
        if len(items) == 1:
            item = items[0]
            if isinstance(item, Register):
                return Address(item.name, 0)
            if isinstance(item, Address):
                return item
            if isinstance(item, Immediate) and isinstance(item.value, int):
                return Address(None, item.value)
        if not items:
            raise self.fail("an empty address")
        return Bracket(items)

    def offset(self) -> int:
        """`+ constant` or `- constant` behind a name."""
        if self.peek() == "+":
            self.at += 1
        return self.integer(_PRECEDENCE["+"])

    def immediate(self) -> Immediate:
        negative = self.peek() == "-"
        at = self.at + negative
        exact = float_literal(self.tokens[at]) if at < len(self.tokens) else None
        if isinstance(exact, tuple):  # its bits are meant, and stand alone
            self.at = at + 1
            return Immediate((exact[0] ^ (1 << (exact[1] - 1)), exact[1]) if negative else exact)
        return Immediate(self._constant(0).value)

    def integer(self, minimum: int) -> int:
        """A constant expression of whole numbers whose operators bind at least as tightly as `minimum`."""
        value = self._constant(minimum).value
        if isinstance(value, float):
            raise self.fail("a float where an integer is expected")
        return value

    def _constant(self, minimum: int) -> Constant:
        self.depth += 1
        if self.depth > _DEPTH:
            raise self.fail("a constant expression nests too deeply")
        try:
            left = self._unary()
            while True:
                operator = self.peek()
                precedence = _PRECEDENCE.get(operator, -1)
                if precedence < minimum or precedence < 0:
                    break
                self.at += 1
                left = constants.binary(operator, left, self._constant(precedence + 1))
            if minimum == 0 and self.peek() == "?":
                self.at += 1
                yes = self._constant(0)
                self.expect(":")
                left = constants.chosen(left, yes, self._constant(0))
        except constants.Meaningless as error:
            raise self.fail(str(error)) from None
        self.depth -= 1
        return left

    def _unary(self) -> Constant:
        token = self.next()
        if token in ("-", "+", "~", "!"):
            self.depth += 1
            if self.depth > _DEPTH:
                raise self.fail("a constant expression nests too deeply")
            value = self._unary()
            self.depth -= 1
            return constants.unary(token, value)
        if token == "(":
            if self.peek() in (".s64", ".u64"):
                to = self.next()
                self.expect(")")
                return constants.cast(to, self._unary())
            value = self._constant(0)
            self.expect(")")
            return value
        number = integer_literal(token)
        if number is not None:
            return constants.literal(number, token.endswith("U"))
        decimal = float_literal(token)
        if isinstance(decimal, float):
            return Constant(decimal)
        raise self.fail(f"expected an operand, found {token!r}")
