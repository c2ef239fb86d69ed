"""Accesses of lanes that follow each other by tid.x (warp/lines.py), and of such as only seem to do so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import paths


@pytest.mark.system
@pytest.mark.parametrize("check", ["0", "1"])
def test_lines(check: str, tmp_path: Path) -> None:
    """In optimised code, the only one that has them: each kernel of line_cases.py does what it says."""
    settings = {"GPUFERRY_SIM_TIER": "optimised", "GPUFERRY_SIM_CHECK": check}
    done = subprocess.run(
        [sys.executable, "-m", "tests.ptx.line_cases"],
        env=os.environ | settings | {"GPUFERRY_SIM_CACHE": str(tmp_path)},
        cwd=paths.ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=600,
    )
    assert json.loads(done.stdout) == []
