"""cuda_fp16's functions of all halves: as near to the function as they are on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.helpers import toolchain

from . import driver

# By longdouble, so that the reference's own error does not count.
FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "hexp": np.exp,
    "hexp2": np.exp2,
    "hexp10": lambda x: np.power(np.longdouble(10), x),
    "hlog": np.log,
    "hlog2": np.log2,
    "hlog10": np.log10,
    "hsin": np.sin,
    "hcos": np.cos,
    "hsqrt": np.sqrt,
    "hrsqrt": lambda x: 1 / np.sqrt(x),
    "hrcp": lambda x: 1 / x,
}
SOURCE = """
#include <cuda_fp16.h>
#define KERNEL(name) extern "C" __global__ void k_##name(__half *to, const __half *of) { \\
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x; to[i] = name(of[i]); }
"""
MOST_ULPS = 0.501  # the header corrects what a GPU's approximations get wrong


@pytest.mark.system
def test_halves_are_rounded_right(tmp_path: Path) -> None:
    source = tmp_path / "functions.cu"
    source.write_text(SOURCE + "\n".join(f"KERNEL({name})" for name in FUNCTIONS) + "\n")
    module = driver.Module(toolchain.ptx(source, "compute_80").read_text())
    every = np.arange(1 << 16, dtype=np.uint16)
    with np.errstate(invalid="ignore"):
        x = every.view(np.float16).astype(np.longdouble)
    given = driver.Buffer(every)
    worst = {}
    for name, function in FUNCTIONS.items():
        out = driver.Buffer(np.zeros(1 << 16, np.uint16))
        module.launch(f"k_{name}", out, given, grid=(512,), block=(128,))
        got = out.read().view(np.float16)
        with np.errstate(all="ignore"):
            exact = function(x)
            rounded = exact.astype(np.float16)
            finite = np.isfinite(rounded) & np.isfinite(got)
            assert (np.isnan(got) == np.isnan(exact)).all(), name
            error = np.abs(got.astype(np.longdouble) - exact)[finite]
            spacing = np.spacing(np.abs(rounded[finite])).astype(np.longdouble)
            worst[name] = float((error / spacing).max())
    assert {name: ulps for name, ulps in worst.items() if ulps > MOST_ULPS} == {}
