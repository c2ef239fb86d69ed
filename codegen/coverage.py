"""The support table: every function, and how it is carried."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable

from .model import Class, Function, Spec, Variant

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
    functions = {
        v.symbol: {
            "class": v.klass.value,
            "group": v.group,
            "since": v.since,
            "id": v.id,
            "alias": v.alias,
            "via": list(v.via),
        }
        for v in spec.driver.variants
    }
    return json.dumps(
        {"version": spec.driver.version, "counts": counts(spec.driver.variants), "functions": functions},
        indent=1,
    )


def as_text(spec: Spec) -> str:
    lines = [f"{'group':<18}{'carried':>8}{'of':>6}"]
    for name, functions in groups(spec).items():
        variants = [v for f in functions for v in f.variants]
        carried = sum(v.klass is not Class.UNSUPPORTED for v in variants)
        lines.append(f"{name:<18}{carried:>8}{len(variants):>6}")
    total = counts(spec.driver.variants)
    lines.append(", ".join(f"{n} {klass}" for klass, n in total.items()))
    return "\n".join(lines)
