"""Whether the entry of a function says something that would be without effect in the guest."""

from __future__ import annotations

from .expression import paths
from .model import Arg, By, Class, Kind, SpecError, Variant

# Variables of the generated function.
LOCALS = {"request", "reply", "result", "behind", "parts"}


def check_use(variant: Variant) -> None:
    """Raise SpecError if something that the entry says would be without effect."""

    def fail(cause: str, remedy: str) -> SpecError:
        return SpecError(variant.where, f"{variant.symbol}: {cause}", remedy)

    for param in variant.signature.params:
        if variant.guest is By.GENERATED and param.name in LOCALS:
            raise fail(
                f"{param.name!r} is a variable of the generated function too", "Rename that in guest_calls.py"
            )
    said = {
        "answer": bool(variant.answer),
        "effect": bool(variant.effect),
        "early": bool(variant.early),
        "result": variant.result is not None,
        "calls": variant.calls is not None,
        "attribute": variant.attribute is not None,
        "override": bool(variant.guest_steps),
    }
    given = [key for key, value in said.items() if value]
    if variant.guest is not By.GENERATED and given:
        raise fail(f"{given[0]!r} is given, but the guest's side is not generated", f"Remove {given[0]!r}")
    if variant.guest is not By.GENERATED:
        return
    if variant.calls is not None:
        if variant.answer or variant.effect or variant.result or variant.on_wire:
            raise fail("it calls another function and does something besides", "Let 'calls' be all")
        passed = {path[0] for text in variant.calls.arguments for path in paths(text)}
        asked = {path[0] for early in variant.early for path in paths(early.condition)}
        for arg in variant.args:
            if arg.name not in passed | asked and arg.kind is not Kind.IGNORED and not said_of(arg):
                cause = f"{arg.name!r} is not passed on"
                raise SpecError(arg.where, f"{variant.symbol}: {cause}", "Pass it on, or say 'kind: ignored'")
        return
    if variant.klass is Class.LOCAL:
        answered = {item.target for item in variant.answer}
        answered |= {variant.attribute.value} if variant.attribute else set()
        for arg in variant.args:
            if arg.kind is Kind.OUT and arg.name not in answered and not (arg.nullable or variant.result):
                cause = f"nobody says what {arg.name!r} becomes"
                raise SpecError(arg.where, f"{variant.symbol}: {cause}", "Add it to 'answer'")
    elif not variant.on_wire:
        raise fail("it has no message, and calls nothing that has", "Add 'server', or 'calls'")
    elif variant.result is not None:
        raise fail("'result' is given, but the server answers", "Remove 'result'")


def said_of(arg: Arg) -> bool:
    """Whether checking an argument is all that its entry asks for."""
    return bool(arg.allow or arg.min or arg.max or arg.kind in (Kind.FLAGS, Kind.ENUM, Kind.DEVICE))
