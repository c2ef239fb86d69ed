"""Clusters: their registers, their barrier, and what their blocks see of each other's shared memory.

As PTX ISA says it, in each form of execution and where addresses are checked. Every kernel of
cluster_cases.py runs on a device that has clusters, in a process of its own for each form.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile

import pytest

from tests.helpers import paths

from . import driver
from .cluster_cases import CASES, CHECKED
from .ptx import kernel

FORMS = {
    "as it is": {},
    "warps": {"GPUFERRY_SIM_UNIT": "warp"},
    "threads": {"GPUFERRY_SIM_UNIT": "thread"},
    "quick": {"GPUFERRY_SIM_TIER": "quick"},
    "checked": {"GPUFERRY_SIM_CHECK": "1"},
    "checked threads": {"GPUFERRY_SIM_CHECK": "1", "GPUFERRY_SIM_UNIT": "thread"},
}


@functools.cache
def outcomes(form: str) -> dict[str, list[int] | int]:
    """What each kernel left, by its name."""
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run(
            [sys.executable, "-m", "tests.ptx.cluster_cases"],
            env=os.environ | {"GPUFERRY_SIM_CC": "9.0", "GPUFERRY_SIM_CACHE": cache} | FORMS[form],
            cwd=paths.ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=1200,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, list[int] | int] = json.loads(done.stdout)
    return found


@pytest.mark.some(36)
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("form", FORMS)
def test_clusters(name: str, form: str) -> None:
    assert outcomes(form)[name] == CASES[name].expected


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", CHECKED)
@pytest.mark.parametrize(
    "form", [form for form, settings in FORMS.items() if "GPUFERRY_SIM_CHECK" in settings]
)
def test_nothing_else_is_in_reach(name: str, form: str) -> None:
    """Of the host's memory, by a generic address that was made of another block's."""
    assert outcomes(form)[name] == CHECKED[name].expected


def test_a_device_without_clusters_has_none() -> None:
    with pytest.raises(driver.CudaError) as refused:
        driver.Module(kernel("")).launch("k", 0, 0, grid=(2,), cluster=(2,))
    assert refused.value.status == driver.NOT_SUPPORTED
