"""Which operations a build speaks, with their digests; those of each release; what each function goes by."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from .. import frames
from ..model import By, Spec
from ..released import FOLDER, Release, current, load
from ..render import render

PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"


def package_version() -> str:
    """The version in pyproject.toml."""
    found = re.search(r'^version = "(.*)"$', PROJECT.read_text(encoding="utf-8"), re.MULTILINE)
    if not found:
        raise LookupError(f"{PROJECT}: no version")
    return found[1]


def text_of(name: str, release: Release) -> str:
    """How messages name a build: its version and the start of its spec hash."""
    return f"gpuferry {name} ({release.spec_hash.hex()[:8]})"


def build_of(release: Release) -> int:
    """What GREETING tells of the spec hash: 16 bits, never 0, which is what the first release said."""
    return int.from_bytes(release.spec_hash[:2], "little") or 1


def needs(spec: Spec) -> list[tuple[str, int]]:
    """Pairs of a function of the guest and an operation without which it cannot do its work."""
    ids = {variant.symbol: variant.id for variant in spec.operations}
    return [
        (variant.symbol, number)
        for variant in spec.driver.variants
        if variant.alias is None and variant.guest is not By.NONE
        for number in (
            [variant.id]
            if variant.symbol in ids
            else [ids[symbol] for symbol in variant.via if symbol in ids]
        )
    ]


def outputs(spec: Spec) -> dict[str, str]:
    releases, spoken = load(), current(spec, frames.load())
    names = {release.spec_hash: release.name for release in releases}
    values: dict[str, Any] = {
        "first": releases[0],
        "spoken": spoken,
        "last": max(variant.id for variant in spec.operations),
        "build": build_of(spoken),
        "version": text_of(names.get(spoken.spec_hash, package_version()), spoken),
    }
    sources = f"{', '.join(library.file for library in spec.libraries)} and specs/{FOLDER}"
    return {
        "native/_generated/gpuferry/operations.h": render(
            "shared_operations.h.j2", __file__, sources, text_of=text_of, **values
        ),
        "specs/_generated/operations.py": render(
            "shared_operations.py.j2",
            __file__,
            sources,
            ("# ", ""),
            releases=releases,
            restore=[variant.id for variant in spec.operations if variant.restore],
            text_of=text_of,
            **values,
        ),
        "guest/_generated/needs.c": render(
            "guest_needs.c.j2",
            __file__,
            spec.driver.file,
            needs=needs(spec),
            functions=len([variant for variant in spec.driver.variants if variant.alias is None]),
        ),
    }
