"""Operands of one statement, from its tokens."""

from __future__ import annotations

from .errors import PtxError
from .lexer import float_literal, integer_literal
from .model import Address, Bracket, Group, Immediate, Not, Operand, Pair, Register, Vector

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
        first = token[:1]
        if first.isalpha() or first in ("%", "_", "$"):
            if token == "WARP_SZ":
                return self.immediate()
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
            return Vector(self._list("}"))
        if token == "[":
            self.at += 1
            return self._bracket()
        if token == "!":
            self.at += 1
            name = self.next()
            if not (name[0].isalpha() or name[0] in "%_$"):
                self.at -= 2
                return self.immediate()
            return Not(name)
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
        sign = 1 if self.next() == "+" else -1
        return sign * self.integer(10)

    def immediate(self) -> Immediate:
        negative = self.peek() == "-"
        at = self.at + negative
        token = self.tokens[at] if at < len(self.tokens) else ""
        exact = float_literal(token) if token else None
        if exact is not None:
            self.at = at + 1
            if not negative:
                return Immediate(exact)
            if isinstance(exact, tuple):
                return Immediate((exact[0] ^ (1 << (exact[1] - 1)), exact[1]))
            return Immediate(-exact)
        return Immediate(self.integer(0))

    def integer(self, minimum: int) -> int:
        """A constant integer expression whose operators bind at least as tightly as `minimum`."""
        self.depth += 1
        if self.depth > _DEPTH:
            raise self.fail("a constant expression nests too deeply")
        left = self._unary()
        while True:
            operator = self.peek()
            precedence = _PRECEDENCE.get(operator, -1)
            if precedence < minimum or precedence < 0:
                break
            self.at += 1
            right = self.integer(precedence + 1)
            left = self._binary(operator, left, right)
        if minimum == 0 and self.peek() == "?":
            self.at += 1
            yes = self.integer(0)
            self.expect(":")
            no = self.integer(0)
            left = yes if left else no
        self.depth -= 1
        return left

    def _unary(self) -> int:
        token = self.next()
        if token in ("-", "+", "~", "!"):
            self.depth += 1
            if self.depth > _DEPTH:
                raise self.fail("a constant expression nests too deeply")
            value = self._unary()
            self.depth -= 1
            return {"-": -value, "+": value, "~": ~value, "!": int(not value)}[token]
        if token == "(":
            if self.peek() in (".s64", ".u64"):
                cast = self.next()
                self.expect(")")
                value = self._unary() & (1 << 64) - 1
                return value - (1 << 64) if cast == ".s64" and value >> 63 else value
            value = self.integer(0)
            self.expect(")")
            return value
        if token == "WARP_SZ":
            return 32
        literal = integer_literal(token)
        if literal is None:
            raise self.fail(f"expected an operand, found {token!r}")
        return literal

    def _binary(self, operator: str, a: int, b: int) -> int:
        if operator in ("/", "%"):
            if b == 0:
                raise self.fail("a constant expression divides by zero")
            quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
            return quotient if operator == "/" else a - b * quotient
        if operator in ("<<", ">>"):
            if not 0 <= b < 64:
                raise self.fail("a constant expression shifts too far")
            return (a << b) & ((1 << 64) - 1) if operator == "<<" else a >> b
        if operator in ("&&", "||"):
            return int(bool(a) and bool(b)) if operator == "&&" else int(bool(a) or bool(b))
        value = {
            "+": a + b,
            "-": a - b,
            "*": a * b,
            "&": a & b,
            "|": a | b,
            "^": a ^ b,
            "==": int(a == b),
            "!=": int(a != b),
            "<": int(a < b),
            ">": int(a > b),
            "<=": int(a <= b),
            ">=": int(a >= b),
        }[operator]
        mask = (1 << 64) - 1
        return value if -(1 << 63) <= value <= mask else value & mask
