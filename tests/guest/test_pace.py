"""How often memory is exchanged that a program and a kernel talk by."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from codegen.header import compiler
from tests.helpers.paths import ROOT

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def paced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("pace") / "pace"
    sources = [str(HERE / "pace.c"), *(f"{ROOT}/guest/src/{name}.c" for name in ("exchange", "thread"))]
    command = [
        compiler(),
        f"-I{ROOT}/guest/src",
        f"-I{ROOT}/guest/front",
        "-Wall",
        "-Wextra",
        "-Werror",
        *sources,
        "-lpthread",
        "-o",
        str(program),
    ]
    subprocess.run(command, check=True)
    return program


@pytest.mark.parametrize(("seconds", "rest"), [(0, 0), (30, 1000)])
def test_an_exchange_that_took_long_is_not_followed_by_a_longer_silence(
    paced: Path, seconds: int, rest: int
) -> None:
    """After 30 s without a network a kernel and its program heard nothing of each other for four minutes."""
    done = subprocess.run([paced, str(seconds)], capture_output=True, text=True, check=True, timeout=100)
    before, after, _ = (int(line) for line in done.stdout.split())
    assert before == 0
    assert after == max(rest, 1)
