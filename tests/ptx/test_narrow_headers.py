"""What CUDA's headers compute of small floats on the host, in C++, and in kernels, by instructions."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.helpers import toolchain
from tests.helpers.toolkits import toolkit

from . import driver
from .ptx import ANY_TARGET, SIZE

CONVERSIONS = """
#include <cstdio>
#include <cuda_fp4.h>
#include <cuda_fp6.h>
#include <cuda_fp8.h>
#define EACH(X) \\
    X(0, __nv_cvt_float2_to_fp4x2(v, __NV_E2M1, cudaRoundNearest)) \\
    X(1, __nv_cvt_float2_to_fp6x2(v, __NV_E3M2, cudaRoundNearest)) \\
    X(2, __nv_cvt_float2_to_fp6x2(v, __NV_E2M3, cudaRoundNearest)) \\
    X(3, __nv_cvt_float2_to_fp8x2(v, __NV_SATFINITE, __NV_E4M3)) \\
    X(4, __nv_cvt_float2_to_fp8x2(v, __NV_SATFINITE, __NV_E5M2)) \\
    X(5, __nv_cvt_float2_to_e8m0x2(v, __NV_SATFINITE, cudaRoundPosInf)) \\
    X(6, __nv_cvt_float2_to_e8m0x2(v, __NV_NOSAT, cudaRoundZero)) \\
    X(7, __nv_cvt_fp4x2_to_halfraw2(out[0], __NV_E2M1).y) \\
    X(8, __nv_cvt_fp6x2_to_halfraw2(out[1], __NV_E3M2).x) \\
    X(9, __nv_cvt_e8m0x2_to_bf162raw(out[5]).x)
#define ONE(i, value) out[i] = value;
"""
KERNEL = """
extern "C" __global__ void convert(const float2 *in, unsigned *all) {
    float2 v = in[threadIdx.x];
    unsigned *out = all + 10 * threadIdx.x;
    EACH(ONE)
}
"""
HOST = """
int main() {
    float2 v;
    unsigned out[10];
    while (fread(&v, sizeof v, 1, stdin) == 1) {
        EACH(ONE)
        fwrite(out, sizeof out, 1, stdout);
    }
}
"""
COUNT = 1024


@pytest.mark.system
def test_kernels_and_the_host_agree(tmp_path: Path) -> None:
    kit, compiler = toolkit(), shutil.which("g++")
    if kit.nvcc is None or compiler is None:
        pytest.skip("no nvcc, or no g++")
    (tmp_path / "small.cu").write_text(CONVERSIONS + KERNEL)
    (tmp_path / "small.cpp").write_text(CONVERSIONS + HOST)
    command = [compiler, f"-I{kit.include}", "-o", "small", "small.cpp"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=300)
    # The instructions are of a newer GPU; the simulated device has them if the text does not name it.
    text = toolchain.ptx(tmp_path / "small.cu", "compute_120f").read_text()
    assert "cvt.rn.satfinite.e2m1x2.f32" in text
    rng = np.random.default_rng(1)
    values = rng.integers(0, 1 << 32, (COUNT, 2), dtype=np.uint32).view(np.float32)
    values[::2] = rng.standard_normal((COUNT // 2, 2)) * 4
    values[1::4] = rng.integers(-64, 64, (COUNT // 4, 2)) / 8  # halfway between two numbers, some of them
    given = np.ascontiguousarray(values)
    host = subprocess.run(
        [tmp_path / "small"], input=given.tobytes(), capture_output=True, check=True, timeout=60
    )
    out = driver.Buffer(np.zeros((COUNT, 10), np.uint32))
    module = driver.Module(text.replace("sm_120f", "sm_80").replace(SIZE, SIZE + ANY_TARGET))
    module.launch("convert", driver.Buffer(given), out, block=(COUNT,))
    assert (out.read() == np.frombuffer(host.stdout, np.uint32).reshape(COUNT, 10)).all()
