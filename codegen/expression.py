"""Size expressions of the spec: integers, names of arguments, + - * and parentheses; nothing else."""

from __future__ import annotations

import ast
from collections.abc import Callable

OPERATORS: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}


class ExpressionError(ValueError):
    """The expression says more than the language allows."""


def _walk(node: ast.expr, name: Callable[[str], str]) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
        return str(node.value)
    if isinstance(node, ast.Name):
        return name(node.id)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return f"({_walk(node.left, name)} {OPERATORS[type(node.op)]} {_walk(node.right, name)})"
    raise ExpressionError(f"{ast.unparse(node)!r} is not a number, an argument, or + - * of such")


def translate(text: str, name: Callable[[str], str] = str) -> str:
    """The expression as C (and Cython) text; `name` says how an argument is spelled there."""
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError as error:
        raise ExpressionError(f"{text!r} is not an expression: {error.msg}") from None
    found = _walk(tree.body, name)
    return found[1:-1] if found.startswith("(") and isinstance(tree.body, ast.BinOp) else found


CALLS: dict[type[ast.operator], str] = {ast.Add: "gf_plus", ast.Sub: "gf_minus", ast.Mult: "gf_times"}


def saturating(text: str, name: Callable[[str], str] = str) -> str:
    """The expression as calls that saturate (native/wire/codec.h): for numbers that nobody has checked."""

    def walk(node: ast.expr) -> str:
        if isinstance(node, ast.BinOp) and type(node.op) in CALLS:
            return f"{CALLS[type(node.op)]}({walk(node.left)}, {walk(node.right)})"
        return _walk(node, name)

    names(text)
    return walk(ast.parse(text, mode="eval").body)


def names(text: str) -> set[str]:
    """The arguments that an expression refers to."""
    found: set[str] = set()

    def note(name: str) -> str:
        found.add(name)
        return name

    translate(text, note)
    return found
