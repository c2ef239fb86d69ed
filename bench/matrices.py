"""Tensor instructions on the simulated device beside C, and the first launch of a large kernel."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.helpers.paths import ROOT

from .rows import Row, cost

WORKLOADS = ROOT / "bench" / "workloads" / "matrices"


def rows() -> list[Row]:
    """A row for each product, and one for the launch."""
    return [*_products(), _first_launch()]


def _measured(script: str, *arguments: str, **settings: str) -> dict[str, list[float]]:
    """What a workload prints: a line of a name and numbers for each measurement."""
    said = subprocess.run(
        [sys.executable, str(WORKLOADS / script), *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | settings,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    return {name: [*map(float, numbers)] for name, *numbers in map(str.split, said.splitlines())}


def _products() -> list[Row]:
    twin = ROOT / "build" / "bench" / "matrices_twin.so"
    twin.parent.mkdir(parents=True, exist_ok=True)
    command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(twin), str(WORKLOADS / "twin.c")]
    subprocess.run(command, check=True)
    seconds = _measured("measure.py", str(twin), GPUFERRY_SIM_TIER="optimised")
    found = {name: (own * 1e3, floor * 1e3) for name, (own, floor) in seconds.items()}
    return [
        cost("mma_f16", *found["mma_f16"], "ms"),
        cost("mma_bf16", *found["mma_bf16"], "ms"),
        cost("mma_tf32", *found["mma_tf32"], "ms"),
        cost("mma_s8", *found["mma_s8"], "ms"),
        cost("wmma_f16", *found["wmma_f16"], "ms"),
        cost("wmma_bf16", *found["wmma_bf16"], "ms"),
        cost("wmma_tf32", *found["wmma_tf32"], "ms"),
        cost("wmma_s8", *found["wmma_s8"], "ms"),
    ]


def _first_launch() -> Row:
    """With an empty cache, beside the same with what that left there."""
    with tempfile.TemporaryDirectory() as folder:
        cache = {"GPUFERRY_SIM_CACHE": str(Path(folder))}
        first, second = (_measured("first.py", **cache)["launch"][0] for _ in range(2))
    return cost("first_launch", first * 1e3, second * 1e3, "ms")
