"""Sessions whose kernels do not run (GPUFERRY_SIM_CODE=skip): machine code is carried as to a GPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.helpers.paths import ROOT
from tests.monitor import harness

PROGRAM = ROOT / "tests" / "simdevice" / "programs" / "skipped.py"


@pytest.fixture(scope="module")
def monitor() -> Iterator[harness.Monitor]:
    with harness.monitor("--pool", "1", server=None, GPUFERRY_SIM_CODE="skip") as running:
        running.wait_idle(1)
        yield running


@pytest.mark.some(1)
@pytest.mark.parametrize("form", ["cubin", "fatbin", "library"])
def test_a_program(monitor: harness.Monitor, form: str) -> None:
    """Each session is told that nothing runs, of whatever process it had before."""
    done = monitor.run("run", "--", sys.executable, str(PROGRAM), "libcuda.so.1", form)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
    assert done.stderr.count("no kernel runs") == 1, done.stderr


def test_it_must_be_asked_for() -> None:
    with harness.monitor("--pool", "1", server=None, GPUFERRY_SIM_CODE=None) as running:
        done = running.run("run", "--", sys.executable, str(PROGRAM), "libcuda.so.1", "refused")
        assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
