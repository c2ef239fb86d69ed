"""Many threads at once, in C: in Python the interpreter's lock would keep them apart."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.helpers import toolchain
from tests.helpers.paths import SIM_LIBRARY
from tests.helpers.running import run

STEPS = 100


@pytest.mark.sanitize
def test_everything_at_once() -> None:
    program = toolchain.program(Path(__file__).with_name("programs") / "stress.c", ["-pthread"])
    # a sanitizer's runtime insists on being the first library
    libraries = [os.environ.get("GPUFERRY_SANITIZER_RUNTIME", ""), str(SIM_LIBRARY)]
    done = run([program, str(STEPS)], {**os.environ, "LD_PRELOAD": ":".join(filter(None, libraries))})
    assert (done.status, done.stdout) == (0, f"called {8 * STEPS}, leaked 0\n"), done.stderr
