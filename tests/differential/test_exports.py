"""Every name that cuda.h declares, each ABI version of it, is a real export of both driver libraries."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.helpers.paths import GUEST_LIBRARY, SIM_LIBRARY
from tests.helpers.toolkits import toolkit


def declared() -> set[str]:
    """All prototypes of cuda.h as the compiler sees them, older and per-thread variants included."""
    command = ["gcc", "-E", "-P", "-D__CUDA_API_VERSION_INTERNAL", str(toolkit().include / "cuda.h")]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"\bCUresult\s+(cu[A-Z]\w*)\s*\(", text))


def exported(library: Path) -> set[str]:
    command = ["nm", "-D", "--defined-only", "--format=just-symbols", str(library)]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize("library", [GUEST_LIBRARY, SIM_LIBRARY], ids=["guest", "simulated"])
def test_every_declared_function_is_exported(library: Path) -> None:
    names = declared()
    assert len(names) > 600
    assert sorted(names - exported(library)) == []
