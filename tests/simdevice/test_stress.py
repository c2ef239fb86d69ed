"""Many threads at once, in C: in Python the interpreter's lock would keep them apart."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.helpers import toolchain
from tests.helpers.paths import SIM_LIBRARY
from tests.helpers.running import run

STEPS = 100
SANITIZER = os.environ.get("GPUFERRY_SANITIZER_RUNTIME", "")
FOLDER = Path(__file__).parent


@pytest.mark.sanitize
def test_everything_at_once() -> None:
    program = toolchain.program(FOLDER / "programs" / "stress.c", ["-pthread"])
    # a sanitizer's runtime insists on being the first library
    preload = ":".join(filter(None, [SANITIZER, str(SIM_LIBRARY)]))
    done = run([program, str(STEPS)], {**os.environ, "LD_PRELOAD": preload})
    assert (done.status, done.stdout) == (0, f"called {8 * STEPS}, leaked 0\n"), done.stderr


@pytest.mark.sanitize
@pytest.mark.skipif(not SANITIZER, reason="needs a sanitizer build (make test-sanitize)")
def test_the_other_tests_under_a_sanitizer() -> None:
    """In a process of their own, which has the sanitizer from its start."""
    areas = ["context", "copies", "device", "graphs", "link", "memory", "modules", "pools", "shareable"]
    areas += ["streams", "vmm"]
    files = [str(FOLDER / f"test_{area}.py") for area in areas]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *files]
    done = run(command, {**os.environ, "LD_PRELOAD": SANITIZER}, timeout=250)
    assert done.status == 0, done.stdout + done.stderr
