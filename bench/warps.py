"""Kernels whose threads need each other on the simulated device, beside the same in plain C on one thread."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.helpers import toolchain
from tests.helpers.paths import ROOT

from .rows import Row, cost

WORKLOAD = ROOT / "bench" / "workloads" / "warps"


def rows() -> list[Row]:
    """A row for each kernel of the workload."""
    image = toolchain.ptx(WORKLOAD / "kernels.cu")
    twin = ROOT / "build" / "bench" / "warps_twin.so"
    twin.parent.mkdir(parents=True, exist_ok=True)
    command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(twin), str(WORKLOAD / "twin.c"), "-lm"]
    subprocess.run(command, check=True)
    said = subprocess.run(
        [sys.executable, str(WORKLOAD / "measure.py"), str(image), str(twin)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    found = []
    for line in said.splitlines():
        name, seconds, floor = line.split()
        found.append(cost(f"warps_{name}", float(seconds) * 1e3, float(floor) * 1e3, "ms"))
    return found
