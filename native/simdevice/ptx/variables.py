"""Variables that live as long as the module: what a declaration of .global, .const or .shared says, and where
the initial values stand in the text.

A function may have such variables of its own. They are the module's under the name `function.variable`, which
no PTX text can spell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .declarations import Cursor, Declared, dimensions
from .lexer import tokenize
from .model import Variable
from .types import OPAQUE

_BREAK = re.compile(r"[,({]")
_NESTING = re.compile(r"[(){}]")
# Literal beginnings: instructions have `.global.` or `ld.global [`, of which a body is full.
_OWN = (re.compile(r"\.global\s"), re.compile(r"\.const\s"))
_NEAR = 400  # characters in front of a declaration, among which the end of what precedes it is


def variables(
    text: str, cursor: Cursor, space: str, linkage: str, rest: tuple[int, int] | None, room: int
) -> list[Variable]:
    """What a declaration declares, of which `cursor` has the part behind the space and in front of the first
    `=`. `rest`: where in the text stands what follows that, up to the semicolon. `room`: as many variables as
    ranges may make."""
    declared = Declared(cursor)
    found: list[Variable] = []
    while True:
        named, is_range = _named(text, cursor, declared, space, linkage, room - len(found))
        found += named
        if cursor.accept(","):
            continue
        if cursor.peek():
            raise cursor.fail("unexpected", cursor.peek())
        if rest is None:
            return found
        if is_range:
            raise cursor.fail("a range of variables has no initial values")
        begin, end = rest
        stop = _initial_end(text, begin, end)
        named[0].initial = (begin, stop)
        if stop == end:
            return found
        line = cursor.line + text.count("\n", begin, stop)
        equals = text.find("=", stop, end)
        upto, rest = (end, None) if equals < 0 else (equals, (equals + 1, end))
        cursor = Cursor(tokenize(text, stop + 1, upto, line), line)


def _named(
    text: str, cursor: Cursor, declared: Declared, space: str, linkage: str, room: int
) -> tuple[list[Variable], bool]:
    """One variable, or a range of them, which are no arrays; whether it is a range."""
    line = cursor.line
    name = cursor.name()
    names = [name]
    extents: tuple[int | None, ...] = ()
    if is_range := cursor.accept("<"):
        count = cursor.integer()
        cursor.expect(">")
        if count > room:
            raise cursor.fail("too many variables", name)
        names = [f"{name}{number}" for number in range(count)]
    else:
        extents = dimensions(cursor)
    made = [
        Variable(
            name=each,
            space=space,
            element=max(1, declared.type.bytes),
            is_float=declared.type.kind == "f",
            size=declared.size(extents),
            align=declared.alignment(),
            linkage=linkage,
            managed=declared.managed,
            line=line,
            text=text,
            initial=None,
            reference=declared.type.name if declared.type.name in OPAQUE else "",
            vector=declared.vector,
            extents=extents,
        )
        for each in names
    ]
    return made, is_range


def _initial_end(text: str, begin: int, end: int) -> int:
    """Where initial values end: at the comma in front of the next variable, or with the statement."""
    while (found := _BREAK.search(text, begin, end)) is not None:
        if found[0] == ",":
            return found.start()
        depth = 1
        begin = found.end()
        while depth:
            nesting = _NESTING.search(text, begin, end)
            if nesting is None:
                return end
            depth += 1 if nesting[0] in "({" else -1
            begin = nesting.end()
    return end


def own_declarations(text: str, start: int, end: int) -> Iterator[tuple[str, int, int]]:
    """The declarations of .global and .const within a body: the space, and where what follows it begins and
    ends."""
    for pattern in _OWN:
        for found in pattern.finditer(text, start, end):
            position = found.start()
            if not _begins_statement(text[max(start, position - _NEAR) : position]):
                continue
            semicolon = text.find(";", position, end)
            yield found[0].strip()[1:], found.end(), end if semicolon < 0 else semicolon


def _begins_statement(before: str) -> bool:
    """Whether what follows that is no part of it: of a statement, or of a line for debuggers."""
    ended = before.rstrip()
    if not ended or ended[-1] in ";{}:":
        return True
    line = ended[ended.rfind("\n") + 1 :].lstrip()
    return line.startswith((".loc", ".file")) and "\n" in before[len(ended) :]
