"""Tells a developer what an operation means on the server: checks, steps, teardown, migration, a stub of
its test.
"""

from __future__ import annotations

from .checks import stated
from .model import Arg, By, Kind, Lasting, ObjectKind, Rebuilt, Spec, Step, Use, Variant
from .wire import message

KEPT = {
    Lasting.NONE: "nothing of it is kept",
    Lasting.CREATE: "its frame is kept with the object that it makes, and sent again",
    Lasting.DESTROY: "the frames of the object that it ends are forgotten",
    Lasting.SET: "of calls that agree in {by} the last is kept with {of}, and sent again",
    Lasting.ADD: "every call is kept with {of}, and sent again in order",
    Lasting.CUSTOM: "the engine knows what it has changed (migration/DESIGN.md)",
}
REBUILT = {
    Rebuilt.REPLAY: "made again from the frames that made and changed it",
    Rebuilt.CUSTOM: "made again by the engine",
    Rebuilt.NONE: "not made again: the server never had it",
}


def checks(spec: Spec, variant: Variant) -> list[str]:
    found = stated(spec, message(spec.types, variant))
    return ["  the server checks:", *(f"    {check}" for check in found)] if found else []


def steps(variant: Variant) -> str:
    if variant.server is By.CUSTOM:
        return f"  the server's steps: check, translate; then on_{variant.symbol}, by hand"
    if Step.CALL in variant.server_steps:
        return f"  the server's steps: check, translate, {variant.symbol}_call by hand, adopt, answer"
    return "  the server's steps: check, translate, call, adopt, answer: all generated"


def ends(spec: Spec, kind: ObjectKind) -> str:
    """When an object of a kind ends, and what goes with it."""
    by = f" or by {kind.destroy}" if kind.destroy else ""
    owned = ", ".join(other.name for other in spec.objects.owned_by(kind.name))
    first = f", after what it owns: {owned}" if owned else ""
    return f"  teardown: a {kind.name} ends with its {' or '.join(kind.owners)}{by}{first}"


def subject(arg: Arg) -> bool:
    return arg.kind is Kind.HANDLE and arg.use in (Use.CREATE, Use.DESTROY)


def objects(spec: Spec, variant: Variant) -> list[str]:
    kinds = [spec.objects[name] for arg in variant.args if subject(arg) for name in arg.of]
    lines = []
    for kind in kinds:
        lines += [ends(spec, kind), f"  migration: a {kind.name} is {REBUILT[kind.rebuilt]}"]
    return lines


def migration(variant: Variant) -> list[str]:
    replay = variant.replay
    if replay is None:
        return []
    by = " and ".join(replay.by) or "nothing: there is one"
    return [f"  migration: {KEPT[replay.lasting].format(of=replay.of, by=by)}"]


def value(arg: Arg) -> str:
    """Return a value for a test's stub: a valid one if the spec tells it, else a placeholder."""
    if arg.kind is Kind.HANDLE:
        return f'handle("{arg.of[0]}", 0)'
    if arg.kind is Kind.SCALAR and arg.min is not None:
        return str(arg.min)
    return "0" if arg.kind in (Kind.SCALAR, Kind.ENUM, Kind.FLAGS, Kind.DEVICE) else "..."


def stub(spec: Spec, variant: Variant) -> list[str]:
    """A test of the operation to begin with, for tests/apiserver."""
    m = message(spec.types, variant)
    by_name = {arg.name: arg for arg in variant.args}
    given = [f'"{variant.symbol}"', *(f"{f.name}={value(by_name[f.name])}" for f in m.request)]
    given += ["payload=..."] if m.request_payload else []
    lines = [
        f"def test_{variant.symbol}(guest: Guest) -> None:",
        f"    reply = guest.call({', '.join(given)})",
        "    assert reply.status == 0",
    ]
    lines += [f'    assert reply.values["{f.name}"] == ...' for f in m.reply]
    return ["  a test of the server (tests/apiserver):", *(f"    {line}" for line in lines)]


def describe(spec: Spec, variant: Variant) -> list[str]:
    """Lines about the operation's server side; none if it has no message."""
    if not variant.on_wire:
        return []
    return [
        *checks(spec, variant),
        steps(variant),
        *objects(spec, variant),
        *migration(variant),
        *stub(spec, variant),
    ]
