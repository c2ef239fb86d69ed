"""Expressions of the spec, for sizes, answers and conditions: parsed as Python's, written as C.

Sizes know integers, arguments, + - *, parentheses and `texel(format, channels)`: both sides compute them.
Answers and conditions, which the guest alone computes, know members (`hStream.flags`), places in an array,
comparisons, and/or/not, & | // and `a if c else b` too.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass

SUMS: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}
BITS: dict[type[ast.operator], str] = {ast.BitAnd: "&", ast.BitOr: "|", ast.FloorDiv: "/"}
COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
FUNCTIONS = {"texel": "gf_texel_bytes"}  # of sizes: C's name (native/wire/texel.h)
PREFIXES: dict[type[ast.unaryop], str] = {ast.Not: "!", ast.USub: "-", ast.Invert: "~"}
Path = tuple[str, ...]


class ExpressionError(ValueError):
    """The expression says more than the language allows."""


@dataclass(frozen=True)
class Call:
    """A call of another function, with an expression for each of its arguments."""

    function: str
    arguments: tuple[str, ...]


def parse(text: str) -> ast.expr:
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise ExpressionError(f"{text!r} is not an expression: {error.msg}") from None


def _number(node: ast.expr) -> str | None:
    plain = (
        isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool)
    )
    return str(node.value) if plain and isinstance(node, ast.Constant) else None


def _bare(text: str, node: ast.expr) -> str:
    """Return the C text of `node` without its outermost parentheses."""
    grouped = (ast.BinOp, ast.BoolOp, ast.Compare, ast.IfExp)
    return text[1:-1] if text.startswith("(") and isinstance(node, grouped) else text


def _size(node: ast.expr, name: Callable[[str], str]) -> str:
    number = _number(node)
    if number is not None:
        return number
    if isinstance(node, ast.Name):
        return name(node.id)
    if isinstance(node, ast.BinOp) and type(node.op) in SUMS:
        return f"({_size(node.left, name)} {SUMS[type(node.op)]} {_size(node.right, name)})"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS:
        return f"{FUNCTIONS[node.func.id]}({', '.join(_size(argument, name) for argument in node.args)})"
    raise ExpressionError(f"{ast.unparse(node)!r} is not a number, an argument, or + - * of such")


def translate(text: str, name: Callable[[str], str] = str) -> str:
    """A size as C and Cython text; `name` spells an argument there. Raises ExpressionError."""
    tree = parse(text)
    return _bare(_size(tree, name), tree)


CALLS: dict[type[ast.operator], str] = {ast.Add: "gf_plus", ast.Sub: "gf_minus", ast.Mult: "gf_times"}


def saturating(text: str, name: Callable[[str], str] = str) -> str:
    """A size as calls that saturate (native/wire/codec.h), for numbers that nobody has checked."""

    def walk(node: ast.expr) -> str:
        if isinstance(node, ast.BinOp) and type(node.op) in CALLS:
            return f"{CALLS[type(node.op)]}({walk(node.left)}, {walk(node.right)})"
        return _size(node, name)

    names(text)
    return walk(parse(text))


def names(text: str) -> set[str]:
    """The arguments that a size refers to. Raises ExpressionError."""
    found: set[str] = set()

    def note(name: str) -> str:
        found.add(name)
        return name

    translate(text, note)
    return found


def _path(node: ast.expr) -> Path | None:
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Attribute):
        above = _path(node.value)
        return (*above, node.attr) if above else None
    return None


def _value(node: ast.expr, resolve: Callable[[Path], str]) -> str:
    number, path = _number(node), _path(node)
    if number is not None:
        return number
    if path is not None:
        return resolve(path)
    if isinstance(node, ast.Attribute):
        return f"{_value(node.value, resolve)}.{node.attr}"
    if isinstance(node, ast.Subscript):
        return f"{_value(node.value, resolve)}[{_value(node.slice, resolve)}]"
    if isinstance(node, ast.BinOp) and type(node.op) in SUMS | BITS:
        sign = (SUMS | BITS)[type(node.op)]
        return f"({_value(node.left, resolve)} {sign} {_value(node.right, resolve)})"
    if isinstance(node, ast.UnaryOp) and type(node.op) in PREFIXES:
        return f"{PREFIXES[type(node.op)]}{_value(node.operand, resolve)}"
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARISONS:
        sign = COMPARISONS[type(node.ops[0])]
        return f"({_value(node.left, resolve)} {sign} {_value(node.comparators[0], resolve)})"
    if isinstance(node, ast.BoolOp):
        sign = " && " if isinstance(node.op, ast.And) else " || "
        return f"({sign.join(_value(part, resolve) for part in node.values)})"
    if isinstance(node, ast.IfExp):
        test, body, other = (_value(part, resolve) for part in (node.test, node.body, node.orelse))
        return f"({test} ? {body} : {other})"
    raise ExpressionError(f"{ast.unparse(node)!r} is no expression of the spec")


def c_text(text: str, resolve: Callable[[Path], str]) -> str:
    """An answer or a condition as C; `resolve` spells `name` and `name.member.member`. Raises
    ExpressionError.
    """
    tree = parse(text)
    return _bare(_value(tree, resolve), tree)


def paths(text: str) -> set[Path]:
    """Every `name` and `name.member` that an answer or a condition refers to."""
    found: set[Path] = set()

    def note(path: Path) -> str:
        found.add(path)
        return path[0]

    c_text(text, note)
    return found


def parse_call(text: str) -> Call:
    """The Call that `function(argument, …)` means. Raises ExpressionError."""
    tree = parse(text)
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name) or tree.keywords:
        raise ExpressionError(f"{text!r} is no call: write function(argument, …)")
    return Call(tree.func.id, tuple(ast.unparse(argument) for argument in tree.args))
