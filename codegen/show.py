"""Prints everything that one function or one type yields, for a developer."""

from __future__ import annotations

import re
from itertools import pairwise

from . import generate, show_server
from .codec import layout
from .emit import codecs
from .model import Field, Spec, Variant
from .wire import message


def fields(found: tuple[Field, ...]) -> str:
    return (
        ", ".join(f"{f.type} {f.name}" + (f"[{f.count}]" if f.count > 1 else "") for f in found) or "nothing"
    )


def pieces(text: str, names: set[str], others: set[str]) -> list[str]:
    """The paragraphs of a generated file that name one of the symbols; of a table, only its rows."""
    word = re.compile(
        r"(?<![A-Za-z0-9])(?:\w*_)?(" + "|".join(map(re.escape, sorted(names))) + r")(?![A-Za-z0-9_])"
    )
    starts = [0, *(m.end() for m in re.finditer(r"\n\s*\n(?=\S)", text)), len(text)]
    found = []
    for begin, end in pairwise(starts):
        part = text[begin:end].rstrip()
        if not word.search(part):
            continue
        prototypes = all(line.endswith(");") for line in part.splitlines())
        is_table = prototypes or len(others.intersection(re.findall(r"cu[A-Z]\w+|session[A-Z]\w+", part))) > 4
        rows = (line for line in part.splitlines() if word.search(line))
        found.append("\n".join(rows) if is_table else part)
    return found


def describe(spec: Spec, variant: Variant) -> str:
    lines = [f"{variant.symbol}  ({variant.where})", f"  {variant.signature.prototype()};"]
    lines.append(
        f"  {variant.klass.value}, since {variant.since}, wire id {variant.id}, needs {variant.needs.value}"
    )
    if variant.alias:
        lines.append(f"  alias of {variant.alias}")
    if variant.per_thread:
        twin = variant.per_thread
        lines.append(f"  per-thread twin {twin.symbol} since {twin.since}, stream: {variant.stream}")
    if variant.via:
        lines.append(f"  via {', '.join(variant.via)}")
    if variant.replay:
        replay = variant.replay
        changed = f" on {replay.of} by {', '.join(replay.by) or 'nothing'}" if replay.of else ""
        only = ", while a session is restored" if variant.restore else ""
        lines.append(f"  leaves behind: {replay.lasting.value}{changed}{only}")
    if variant.on_wire:
        m = message(spec.types, variant)
        for what, struct, payload in (
            ("request", m.request, m.request_payload),
            ("reply", m.reply, m.reply_payload),
        ):
            follows = f", then {', '.join(a.name for a in payload)}" if payload else ""
            lines.append(f"  {what}: {fields(struct)}{follows}")
        nested = layout(spec.types, variant)
        lines += [f"  where {nested}"] if nested else []
    return "\n".join([*lines, *show_server.describe(spec, variant)])


def show_type(spec: Spec, name: str) -> str:
    """A type that nests: its layout and its codecs, whether or not anything carries it yet."""
    nesting = spec.types.nesting
    if name in nesting.options:
        where, travels = nesting.options[name].where, "a number, then {u32 option, u32 value} each"
        needed = codecs.Needed((), (), (name,))
    else:
        where, travels = nesting.structs[name].where, nesting.layout(name)
        inner = tuple(sorted(codecs.closure(nesting, {name})))
        needed = codecs.Needed(inner, (name,) if nesting.is_flat(name) else (), ())
    parts = [f"{name}  ({where})\n  {travels}"]
    for path, text in codecs.codecs(spec, needed).items():
        parts += [f"---- {path}\n{piece}" for piece in pieces(text, {name, f"{name}s"}, set())]
    return "\n\n".join(parts)


def show(spec: Spec, name: str, files: dict[str, str] | None = None) -> str:
    """What the spec says of a function or type, and its pieces of all generated `files` (None: made now).
    Raises LookupError.
    """
    types = spec.types.nesting
    if name in types.structs or name in types.options:
        return show_type(spec, name)
    found = [v for library in spec.libraries for v in library.variants if name in (v.symbol, v.base)]
    exact = [v for v in found if v.symbol == name]
    variants = exact or found
    if not variants:
        raise LookupError(f"no function or type {name!r} in specs/")
    names = {v.symbol for v in variants} | {v.per_thread.symbol for v in variants if v.per_thread}
    others = {v.symbol for library in spec.libraries for v in library.variants} - names
    parts = [describe(spec, v) for v in variants]
    for path, text in (files or generate.outputs(spec)).items():
        parts += [f"---- {path}\n{piece}" for piece in pieces(text, names, others)]
    return "\n\n".join(parts)
