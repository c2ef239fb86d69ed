"""Each form (forms.py), on warps and a thread at a time; test_structured.py has them among others."""

from __future__ import annotations

import random

import numpy as np
import pytest

from .evaluated import evaluate
from .form import Form
from .forms import BY_KIND
from .structured import REGISTERS, Formed, Operation, Program, Statement
from .structured_ptx import ptx
from .test_structured import INPUT, computed

TOGETHER = 10  # forms in one program
SUM, FACTOR = 7, 3  # registers that no form writes; an odd number is in the other
# At the start, so that what follows runs a thread at a time: lanes wait for each other on both sides.
APART = """mov.u32 %v0, %tid.x; and.b32 %t0, %v0, 1; setp.ne.u32 %q, %t0, 0; @%q bra APART;
    bar.warp.sync 0x55555555; bra MET; APART: bar.warp.sync 0xaaaaaaaa; MET:"""


def program(forms: list[Form], seed: int) -> Program:
    """Each form once, and a sum of all that they give."""
    rng = random.Random(seed)
    body: list[Statement] = []
    for form in forms:
        d = tuple(rng.sample([each for each in range(REGISTERS) if each not in (SUM, FACTOR)], form.results))
        a = tuple(rng.randrange(REGISTERS) for _ in range(form.given))
        body.append(Formed(form.name, d, a, rng.getrandbits(32)))
        body += [Operation("mad", SUM, SUM, FACTOR, each, 0) for each in d]
    body.append(Formed("gathered", (0, 1), (2,), 0))
    return Program(2, 64, [], tuple(body))


def parts(*kinds: str) -> list[tuple[str, int]]:
    return [(kind, first) for kind in kinds for first in range(0, len(BY_KIND[kind]), TOGETHER)]


def check(kind: str, first: int, unit: str) -> None:
    made = program(BY_KIND[kind][first : first + TOGETHER], first)
    text = ptx(made)
    if unit == "thread":
        begin = "mov.u32 %v0, %tid.x; mov.u32 %v1, %ctaid.x;"
        assert begin in text
        text = text.replace(begin, f"{APART} {begin}")
    wrong = np.argwhere(computed(made, text) != evaluate(made, INPUT))
    assert wrong.tolist() == [], [each.form for each in made.body if isinstance(each, Formed)]


@pytest.mark.some(33)
@pytest.mark.parametrize("unit", ["warp", "thread"])
@pytest.mark.parametrize(("kind", "first"), parts("lanes", "memory", "matrices", "images"))
def test_form(kind: str, first: int, unit: str) -> None:
    check(kind, first, unit)


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["warp", "thread"])
@pytest.mark.parametrize(("kind", "first"), parts("scalars"))
def test_instruction(kind: str, first: int, unit: str) -> None:
    check(kind, first, unit)
