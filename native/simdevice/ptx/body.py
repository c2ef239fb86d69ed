"""A function's body, as a flat list of items."""

from __future__ import annotations

from .declarations import Cursor, locals_, prototype, registers
from .errors import PtxError
from .lexer import tokenize
from .model import Instruction, Item, Label, ScopeBegin, ScopeEnd, Targets
from .operands import Operands


def parse_body(text: str, start: int, end: int, line: int) -> list[Item]:
    """text[start:end] is what stands between a function's braces; `line` is that of its start."""
    cursor = Cursor(tokenize(text, start, end, line), line)
    items: list[Item] = []
    depth = 0
    tokens = cursor.tokens
    while token := cursor.peek():
        cursor.at += 1
        if token == ";":
            continue
        if token == "{":
            depth += 1
            items.append(ScopeBegin(cursor.line))
        elif token == "}":
            depth -= 1
            if depth < 0:
                raise cursor.fail("a brace too many")
            items.append(ScopeEnd(cursor.line))
        elif token[0] == ".":
            _directive(cursor, token, items)
        elif token == "@":
            negated = cursor.accept("!")
            guard = cursor.name()
            items.append(_instruction(cursor, cursor.next(), guard, negated))
        elif cursor.at < len(tokens) and cursor.peek() == ":":
            cursor.at += 1
            _label(cursor, token, items)
        else:
            items.append(_instruction(cursor, token, None, False))
    if depth:
        raise cursor.fail("a closing brace is missing")
    return items


def _instruction(cursor: Cursor, token: str, guard: str | None, negated: bool) -> Instruction:
    line = cursor.line
    if not token[0].isalpha():
        raise PtxError("", line, token, "expected an instruction")
    while cursor.peek().startswith("."):  # there may be blanks before a modifier: CUTLASS writes `prmt .b32`
        token += cursor.next()
    opcode, *modifiers = token.split(".")
    operands = Operands(cursor.until(";"), line, calls=opcode == "call")
    return Instruction(opcode, tuple(modifiers), operands.all(), line, guard, negated)


def _label(cursor: Cursor, name: str, items: list[Item]) -> None:
    following = cursor.peek()
    if following in (".branchtargets", ".calltargets"):
        cursor.at += 1
        items.append(Targets(name, _targets(cursor)))
    elif following == ".callprototype":
        cursor.at += 1
        items.append(prototype(cursor, name))
    else:
        items.append(Label(name, cursor.line))


def _targets(cursor: Cursor) -> list[str]:
    """The labels up to the semicolon. `b<2>` stands for two of them, b0 and b1."""
    targets = []
    while not cursor.accept(";"):
        name = cursor.name()
        if cursor.accept("<"):
            count = min(cursor.integer(), len(cursor.tokens))  # so many labels are not there
            targets += [f"{name}{index}" for index in range(count)]
            cursor.expect(">")
        else:
            targets.append(name)
        cursor.accept(",")
    return targets


def _directive(cursor: Cursor, token: str, items: list[Item]) -> None:
    if token == ".reg":
        items.append(registers(cursor))
    elif token in (".local", ".param", ".shared"):
        items.extend(locals_(cursor, token[1:]))
    elif token in (".pragma", ".global", ".const"):  # the latter are the module's (variables.py)
        cursor.until(";")
    elif token in (".loc", ".file"):
        # These end with their line.
        while cursor.at < len(cursor.tokens) and cursor.tokens[cursor.at] != "\n":
            cursor.at += 1
    else:
        raise cursor.fail("not a directive of a function", token)
