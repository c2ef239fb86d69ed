"""Declarations: parameters, variables, registers, prototypes, and the heads of functions."""

from __future__ import annotations

import math
import re

from .errors import PtxError
from .lexer import integer_literal
from .model import Local, Parameter, Prototype, Registers
from .types import PRED, TYPES, Type

_LIMIT = 1 << 40
MOST_IN_RANGE = 1 << 16  # variables
_NAME = re.compile(r"[A-Za-z_$%][\w$]*\Z")
SPACES = {".global", ".const", ".shared", ".local", ".param", ".tex"}
LINKAGE = {".visible", ".extern", ".weak", ".common"}
_OPAQUE = {".texref", ".surfref", ".samplerref"}


class Cursor:
    """A position in a token list; skips newlines and counts lines."""

    def __init__(self, tokens: list[str], line: int) -> None:
        self.tokens = tokens
        self.at = 0
        self.line = line

    def fail(self, reason: str, text: str = "") -> PtxError:
        return PtxError("", self.line, text, reason)

    def peek(self) -> str:
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            if token != "\n":
                return token
            self.at += 1
            self.line += 1
        return ""

    def next(self) -> str:
        token = self.peek()
        if not token:
            raise self.fail("the text ends too early")
        self.at += 1
        return token

    def expect(self, token: str) -> None:
        found = self.next()
        if found != token:
            raise self.fail(f"expected {token!r}, found {found!r}")

    def accept(self, token: str) -> bool:
        if self.peek() == token:
            self.at += 1
            return True
        return False

    def until(self, token: str) -> list[str]:
        """The tokens up to `token`, without newlines; `token` is passed over."""
        try:
            end = self.tokens.index(token, self.at)
        except ValueError:
            raise self.fail(f"{token!r} is missing") from None
        found = self.tokens[self.at : end]
        self.at = end + 1
        newlines = found.count("\n")
        if newlines:
            self.line += newlines
            found = [each for each in found if each != "\n"]
        return found

    def name(self) -> str:
        token = self.next()
        if not _NAME.match(token):
            raise self.fail("expected a name", token)
        return token

    def integer(self) -> int:
        token = self.next()
        value = integer_literal(token)
        if value is None or value > _LIMIT:
            raise self.fail("expected an integer", token)
        return value


def _scalar(cursor: Cursor) -> Type:
    token = cursor.next()
    found = TYPES.get(token[1:]) if token.startswith(".") else None
    if found is None:
        raise cursor.fail("not a type", token)
    return found


def dimensions(cursor: Cursor) -> tuple[int | None, ...]:
    """`[2][3]`; None for `[]`, nothing if there are no brackets."""
    extents: list[int | None] = []
    count = 1
    while cursor.accept("["):
        if cursor.accept("]"):
            extents.append(None)
            continue
        extents.append(cursor.integer())
        cursor.expect("]")
        count *= extents[-1] or 1
        if count > _LIMIT:
            raise cursor.fail("an array is too large")
    return tuple(extents)


class Declared:
    """The part that all declarations share: attributes, then a type; names follow."""

    def __init__(self, cursor: Cursor) -> None:
        self.align = 0
        self.vector = 1
        self.managed = False
        while True:
            token = cursor.peek()
            if token == ".align":
                cursor.next()
                self.align = cursor.integer()
                if self.align == 0 or self.align & (self.align - 1) or self.align > 1 << 20:
                    raise cursor.fail("an alignment must be a power of two", str(self.align))
            elif token in (".v2", ".v4", ".v8"):
                cursor.next()
                self.vector = int(token[2:])
            elif token == ".attribute":
                cursor.next()
                cursor.expect("(")
                self.managed |= ".managed" in cursor.until(")")
                cursor.accept(")")
            elif token == ".ptr":
                cursor.next()
                if cursor.peek() in SPACES:
                    cursor.next()
                # The alignment of what it points to is not the parameter's own.
                if cursor.accept(".align"):
                    cursor.integer()
            else:
                self.type = _scalar(cursor)
                # `.param .u64 .ptr .global .align 4 name` has the attributes behind the type.
                if cursor.peek() != ".ptr":
                    break
                cursor.next()
                if cursor.peek() in SPACES:
                    cursor.next()
                if cursor.accept(".align"):
                    cursor.integer()
                break
        self.element = max(1, self.type.bytes) * self.vector

    def size(self, extents: tuple[int | None, ...]) -> int:
        return math.prod((extent or 0 for extent in extents), start=self.element)

    def alignment(self) -> int:
        return self.align or self.element


def parameters(cursor: Cursor) -> list[Parameter]:
    """`( .param .b32 a, .reg .b64 b )`."""
    cursor.expect("(")
    found: list[Parameter] = []
    if cursor.accept(")"):
        return found
    while True:
        storage = cursor.next()
        if storage not in (".param", ".reg"):
            raise cursor.fail("expected .param or .reg", storage)
        declared = Declared(cursor)
        name = cursor.name() if cursor.peek() not in (",", ")", "[") else "_"
        size = declared.size(dimensions(cursor))
        if name.endswith(("<", ">")):
            raise cursor.fail("a parameter cannot be a range")
        if storage == ".reg" and size != declared.element:
            raise cursor.fail("a register is no array", name)
        found.append(Parameter(name, declared.type, size, declared.alignment(), storage == ".reg"))
        if cursor.accept(")"):
            return found
        cursor.expect(",")


def registers(cursor: Cursor) -> Registers:
    """`.reg .b32 %r<4>, %x;` behind `.reg`."""
    declared = Declared(cursor)
    if declared.vector > 1 and (declared.vector > 4 or declared.type is PRED):
        raise cursor.fail("not a vector of registers", f".v{declared.vector} .{declared.type.name}")
    names: list[tuple[str, int]] = []
    while True:
        name = cursor.name()
        count = 0
        if cursor.accept("<"):
            count = cursor.integer()
            cursor.expect(">")
            if count == 0:
                count = -1
        names.append((name, count))
        if cursor.accept(";"):
            return Registers(declared.type, names, declared.vector)
        cursor.expect(",")


def locals_(cursor: Cursor, space: str) -> list[Local]:
    """Variables of a function, behind their space."""
    declared = Declared(cursor)
    found: list[Local] = []
    while True:
        name = cursor.name()
        if cursor.accept("<"):
            count = cursor.integer()
            cursor.expect(">")
            if count > MOST_IN_RANGE:
                raise cursor.fail("too many variables", name)
            found += [
                Local(space, f"{name}{i}", declared.element, declared.alignment(), declared.element)
                for i in range(count)
            ]
        else:
            size = declared.size(dimensions(cursor))
            found.append(Local(space, name, size, declared.alignment(), declared.element))
        if cursor.accept(";"):
            return found
        cursor.expect(",")


def prototype(cursor: Cursor, name: str) -> Prototype:
    """`(.param .b32 _) _ (.param .b64 _, …);` behind `.callprototype`."""
    returns = parameters(cursor) if cursor.peek() == "(" else []
    cursor.name()
    arguments = parameters(cursor) if cursor.peek() == "(" else []
    rest = cursor.until(";")
    known = {".noreturn", ".abi_preserve", ".abi_preserve_control"}
    if not all(token in known or integer_literal(token) is not None for token in rest):
        raise cursor.fail("not known in a prototype", " ".join(rest))
    return Prototype(name, returns, arguments, ".noreturn" in rest)
