"""What pyproject.toml asks for, and what the lock has."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.helpers.paths import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def project() -> dict[str, Any]:
    """The table [project]."""
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def of_extras() -> Iterator[Requirement]:
    """Every requirement of every extra, those of other extras of ours excepted."""
    for lines in project()["optional-dependencies"].values():
        for requirement in map(Requirement, lines):
            if requirement.name != "gpuferry":
                yield requirement


def applies(requirement: Requirement) -> bool:
    """Whether it is one for this Python."""
    return requirement.marker is None or requirement.marker.evaluate({"extra": ""})


def lowest() -> dict[str, str]:
    """For this Python, the oldest version of each package that an extra takes."""
    found: dict[str, str] = {}
    for requirement in filter(applies, of_extras()):
        (least,) = [part.version for part in requirement.specifier if part.operator == ">="]
        found[canonicalize_name(requirement.name)] = least
    return found


def locked() -> dict[str, list[Requirement]]:
    """The lines of .ci/lock.txt by package: each an exact version, several if Pythons differ."""
    found: dict[str, list[Requirement]] = {}
    for line in filter(None, (ROOT / ".ci/lock.txt").read_text().splitlines()):
        requirement = Requirement(line)
        found.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    return found
