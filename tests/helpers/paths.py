"""Where things lie in a checkout: sources, built libraries, the virtual environment."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("GPUFERRY_BUILD", ROOT / "build"))
PROGRAMS = ROOT / "tests" / "programs"

SIM_LIBRARY = BUILD / "native" / "sim" / "libcuda.so.1"
SKIP_LIBRARY = BUILD / "native" / "sim-skip" / "libcuda.so.1"
GUEST_LIBRARY = BUILD / "native" / "guest" / "libcuda.so.1"

GPUFERRY = Path(sys.executable).with_name("gpuferry")
