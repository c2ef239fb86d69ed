"""Compares the spec with the real cuda.h: signatures, versions, enumerators, types."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from .header import Header, Prototype, problem, read, resolve
from .header_results import check_results
from .header_types import check_types
from .model import PER_THREAD_SUFFIX, Kind, Spec, Variant, Where
from .signature import spell, usable


def plain(header: Header, types: tuple[str, ...]) -> list[str]:
    """Types without what tells cudaTypedefs.h from cuda.h: top-level const."""
    return [re.sub(r"^const (?!.*\*)", "", resolve(header, t)) for t in types]


def check_function(header: Header, variant: Variant) -> list[str]:
    found = header.functions.get(variant.symbol)
    if found is None:
        return [
            problem(
                variant.where,
                f"{variant.symbol} is not declared in cuda.h",
                "Remove the entry and add its id to 'retired'",
            )
        ]
    problems = []
    signature = variant.signature
    mine = Prototype(
        signature.returns,
        tuple(spell(p.ctype) for p in signature.params),
        tuple(p.name for p in signature.params),
    )
    if mine != replace(found, names=tuple(usable(name) for name in found.names)):
        theirs = ", ".join(f"{t} {n}" for t, n in zip(found.types, found.names, strict=True)) or "void"
        cause = f"{variant.symbol}: the signature is not cuda.h's"
        problems.append(
            problem(variant.where, cause, f"There it is {found.returns} {variant.symbol}({theirs})")
        )
    released = header.versions.get((variant.base, variant.since, False))
    if released is None or plain(header, released) != plain(header, found.types):
        known = sorted(v for base, v, twin in header.versions if base == variant.base and not twin)
        cause = f"{variant.symbol}: cudaTypedefs.h has no such interface since {variant.since}"
        problems.append(problem(variant.where, cause, f"Versions of {variant.base} there: {known}"))
    return problems + check_twin(header, variant, found)


def check_twin(header: Header, variant: Variant, found: Prototype) -> list[str]:
    declared = header.twins.get(variant.symbol, [])
    twin = variant.per_thread
    if ([twin.symbol] if twin else []) != declared:
        return [
            problem(
                variant.where,
                f"{variant.symbol}: its per-thread twins in cuda.h are {declared}",
                "Make 'per_thread' say so",
            )
        ]
    if twin is None:
        return []
    problems = []
    if header.functions[twin.symbol].types != found.types:
        problems.append(
            problem(
                variant.where, f"{twin.symbol} differs from {variant.symbol}", "A twin has the same signature"
            )
        )
    if (variant.base, twin.since, True) not in header.versions:
        known = sorted(v for base, v, per_thread in header.versions if base == variant.base and per_thread)
        problems.append(
            problem(variant.where, f"{twin.symbol} is not since {twin.since}", f"Versions there: {known}")
        )
    return problems


def check_enumerators(header: Header, spec: Spec) -> list[str]:
    problems = []
    for variant in spec.driver.variants:
        for arg in variant.args:
            for name in arg.allow:
                owner = header.enumerators.get(name)
                wanted = resolve(header, arg.param.ctype) if arg.kind is Kind.ENUM else None
                if arg.kind is Kind.FLAGS and name in header.macros:
                    continue
                if owner is None or wanted not in (None, resolve(header, owner)):
                    cause = f"{variant.symbol}({arg.name}): {name} is no enumerator of {wanted or 'cuda.h'}"
                    problems.append(problem(arg.where, cause, "Spell it as cuda.h does"))
    for override in spec.overrides:
        if header.enumerators.get(override.attribute) != "CUdevice_attribute":
            cause = f"{override.attribute} is no CUdevice_attribute"
            problems.append(problem(override.where, cause, "Spell it as cuda.h does"))
    return problems


def check(spec: Spec, include: Path) -> list[str]:
    """Messages about everything in which the spec and the header differ."""
    header = read(include)
    problems = []
    if header.version != spec.driver.version:
        cause = f"the spec is of cuda.h {spec.driver.version}, {include}/cuda.h is {header.version}"
        problems.append(
            problem(Where(spec.driver.file, 1), cause, "Bring the functions up to date, then 'version'")
        )
    known = {v.symbol for v in spec.driver.variants}
    for symbol in header.functions:
        if symbol not in known and PER_THREAD_SUFFIX.sub("", symbol) not in known:
            cause = f"cuda.h declares {symbol}, which is not listed"
            problems.append(
                problem(
                    Where(spec.driver.file, 1), cause, "Add it, unsupported, with the id of 'codegen next-id'"
                )
            )
    for variant in spec.driver.variants:
        problems += check_function(header, variant)
    return (
        problems + check_enumerators(header, spec) + check_types(header, spec) + check_results(header, spec)
    )
