"""Where things lie in a checkout: sources, built libraries, commands."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
PROGRAMS = ROOT / "tests" / "programs"


def _library(variable: str, folder: str) -> Path:
    """The built libcuda.so.1 of this kind; sanitizer runs name another."""
    return Path(os.environ.get(variable) or BUILD / "native" / folder / "libcuda.so.1")


SIM_LIBRARY = _library("GPUFERRY_SIM_LIBRARY", "sim")
GUEST_LIBRARY = _library("GPUFERRY_GUEST_LIBRARY", "guest")
SKIP_LIBRARY = _library("GPUFERRY_SKIP_LIBRARY", "sim-skip")

GPUFERRY = Path(sys.executable).with_name("gpuferry")
