"""Halide: schedules of loops on the device, compiled to PTX by its own LLVM."""

from __future__ import annotations

import halide as hl
import numpy as np

TARGET = hl.get_jit_target_from_environment().with_feature(hl.TargetFeature.CUDA)


def fetched(found: hl.Buffer) -> np.ndarray:
    found.copy_to_host()
    return np.array(found)


def test_tiles() -> None:
    x, y, xi, yi = (hl.Var(name) for name in ("x", "y", "xi", "yi"))
    f = hl.Func("f")
    f[x, y] = hl.cast(hl.Float(32), x) * 2 + hl.sin(hl.cast(hl.Float(32), y))
    f.gpu_tile(x, y, xi, yi, 16, 16)
    rows, columns = np.mgrid[0:64, 0:64]
    assert np.allclose(fetched(f.realize([64, 64], TARGET)).T, (columns * 2 + np.sin(rows)).T, atol=1e-5)


def test_a_blur_through_shared_memory() -> None:
    x, y, xi, yi = (hl.Var(name) for name in ("x", "y", "xi", "yi"))
    source, across, down = hl.Func("source"), hl.Func("across"), hl.Func("down")
    source[x, y] = hl.cast(hl.Int(32), x * 3 + y * 5)
    across[x, y] = source[x - 1, y] + source[x, y] + source[x + 1, y]
    down[x, y] = across[x, y - 1] + across[x, y] + across[x, y + 1]
    down.gpu_tile(x, y, xi, yi, 8, 8)
    across.compute_at(down, x).gpu_threads(x, y)
    rows, columns = np.mgrid[0:32, 0:32]
    assert np.array_equal(fetched(down.realize([32, 32], TARGET)), 9 * (columns * 3 + rows * 5))


def test_a_histogram_by_atomics() -> None:
    x = hl.Var("x")
    counts, domain = hl.Func("counts"), hl.RDom([(0, 4096)])
    counts[x] = 0
    counts[domain.x % 16] += 1
    counts.compute_root().gpu_tile(x, hl.Var("xi"), 16)
    counts.update().atomic().gpu_tile(domain.x, hl.RVar("ri"), 64)
    assert fetched(counts.realize([16], TARGET)).tolist() == [256] * 16
