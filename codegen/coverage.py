"""The support table: every function, and how it is carried."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable

from . import written
from .model import By, Class, Function, Spec, Variant

# Where emit/docs.py puts the same as a document.
TABLE = "specs/_generated/coverage.md"


# What a function is, for the table: a class that is carried, or one of these.
ABSENT = "absent"  # answers as a device does that lacks what it is for
REFUSED = "refused"
KINDS = (*(klass.value for klass in Class if klass is not Class.UNSUPPORTED), ABSENT, REFUSED)


def kind(variant: Variant) -> str:
    return REFUSED if variant.why else ABSENT if variant.without else variant.klass.value


def how(variant: Variant) -> str:
    if variant.alias:
        return f"{variant.klass.value}, as {variant.alias}"
    if variant.without:
        return f"as a device without {variant.without}"
    return variant.klass.value + (f" via {', '.join(variant.via)}" if variant.via else "")


def groups(spec: Spec) -> dict[str, list[Function]]:
    found: dict[str, list[Function]] = {}
    for function in spec.driver.functions:
        found.setdefault(function.group, []).append(function)
    return dict(sorted(found.items()))


def counts(variants: Iterable[Variant]) -> dict[str, int]:
    found = Counter(map(kind, variants))
    return {name: found[name] for name in KINDS}


def as_json(spec: Spec) -> str:
    by_hand = written.of_guest(spec)
    functions = {
        v.symbol: {
            "class": kind(v),
            "why": v.why or v.without,
            "group": v.group,
            "since": v.since,
            "id": v.id,
            "alias": v.alias,
            "via": list(v.via),
            "guest": v.guest.value,
            "guest_steps": [step.value for step in v.guest_steps],
            "server": v.server.value,
            "lines_by_hand": by_hand.get(v.symbol, 0),
        }
        for v in spec.driver.variants
    }
    return json.dumps(
        {"version": spec.driver.version, "counts": counts(spec.driver.variants), "functions": functions},
        indent=1,
    )


def as_text(spec: Spec) -> str:
    """A table in columns: per group, the functions carried and who writes their side in the guest."""
    by_hand = written.of_guest(spec)
    columns = ("carried", "of", "generated", "by hand", "steps", "lines")
    rows: dict[str, list[int]] = {}
    for name, functions in groups(spec).items():
        variants = [v for f in functions for v in f.variants]
        carried = [v for v in variants if not v.why]
        rows[name] = [
            len(carried),
            len(variants),
            sum(v.guest is By.GENERATED for v in carried),
            sum(v.guest is By.CUSTOM for v in carried),
            sum(len(v.guest_steps) for v in carried),
            sum(by_hand.get(v.symbol, 0) for v in carried),
        ]
    rows["all"] = [sum(column) for column in zip(*rows.values(), strict=True)]
    lines = [f"{'group':<18}" + "".join(f"{column:>10}" for column in columns)]
    lines += [f"{name:<18}" + "".join(f"{number:>10}" for number in row) for name, row in rows.items()]
    total = counts(spec.driver.variants)
    lines.append(", ".join(f"{n} {klass}" for klass, n in total.items()))
    return "\n".join(lines)
