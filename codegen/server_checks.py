"""The checks of an operation as Cython: what the dispatcher asks before anything is done."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from . import expression
from .checks import CONSTANT, Check, What, names_in
from .model import Access, Arg, SpecError
from .wire import C_TYPES, Message

MALFORMED = {
    What.PAYLOAD: "payload is not as long as announced",
    What.ANSWER: "more than one chunk asked for",
}


@dataclass(frozen=True)
class Test:
    """A condition in Cython under which the call is refused with `error`; None: the session ends, with
    `text`.
    """

    condition: str
    error: str | None
    text: str = ""


def size_of(size: str, arg: Arg) -> str:
    """A size as Cython; one that does not fit into 64 bits becomes the largest there is."""
    names_in(size, arg)
    return expression.saturating(size, lambda name: f"<uint64_t>q.{name}")


def _value(bound: str, arg: Arg) -> str:
    """A limit that the server knows too: numbers and constants of cuda.h."""

    def name(text: str) -> str:
        if CONSTANT.match(text):
            return f"cu.{text}"
        raise SpecError(
            arg.where, f"{arg.name}: the server cannot know {text!r}", "Use numbers and enumerators"
        )

    names_in(bound, arg)
    return expression.translate(bound, name)


def _places(message: Message, arg: Arg) -> list[str]:
    """The argument, or each of its elements."""
    count = next(f.count for f in message.request if f.name == arg.name)
    return [f"q.{arg.name}" if count == 1 else f"q.{arg.name}[{i}]" for i in range(count)]


def _bound(message: Message, check: Check, arg: Arg, sign: str) -> Test | None:
    limit = _value(str(check.bound), arg)
    wire = next(f.type for f in message.request if f.name == arg.name)
    if sign == "<" and limit == "0" and wire.startswith("u"):
        return None
    return Test(" or ".join(f"{place} {sign} {limit}" for place in _places(message, arg)), check.error)


def _flags(message: Message, check: Check, arg: Arg) -> Test:
    wire = next(f.type for f in message.request if f.name == arg.name)
    if not check.names:
        return Test(f"q.{arg.name} != 0", check.error)
    known = " | ".join(f"cu.{name}" for name in check.names)
    return Test(f"q.{arg.name} & ~<{C_TYPES[wire]}>({known})", check.error)


def _range(check: Check, arg: Arg) -> Test:
    verb = "may_read" if arg.access is Access.READ else "may_write"
    optional = f"q.{arg.name} != 0 and " if arg.nullable else ""
    return Test(f"{optional}not {verb}(s, q.{arg.name}, {size_of(str(check.bound), arg)})", check.error)


def _frame(message: Message, check: Check, arg: Arg, fixed: str) -> Test:
    size = size_of(str(check.bound), arg)
    condition = f"{size} != f.size - {fixed}" if check.what is What.PAYLOAD else f"{size} > GF_CHUNK"
    return Test(condition, None, MALFORMED[check.what])


class _Spelling(ast.NodeTransformer):
    """Names of a condition as the server has them."""

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(f"cu.{node.id}" if CONSTANT.match(node.id) else f"q.{node.id}", node.ctx)


def _condition(text: str) -> str:
    """A condition of the spec is Python's syntax, and so is Cython's."""
    return ast.unparse(_Spelling().visit(expression.parse(text)))


def test(message: Message, check: Check) -> Test | None:
    """The test of a check. None for a handle, which is refused where it is looked up."""
    if check.what is What.CONTEXT:
        return Test("f.context == NULL", check.error)
    if check.what is What.EARLY:
        return Test(_condition(str(check.bound)), check.error)
    arg = check.arg
    assert arg is not None
    if check.what in (What.PAYLOAD, What.ANSWER):
        fixed = f"sizeof(gf_req_{message.variant.symbol})" if message.request else "0"
        return _frame(message, check, arg, fixed)
    if check.what is What.FLAGS:
        return _flags(message, check, arg)
    if check.what is What.CARRIED:
        return Test(" or ".join(f"q.{arg.name} == cu.{name}" for name in check.names), check.error)
    if check.what is What.ENUM:
        return Test(" and ".join(f"q.{arg.name} != cu.{name}" for name in check.names), check.error)
    if check.what is What.MIN:
        return _bound(message, check, arg, "<")
    if check.what is What.MAX:
        return _bound(message, check, arg, ">")
    if check.what is What.DEVICE:
        return Test(f"not has_device(s, q.{arg.name})", check.error)
    if check.what is What.RANGE:
        return _range(check, arg)
    if check.what is What.HANDLE:
        return None
    raise SpecError(arg.where, f"{arg.name}: the server has no check of {check.what.value!r}", "Write it")
