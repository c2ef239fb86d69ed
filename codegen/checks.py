"""What an operation's spec says must hold of its arguments, in the order in which both sides check it.

The guest refuses what breaks it; the server refuses it again, with the same error, because it does not
believe the guest. A frame of a wrong length ends the session (specs/WIRE.md 4).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from . import expression
from .model import Arg, Kind, Needs, Spec, SpecError, Use, Variant
from .wire import Message

CONSTANT = re.compile(r"CU\w*_\w+$")
NUMBERS = {Kind.SCALAR, Kind.ENUM, Kind.FLAGS}
SUCCESS = "CUDA_SUCCESS"
INVALID_VALUE = "CUDA_ERROR_INVALID_VALUE"
NOT_SUPPORTED = "CUDA_ERROR_NOT_SUPPORTED"
INVALID_CONTEXT = "CUDA_ERROR_INVALID_CONTEXT"
INVALID_DEVICE = "CUDA_ERROR_INVALID_DEVICE"


class What(Enum):
    """What a check looks at, in the order in which checks are made."""

    PAYLOAD = "the payload is as long as announced"
    ANSWER = "the answer fits into one frame"
    CONTEXT = "a context is current"
    FLAGS = "no other bits are set"
    CARRIED = "the value is none of those"
    ENUM = "the value is one of those"
    MIN = "at least"
    MAX = "at most"
    DEVICE = "the session has this device"
    EARLY = "it does not hold that"
    RANGE = "the session may touch this memory"
    HANDLE = "the handle names an object of such a kind"


# What a check that fails means for the session, not for the call.
FRAMING = {What.PAYLOAD, What.ANSWER}


@dataclass(frozen=True)
class Check:
    """One thing that must hold of a request. `error` is the call's CUresult if it does not; None: the
    session ends.
    """

    what: What
    arg: Arg | None
    error: str | None
    bound: str | None = None
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        subject = f"{self.arg.name}: " if self.arg else ""
        terms = ", ".join(self.names) if self.names else self.bound
        outcome = self.error or "the session ends"
        return f"{subject}{self.what.value}{f' ({terms})' if terms else ''}, else {outcome}"


def _enum(spec: Spec, arg: Arg) -> Iterator[Check]:
    """What CUDA knows and gpuferry does not carry is told apart from what CUDA does not know."""
    known = spec.types.nesting.enums.get(spec.types.nesting.name(arg.param.ctype))
    if arg.allow:
        yield Check(What.ENUM, arg, INVALID_VALUE, names=arg.allow)
    elif arg.min is None and arg.max is None:
        if known is None or not known.allow:
            cause = f"{arg.name}: nobody says which values of {arg.param.ctype} there are"
            raise SpecError(arg.where, cause, "Add 'allow: [...]' here, or to the enum in types.yaml")
        if known.refuse:
            yield Check(What.CARRIED, arg, NOT_SUPPORTED, names=known.refuse)
        yield Check(What.ENUM, arg, INVALID_VALUE, names=known.allow)
    yield from _bounds(arg)


def handle_error(spec: Spec, arg: Arg) -> str:
    """The CUresult of a call that is given a handle of none of the argument's kinds. SpecError if the
    kinds differ in it.
    """
    if arg.error:
        return arg.error
    errors = {spec.objects[name].error for name in arg.of}
    if len(errors) != 1:
        cause = f"{arg.name}: the kinds {', '.join(arg.of)} are refused with different errors"
        raise SpecError(arg.where, cause, "Only kinds with the same 'error' in objects.yaml go together")
    return errors.pop()


def _bounds(arg: Arg) -> Iterator[Check]:
    for what, bound in ((What.MIN, arg.min), (What.MAX, arg.max)):
        if bound is not None:
            yield Check(what, arg, INVALID_VALUE, str(bound))


def _range(arg: Arg) -> Check:
    for key, given in (("size", arg.size), ("access", arg.access)):
        if given is None:
            cause = f"{arg.name}: it is device memory, but {key!r} is not given"
            raise SpecError(
                arg.where, cause, "Say how many bytes of it the call touches, and whether it writes"
            )
    return Check(What.RANGE, arg, INVALID_VALUE, arg.size)


def _of_frame(message: Message) -> Iterator[Check]:
    """What is read in one go has no codec that would count it; what is answered fits into a chunk."""
    for arg in message.request_payload:
        if (arg.bulk or arg.kind is Kind.PAYLOAD) and arg.size is not None:
            yield Check(What.PAYLOAD, arg, None, arg.size)
        if arg.bulk and len(message.request_payload) > 1:
            raise SpecError(
                arg.where, f"{arg.name}: 'bulk' beside others", "Send the others by another operation"
            )
    for arg in message.reply_payload:
        if arg.size is not None:
            yield Check(What.ANSWER, arg, None, arg.size)


def _of_argument(spec: Spec, arg: Arg) -> Iterator[Check]:
    if arg.kind is Kind.FLAGS:
        yield Check(What.FLAGS, arg, INVALID_VALUE, names=arg.allow)
    elif arg.kind is Kind.ENUM:
        yield from _enum(spec, arg)
    elif arg.kind is Kind.SCALAR:
        yield from _bounds(arg)
    elif arg.kind is Kind.DEVICE:
        yield Check(What.DEVICE, arg, arg.error or INVALID_DEVICE)
    elif arg.kind is Kind.POINTER:
        yield _range(arg)
    elif arg.kind is Kind.HANDLE and arg.use is not Use.CREATE:
        yield Check(What.HANDLE, arg, handle_error(spec, arg), names=arg.of)


def _early(message: Message) -> Iterator[Check]:
    """Conditions of values that travel; what else the guest knows, the driver judges here."""
    numbers = {a.name for a in message.variant.args if a.kind in NUMBERS}
    for early in message.variant.early:
        roots = {path[0] for path in expression.paths(early.condition)}
        if early.result != SUCCESS and all(root in numbers or CONSTANT.match(root) for root in roots):
            yield Check(What.EARLY, None, early.result, early.condition)


# Values before devices, then memory, then handles: looking those up is the step after the checks (translate).
ORDER = list(What)


def needs_context(variant: Variant) -> bool:
    """Whether a frame must name a context. To end an object none need be current: the guest ends what threads
    leave. An object says which it is of, but for the default stream.
    """
    if any(arg.use is Use.DESTROY for arg in variant.args):
        return False
    default = any(arg.kind is Kind.HANDLE and arg.nullable for arg in variant.args)
    return variant.needs is Needs.CONTEXT or (variant.needs is Needs.OWNER and default)


def stated(spec: Spec, message: Message) -> tuple[Check, ...]:
    """All checks of one operation, in the order in which they are made."""
    found = list(_of_frame(message))
    if needs_context(message.variant):
        found.append(Check(What.CONTEXT, None, INVALID_CONTEXT))
    for arg in message.variant.args:
        found += _of_argument(spec, arg)
    found += _early(message)
    return tuple(sorted(found, key=lambda check: ORDER.index(check.what)))


def names_in(size: str, arg: Arg) -> set[str]:
    """The arguments that a size refers to. Raises SpecError if it is no size."""
    try:
        return expression.names(size)
    except expression.ExpressionError as error:
        raise SpecError(arg.where, f"{arg.name}: {error}", "Sizes are numbers, arguments, + - *") from None
