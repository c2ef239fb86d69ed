"""The support table: every function, and how it is carried."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable

from . import written
from .model import By, Class, Function, Spec, Variant

# Where emit/docs.py puts the same as a document.
TABLE = "specs/_generated/coverage.md"


def how(variant: Variant) -> str:
    if variant.alias:
        return f"{variant.klass.value}, as {variant.alias}"
    return variant.klass.value + (f" via {', '.join(variant.via)}" if variant.via else "")


def groups(spec: Spec) -> dict[str, list[Function]]:
    found: dict[str, list[Function]] = {}
    for function in spec.driver.functions:
        found.setdefault(function.group, []).append(function)
    return dict(sorted(found.items()))


def counts(variants: Iterable[Variant]) -> dict[str, int]:
    found = Counter(v.klass for v in variants)
    return {klass.value: found[klass] for klass in Class}


def as_json(spec: Spec) -> str:
    by_hand = written.of_guest(spec)
    functions = {
        v.symbol: {
            "class": v.klass.value,
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
    """Return a table in Markdown: per group, the functions carried and who writes their side in the guest."""
    by_hand = written.of_guest(spec)
    columns = ("carried", "of", "generated", "by hand", "steps", "lines")
    rows: dict[str, list[int]] = {}
    for name, functions in groups(spec).items():
        variants = [v for f in functions for v in f.variants]
        carried = [v for v in variants if v.klass is not Class.UNSUPPORTED]
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
