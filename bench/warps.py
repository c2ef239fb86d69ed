"""Kernels whose threads need each other on the simulated device, beside the same in plain C on one thread."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.helpers import toolchain
from tests.helpers.paths import ROOT

from .rows import Row, cost

WORKLOAD = ROOT / "bench" / "workloads" / "warps"


def rows() -> list[Row]:
    """A row for each kernel of the workload. Those with a twin have one core, as that has: two cores of a
    virtual machine may be halves of one, and then what each does takes nearly twice as long.
    """
    image = toolchain.ptx(WORKLOAD / "kernels.cu")
    twin = ROOT / "build" / "bench" / "warps_twin.so"
    twin.parent.mkdir(parents=True, exist_ok=True)
    command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(twin), str(WORKLOAD / "twin.c"), "-lm"]
    subprocess.run(command, check=True)
    alone = _milliseconds(image, twin, {"GPUFERRY_SIM_THREADS": "1"})
    together = _milliseconds(image, twin, {})
    return [
        cost("warps_reduce", *alone["reduce"], "ms"),
        cost("warps_scan", *alone["scan"], "ms"),
        cost("warps_matmul", *alone["matmul"], "ms"),
        cost("warps_stencil", *alone["stencil"], "ms"),
        cost("warps_kmeans", *alone["kmeans"], "ms"),
        cost("warps_grid_sync", *together["grid_sync"], "ms"),
        cost("warps_grid_sync_many", *together["grid_sync_many"], "ms"),
    ]


def _milliseconds(image: Path, twin: Path, environment: dict[str, str]) -> dict[str, tuple[float, float]]:
    """Milliseconds of each kernel of the image and of its twin or other floor, by name."""
    said = subprocess.run(
        [sys.executable, str(WORKLOAD / "measure.py"), str(image), str(twin)],
        env=os.environ | {"PYTHONPATH": str(ROOT), "GPUFERRY_SIM_TIER": "optimised"} | environment,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    lines = map(str.split, said.splitlines())
    return {name: (float(own) * 1e3, float(floor) * 1e3) for name, own, floor in lines}
