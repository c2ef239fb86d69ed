"""Splits PTX into directives, variables and functions. Bodies are only skipped over: a module may hold
megabytes of functions that no kernel ever calls."""

from __future__ import annotations

import re

from .declarations import LINKAGE, MOST_IN_RANGE, Cursor, parameters
from .errors import PtxError
from .lexer import tokenize
from .model import RUNTIME, Function, Symbol, Variable
from .module import Module, Unit, own_name
from .targets import ANY_TARGET
from .variables import own_declarations, variables

_SKIP = r'"(?:\\.|[^"\\\n])*"'
# Ends of a module-scope statement. `=` matters because the brace behind it belongs to an initialiser.
_OUTER = re.compile(_SKIP + r"|[{;=]")
_INNER = re.compile(_SKIP + r"|[{}]")
_END = re.compile(_SKIP + r"|;")
_MARK = re.compile(r'"(?:\\.|[^"\\\n])*("?)|//[^\n]*|/\*')
_TUNING = {
    "maxntid",
    "reqntid",
    "minnctapersm",
    "maxnreg",
    "maxnctapersm",
    "minperctamemory",
    "local_maxnreg",
    "language",
    "reqnctapercluster",
    "maxclusterrank",
}
_FLAGS = {".noreturn", ".explicitcluster", ".blocksareclusters", ".abi_preserve", ".abi_preserve_control"}


def parse(text: str, name: str = "") -> Module:
    """Raises PtxError where the text is not PTX. Messages about a link call it by its name."""
    # A C string may carry its terminator.
    text = text.rstrip("\0")
    if "\0" in text:
        raise PtxError("", text.count("\n", 0, text.index("\0")) + 1, "", "not text")
    unit = _Splitter(without_comments(text), name).split()
    unit.any_target = ANY_TARGET in text
    return Module([unit])


def without_comments(text: str) -> str:
    """Return the lines with blanks in place of comments. After this every quoted text ends on its line."""
    kept: list[str] = []
    at = 0
    while (mark := _MARK.search(text, at)) is not None:
        begin, end = mark.span()
        if mark[0][0] == '"':
            if not mark[1]:
                raise PtxError("", text.count("\n", 0, begin) + 1, "", "a text in quotes does not end")
            begin = end
        elif mark[0] == "/*":
            end = text.find("*/", end) + 2
            if end < 2:
                raise PtxError("", text.count("\n", 0, begin) + 1, "", "a comment does not end")
        kept.append(text[at:begin])
        if begin < end:
            kept.append(" " + "\n" * text.count("\n", begin, end))
        at = end
    kept.append(text[at:])
    return "".join(kept)


def _sizes(function: Function) -> tuple[list[int], list[int]]:
    return [each.size for each in function.returns], [each.size for each in function.parameters]


class _Splitter:
    def __init__(self, text: str, name: str) -> None:
        self.text = text
        self.unit = Unit(name=name)
        self.at = 0
        self.counted = 0
        self.lines = 1
        self.aliases: list[tuple[str, str, int]] = []

    def line(self, position: int) -> int:
        self.lines += self.text.count("\n", self.counted, position)
        self.counted = position
        return self.lines

    def fail(self, position: int, reason: str, what: str = "") -> PtxError:
        return PtxError("", self.text.count("\n", 0, position) + 1, what, reason)

    def _find(self, pattern: re.Pattern[str], position: int) -> re.Match[str] | None:
        while (match := pattern.search(self.text, position)) is not None:
            if match[0][0] != '"':
                return match
            position = match.end()
        return None

    def split(self) -> Unit:
        text = self.text
        position = 0
        while (match := self._find(_OUTER, position)) is not None:
            start, kind = self.at, match[0]
            if kind == ";" and self._in_head(start, match.start()):
                position = match.end()
                continue
            if kind == ";":
                self.at = match.end()
                self._statement(start, match.start(), None)
            elif kind == "=":
                end = self._find(_END, match.end())
                if end is None:
                    raise self.fail(match.start(), "an initialiser does not end")
                self.at = end.end()
                self._statement(start, match.start(), (match.end(), end.start()))
            else:
                close = self._close(match.end())
                self.at = close + 1
                self._function(start, match.start(), match.end(), close)
            position = self.at
        self._statement(self.at, len(text), None)
        if not self.unit.isa:
            raise PtxError("", 1, "", "there is no .version")
        if not self.unit.target:
            raise PtxError("", 1, "", "there is no .target")
        for alias, aliased, line in self.aliases:
            symbol = self.unit.symbols.get(aliased)
            if symbol is None:
                raise PtxError("", line, aliased, "an alias of nothing")
            self.unit.symbols[alias] = symbol
        return self.unit

    def _in_head(self, start: int, end: int) -> bool:
        """Whether the semicolon ends a .pragma between a function's name and its body."""
        pragma = self.text.rfind(".pragma", start, end)
        heads = (self.text.find(kind, start, pragma) for kind in (".entry", ".func")) if pragma >= 0 else ()
        return any(head >= 0 for head in heads)

    def _close(self, position: int) -> int:
        depth = 1
        start = position
        while (match := self._find(_INNER, position)) is not None:
            position = match.end()
            depth += 1 if match[0] == "{" else -1
            if depth == 0:
                return match.start()
        raise self.fail(start, "a brace is not closed")

    def _cursor(self, start: int, end: int) -> Cursor:
        line = self.line(start)
        return Cursor(tokenize(self.text, start, end, line), line)

    def _directives(self, cursor: Cursor) -> None:
        """Directives without a semicolon, in front of a statement."""
        while True:
            token = cursor.peek()
            if token == ".version":
                cursor.next()
                version = cursor.next()
                found = re.fullmatch(r"(\d{1,3})\.(\d)", version)
                if found is None:
                    raise cursor.fail("not a PTX version", version)
                self.unit.isa = int(found[1]) * 10 + int(found[2])
            elif token == ".target":
                cursor.next()
                self.unit.target = cursor.next()
                if not re.match(r"(sm|compute)_\d+", self.unit.target):
                    raise cursor.fail("not a target", self.unit.target)
                while cursor.accept(","):
                    cursor.next()
            elif token == ".address_size":
                cursor.next()
                if cursor.integer() != 64:
                    raise cursor.fail("only 64-bit addresses are supported")
            elif token in (".file", ".loc"):
                cursor.next()
                while cursor.at < len(cursor.tokens) and cursor.tokens[cursor.at] != "\n":
                    cursor.at += 1
            else:
                return

    def _statement(self, start: int, end: int, initial: tuple[int, int] | None) -> None:
        """`initial`: what stands behind the first `=`."""
        cursor = self._cursor(start, end)
        self._directives(cursor)
        token = cursor.peek()
        if not token:
            if initial is not None:
                raise cursor.fail("an initialiser of nothing")
            return
        if token == ".pragma":
            return
        if token == ".alias":
            cursor.next()
            alias = cursor.name()
            cursor.expect(",")
            self.aliases.append((alias, cursor.name(), cursor.line))
            return
        linkage = cursor.next()[1:] if token in LINKAGE else ""
        token = cursor.next()
        if token in (".func", ".entry"):
            if initial is not None:
                raise cursor.fail("a function cannot be initialised")
            self._head(cursor, token == ".entry", linkage, -1, -1)
        elif token in (".global", ".const", ".shared"):
            if cursor.accept("["):
                cursor.until("]")
            for variable in variables(self.text, cursor, token[1:], linkage, initial, self._room()):
                self._add(variable)
        else:
            raise cursor.fail("not a module directive", token)
        if cursor.peek():
            raise cursor.fail("unexpected", cursor.peek())

    def _add(self, symbol: Symbol) -> None:
        known = self.unit.symbols.get(symbol.name)
        if known is not None:
            self._redeclare(known, symbol)
            return
        self.unit.symbols[symbol.name] = symbol
        if isinstance(symbol, Function):
            self.unit.functions.append(symbol)
        else:
            self.unit.variables.append(symbol)

    def _redeclare(self, known: Symbol, symbol: Symbol) -> None:
        if isinstance(known, Function) and isinstance(symbol, Function):
            if known.name not in RUNTIME and _sizes(known) != _sizes(symbol):
                raise PtxError("", symbol.line, "", f"Inconsistent prototypes of '{symbol.name}'")
            if known.start < 0:
                # The declaration becomes the definition, so that its index holds.
                directives = {**known.directives, **symbol.directives}
                known.parameters, known.returns, known.directives = (
                    symbol.parameters,
                    symbol.returns,
                    directives,
                )
                known.start, known.end, known.line, known.linkage = (
                    symbol.start,
                    symbol.end,
                    symbol.line,
                    symbol.linkage,
                )
                known.is_kernel, known.body_line = symbol.is_kernel, symbol.body_line
                known.own = symbol.own
                return
            if symbol.start < 0:
                return
        elif isinstance(known, Variable) and isinstance(symbol, Variable) and known.space == symbol.space:
            if symbol.linkage == "extern":
                return
            if known.linkage == "extern":
                known.size, known.align, known.linkage = symbol.size, symbol.align, symbol.linkage
                known.initial, known.managed, known.line = symbol.initial, symbol.managed, symbol.line
                return
        raise PtxError("", symbol.line, symbol.name, "defined twice")

    def _function(self, start: int, brace: int, body: int, close: int) -> None:
        cursor = self._cursor(start, brace)
        body_line = self.line(body)
        self._directives(cursor)
        if cursor.peek() == ".section":
            return
        linkage = cursor.next()[1:] if cursor.peek() in LINKAGE else ""
        token = cursor.next()
        if token not in (".func", ".entry"):
            raise cursor.fail("not a function", token)
        self._head(cursor, token == ".entry", linkage, body, close, body_line)

    def _head(
        self, cursor: Cursor, is_kernel: bool, linkage: str, body: int, close: int, body_line: int = 0
    ) -> None:
        line = cursor.line
        while cursor.peek() == ".attribute":
            cursor.until(")")
            cursor.accept(")")
        returns = parameters(cursor) if cursor.peek() == "(" else []
        name = cursor.name()
        arguments = parameters(cursor) if cursor.peek() == "(" else []
        directives: dict[str, list[int]] = {}
        while token := cursor.peek():
            cursor.next()
            if token[1:] in _TUNING:
                extents = [cursor.integer()]
                while cursor.accept(","):
                    extents.append(cursor.integer())
                directives[token[1:]] = extents
            elif token == ".pragma":
                cursor.next()
                while cursor.accept(","):
                    cursor.next()
                cursor.accept(";")
            elif token in _FLAGS:
                directives[token[1:]] = []
                if token.startswith(".abi_preserve"):
                    cursor.integer()
            else:
                raise cursor.fail("not a directive of a function", token)
        own = [] if body < 0 else self._own(name, body, close, body_line)
        self._add(
            Function(
                *(name, is_kernel, linkage, returns, arguments, directives, line, body, close, self.text),
                body_line=body_line,
                own=frozenset(own),
            )
        )

    def _room(self) -> int:
        """How many variables ranges may still make."""
        return MOST_IN_RANGE - len(self.unit.variables)

    def _own(self, function: str, body: int, close: int, body_line: int) -> list[str]:
        """The names of a function's own variables in .global and .const, which become the module's."""
        names = []
        for space, begin, end in own_declarations(self.text, body, close):
            line = body_line + self.text.count("\n", body, begin)
            equals = self.text.find("=", begin, end)
            upto, initial = (end, None) if equals < 0 else (equals, (equals + 1, end))
            cursor = Cursor(tokenize(self.text, begin, upto, line), line)
            for variable in variables(self.text, cursor, space, "", initial, self._room()):
                names.append(variable.name)
                variable.name = own_name(function, variable.name)
                self._add(variable)
        return names
