"""Random structured programs give what their statements say: branches and loops that part lanes, what lanes
of a mask tell each other, barriers, counters, matrices, functions that wait.

`python -m tests.ptx.test_structured --first 0 --count 100000` runs as many as one likes, and names those that
differ; GPUFERRY_SIM_UNIT=warp or thread chooses the form.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import os
import sys
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from . import driver
from .evaluated import evaluate
from .form import HANDLES, INPUTS, WORLD
from .form_images import handles
from .form_memory import WORLD_BYTES
from .forms import BY_KIND, FORMS
from .structured import ATOMICS, REGISTERS, Apart, Formed, Program, Repeat, Statement, make
from .structured_ptx import CODE, parts, ptx
from .textures import AS_INTEGER, Array, Texture

INPUT = np.random.default_rng(7).integers(0, 1 << 32, INPUTS, dtype=np.uint32)


@functools.cache
def texture() -> Texture:
    array = Array(INPUT.reshape(1, 8, 8, 1), 2)
    made = Texture(array, flags=AS_INTEGER)
    array.keep = made.keep = True  # to the end of the process
    return made


def formed(
    statements: Sequence[Statement], inside: tuple[type, ...] = ()
) -> Iterator[tuple[str, tuple[type, ...]]]:
    """The kinds of the forms in a body, and in which statements each is."""
    for each in statements:
        if isinstance(each, Formed):
            yield next(kind for kind, forms in BY_KIND.items() if FORMS[each.form] in forms), inside
        for part in parts(each):
            yield from formed(part, (*inside, type(each)))


def computed(program: Program, text: str = "") -> np.ndarray:
    size = program.blocks * program.threads
    assert INPUT.nbytes == WORLD
    assert HANDLES == WORLD + 8
    world = driver.Buffer(np.zeros(WORLD_BYTES, np.uint8))
    behind = np.concatenate([np.array([world.address.value], np.uint64), handles()])
    inputs = driver.Buffer(np.concatenate([INPUT, behind.view(np.uint32)]))
    out = driver.Buffer(np.zeros((size, REGISTERS), np.uint32))
    module = driver.Module(text or ptx(program))
    grid = (program.blocks,)
    module.launch("k", inputs, texture().value, out, grid=grid, block=program.shape)
    driver.call("cuModuleUnload", module._handle)
    return out.read()


def difference(seed: int) -> str:
    """Where a program gives something else than it says; empty if nowhere."""
    program = make(seed)
    expected = evaluate(program, INPUT)
    try:
        got = computed(program)
    except driver.CudaError as error:
        return f"program {seed}: {error}"
    wrong = np.argwhere(got != expected)
    if len(wrong) == 0:
        return ""
    thread, register = wrong[0]
    return (
        f"program {seed}: {len(wrong)} differ, first %v{register} of thread {thread}: "
        f"{got[thread, register]:#x}, not {expected[thread, register]:#x}"
    )


@pytest.mark.some(1)
@pytest.mark.parametrize("first", range(0, 30, 10))
def test_programs(first: int) -> None:
    assert [found for seed in range(first, first + 10) if (found := difference(seed))] == []


@pytest.mark.parametrize("seed", [1494, 213015])
def test_programs_that_were_refused(seed: int) -> None:
    """A part of a register (`%a.b3`) in a block whose registers have others' names; a carry that LLVM's quick
    selection of instructions made of vectors.
    """
    assert not difference(seed)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("first", range(1000, 101_000, 250))
def test_many_programs(first: int) -> None:
    assert [found for seed in range(first, first + 250) if (found := difference(seed))] == []


def test_programs_have_all_there_is() -> None:
    """Each operation and each kind of statement is in the first hundred, nested in branches as well."""
    texts = [ptx(make(seed)) for seed in range(100)]
    whole = "\n".join(texts)
    for name, code in CODE.items():
        assert code.rsplit("{d}", 1)[0].rsplit(";", 1)[-1].strip().split()[0] in whole, name
    words = (
        "bar.sync",
        "mma.sync",
        "red.shared",
        "call (r)",
        "st.local",
        "tex.2d",
        "shfl.sync.idx",
        "shfl.sync.bfly",
        "brx.idx",
        "exit;",
        "bra RETURN;",
        "ld.global.v2",
        "ld.global.v4",
        *(f"atom.shared.{each}" for each in ATOMICS),
    )
    for word in (*words, "shfl.sync.up", "match.any", "vote.sync.any", "redux.sync.xor", ", %m2;"):
        assert word in whole, word
    assert any("%m3;" in text for text in texts)
    assert {kind for seed in range(100) for kind, _ in formed(make(seed).body)} == set(BY_KIND)


def test_matrices_are_multiplied_in_loops_and_by_warps_apart() -> None:
    seen = {inside for seed in range(300) for kind, inside in formed(make(seed).body) if kind == "matrices"}
    assert {(), (Repeat,), (Apart,)} <= seen


def test_one_wrong_instruction_is_seen() -> None:
    """Were the lanes' minimum their maximum, or a branch the other way round, most programs would tell."""
    seen = 0
    for seed in range(20):
        program = make(seed)
        text = ptx(program)
        wrong = text.replace("@!%p0 bra", "@%p0 bra").replace("redux.sync.min", "redux.sync.max")
        if wrong != text and "vote" not in text:
            seen += bool((computed(program, wrong) != evaluate(program, INPUT)).any())
    assert seen >= 2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    asked = parser.parse_args()
    wrong = 0
    for done, seed in enumerate(itertools.islice(itertools.count(asked.first), asked.count), 1):
        if found := difference(seed):
            wrong += 1
            print(found, flush=True)
        if done % 100 == 0:
            print(
                f"{done} programs, {wrong} differ ({os.environ.get('GPUFERRY_SIM_UNIT', 'any')})", flush=True
            )
    return int(wrong != 0)


if __name__ == "__main__":
    sys.exit(main())
