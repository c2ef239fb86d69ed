"""Libraries whose functions the guest answers by itself (NVML). They have no message, so no wire id and no
meaning of each argument. From YAML to frozen values, and compared with their header.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path

from pycparser import CParser, c_ast

from .document import Value, read
from .expression import ExpressionError, paths
from .header import PLAIN_C, Prototype, find_header, preprocess, problem, prototype
from .load import SPECS
from .model import Signature, Where
from .signature import parse_signature, spell

FILES = ("nvml/nvml.yaml",)
# With it a header declares what it otherwise replaces by macros: every symbol that a program may link.
EVERY_NAME = "-D{library}_NO_UNVERSIONED_FUNC_DEFS"
SOURCES = ("device", "system")  # whose members an expression may name


class Way(Enum):
    GENERATED = "generated"
    CUSTOM = "custom"
    UNSUPPORTED = "unsupported"
    DENIED = "denied"


@dataclass(frozen=True)
class Answer:
    """What a function gives back through one parameter: an expression, or one for each member of a struct."""

    param: str
    members: tuple[tuple[str, str], ...]  # the name is empty where there is one expression
    where: Where


@dataclass(frozen=True)
class LocalFunction:
    signature: Signature
    way: Way
    condition: str | None
    answers: tuple[Answer, ...]
    where: Where

    @property
    def symbol(self) -> str:
        return self.signature.name


@dataclass(frozen=True)
class LocalLibrary:
    name: str
    header: str
    version: int
    result: str
    file: str
    undocumented: tuple[str, ...]  # symbols that the header does not declare, by hand
    functions: tuple[LocalFunction, ...]


def _expression(value: Value) -> str:
    text = value.word()
    try:
        named = paths(text)
    except ExpressionError as error:
        raise value.fail(
            str(error), "Write members of device or system, numbers, + - and comparisons"
        ) from None
    for path in named:
        if len(path) != 2 or path[0] not in SOURCES:
            raise value.unknown("name", ".".join(path), [f"{source}.member" for source in SOURCES])
    return text


def _answer(param: str, value: Value, signature: Signature) -> Answer:
    known = [one.name for one in signature.params]
    if param not in known:
        raise value.unknown("argument", param, known)
    if value.is_word:
        return Answer(param, (("", _expression(value)),), value.where)
    members = tuple((name, _expression(item)) for name, item in value.mapping().all())
    return Answer(param, members, value.where)


def _function(name: str, value: Value) -> LocalFunction:
    keys = value.mapping()
    text = keys.need("signature")
    signature = parse_signature(text.text(), text.where)
    if signature.name != name:
        raise text.fail(f"the signature is of {signature.name}", f"Make it that of {name}")
    way = keys.need("guest").choice(Way)
    condition, answers = keys.get("if"), keys.get("answer")
    keys.done()
    if (answers is not None) != (way is Way.GENERATED) or (condition is not None and answers is None):
        raise keys.fail(
            f"{name}: 'answer' and 'guest: {way.value}' do not go together",
            "A generated function has an answer, another one has none, and no condition",
        )
    found = tuple(_answer(arg, item, signature) for arg, item in answers.mapping().all()) if answers else ()
    return LocalFunction(signature, way, _expression(condition) if condition else None, found, keys.where)


def load_local(file: str) -> LocalLibrary:
    """Load the spec of a library without messages. `file`: below specs/. Raises SpecError."""
    keys = read(SPECS / file, f"specs/{file}")
    name, header, version = keys.need("library"), keys.need("header"), keys.need("version")
    result, functions, undocumented = keys.need("result"), keys.need("functions"), keys.get("undocumented")
    keys.done()
    return LocalLibrary(
        name.text(),
        header.text(),
        version.integer(),
        result.text(),
        f"specs/{file}",
        tuple(item.word() for item in undocumented.items()) if undocumented else (),
        tuple(_function(symbol, value) for symbol, value in functions.mapping().all()),
    )


@cache
def load_all() -> tuple[LocalLibrary, ...]:
    """Every library whose functions the guest answers by itself (NVML), from its file in specs/."""
    return tuple(map(load_local, FILES))


def _declared(library: LocalLibrary, include: Path) -> dict[str, Prototype]:
    define = EVERY_NAME.format(library=library.name.upper())
    text = preprocess(include, f"#include <{library.header}>\n", "-P", *PLAIN_C, define)
    found = {}
    for node in CParser().parse(text).ext:
        is_function = isinstance(node, c_ast.Decl) and isinstance(node.type, c_ast.FuncDecl)
        if is_function and node.name.startswith(library.name):
            found[node.name] = prototype(node.type)
    return found


def check(library: LocalLibrary, include: Path | None) -> list[str]:
    """Messages about everything in which the library and its header differ; without the header, none."""
    folder = find_header(library.header, include)
    if folder is None:
        return []
    declared, here = _declared(library, folder), Where(library.file, 1)
    problems = []
    version = re.search(rf"{library.name.upper()}_API_VERSION\s+(\d+)", (folder / library.header).read_text())
    if version is None or int(version[1]) != library.version:
        problems.append(problem(here, f"{library.header} is of another version", "Bring it up to date"))
    known = {function.symbol for function in library.functions}
    for symbol in sorted(declared.keys() - known):
        problems.append(problem(here, f"{library.header} declares {symbol}", "Add it, guest: unsupported"))
    for function in library.functions:
        mine = Prototype(
            function.signature.returns,
            tuple(spell(p.ctype) for p in function.signature.params),
            tuple(p.name for p in function.signature.params),
        )
        if (theirs := declared.get(function.symbol)) != mine:
            cause = f"{function.symbol}: the signature is not that of {library.header}"
            problems.append(problem(function.where, cause, f"There it is {theirs or 'not declared'}"))
    return problems
