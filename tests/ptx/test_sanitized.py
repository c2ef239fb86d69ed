"""The engine's own code under a sanitizer: what moves stacks and threads, with its runtime preloaded."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.helpers import paths

FILES = ("test_barriers", "test_warp", "test_control", "test_faults", "test_fatbin")


@pytest.mark.sanitize
def test_engine() -> None:
    runtime = os.environ.get("GPUFERRY_SANITIZER_RUNTIME")
    if runtime is None:
        pytest.skip("not a sanitizer run")
    files = [str(paths.ROOT / "tests" / "ptx" / f"{name}.py") for name in FILES]
    # faulthandler and the tests of foreign fault handlers have their own idea of SIGSEGV.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:faulthandler", "-p", "no:cacheprovider", "-n0"]
    command += ["-k", "not nvcc and not programs_own and not damaged", *files]
    settings = os.environ | {"LD_PRELOAD": runtime}
    result = subprocess.run(
        command, env=settings, cwd=paths.ROOT, capture_output=True, text=True, timeout=280, check=False
    )
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-4000:]
