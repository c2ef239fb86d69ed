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
        env=os.environ | {"PYTHONPATH": str(ROOT), "GPUFERRY_SIM_TIER": "optimised"},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    lines = map(str.split, said.splitlines())
    seconds = {name: (float(own) * 1e3, float(floor) * 1e3) for name, own, floor in lines}
    return [
        cost("warps_reduce", *seconds["reduce"], "ms"),
        cost("warps_scan", *seconds["scan"], "ms"),
        cost("warps_matmul", *seconds["matmul"], "ms"),
        cost("warps_stencil", *seconds["stencil"], "ms"),
        cost("warps_kmeans", *seconds["kmeans"], "ms"),
        cost("warps_grid_sync", *seconds["grid_sync"], "ms"),
        cost("warps_grid_sync_many", *seconds["grid_sync_many"], "ms"),
    ]
