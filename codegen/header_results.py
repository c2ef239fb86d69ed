"""Compares specs/cuda/results.yaml with CUresult in cuda.h, and with what its comments say of contexts."""

from __future__ import annotations

import re
from pathlib import Path

from .header import Header, problem
from .model import Destroys, Spec, Where

TYPE = "CUresult"
COMMENTED = re.compile(r"/\*\*(?P<text>(?:[^*]|\*(?!/))*)\*/\s*(?P<name>\w+)\s*=")
ENDS = re.compile(r"must be terminated and relaunched|context cannot be used anymore")


def destroying(include: Path) -> set[str]:
    """Enumerators of CUresult after which, by the comment in front of them, nothing works any more."""
    text = (include / "cuda.h").read_text(encoding="utf-8", errors="replace")
    found = set()
    for match in COMMENTED.finditer(text):
        words = " ".join(word for word in match["text"].split() if word != "*")
        if ENDS.search(words):
            found.add(match["name"])
    return found


def check_results(header: Header, spec: Spec) -> list[str]:
    problems = []
    there = [name for name, owner in header.enumerators.items() if owner == TYPE]
    listed = {result.name for result in spec.results}
    ends = destroying(header.include)
    for result in spec.results:
        if result.name not in there:
            problems.append(problem(result.where, f"{result.name} is no {TYPE}", "Spell it as cuda.h does"))
        elif result.name in ends and result.destroys is not Destroys.HEADER:
            cause = f"{result.name}: cuda.h says that its context cannot go on"
            problems.append(problem(result.where, cause, "Add 'destroys: header'"))
        elif result.name not in ends and result.destroys is Destroys.HEADER:
            cause = f"{result.name}: cuda.h does not say that it ends its context"
            problems.append(problem(result.where, cause, "Write 'destroys: practice', or leave it out"))
    for name in there:
        if name not in listed:
            last = spec.results[-1].where if spec.results else Where("specs/cuda/results.yaml", 1)
            problems.append(problem(last, f"cuda.h has {name}, which is not listed", "Add it, with its text"))
    return problems
