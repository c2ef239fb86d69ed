"""Taichi: kernels in Python, compiled to PTX by its own LLVM."""

# mypy: allow-untyped-defs, allow-untyped-decorators, disable-error-code="valid-type"
# Taichi reads the annotations of its kernels itself, so they are neither postponed nor a type checker's.

import numpy as np
import pytest
import taichi as ti


@pytest.fixture(scope="module", autouse=True)
def _device() -> None:
    ti.init(arch=ti.cuda, offline_cache=False)
    assert ti.lang.impl.current_cfg().arch == ti.cuda


def test_fields_and_atomics() -> None:
    values, total = ti.field(ti.f32, (64, 64)), ti.field(ti.f32, ())

    @ti.kernel
    def fill():
        for i, j in values:
            values[i, j] = ti.sin(i * 0.1) + j

    @ti.kernel
    def add():
        for i, j in values:
            total[None] += values[i, j]

    fill()
    add()
    assert np.isclose(total[None], values.to_numpy().sum(dtype=np.float64), 1e-4)


def test_arrays_of_numpy() -> None:
    @ti.kernel
    def double(x: ti.types.ndarray(dtype=ti.f32, ndim=1)):  # type: ignore[no-untyped-def]
        for i in x:
            x[i] *= 2

    x = np.arange(1000, dtype=np.float32)
    double(x)
    assert np.array_equal(x, 2 * np.arange(1000, dtype=np.float32))


def test_structures_and_branches() -> None:
    n = 4096
    position, velocity = ti.Vector.field(2, ti.f32, n), ti.Vector.field(2, ti.f32, n)

    @ti.kernel
    def begin():
        for i in position:
            position[i] = ti.Vector([i / n, 0.5])
            velocity[i] = ti.Vector([0.25, -0.75])

    @ti.kernel
    def step(dt: ti.f32):  # type: ignore[no-untyped-def]
        for i in position:
            position[i] += velocity[i] * dt
            for d in ti.static(range(2)):
                if position[i][d] < 0 or position[i][d] > 1:
                    velocity[i][d] = -velocity[i][d]

    begin()
    for _ in range(8):
        step(0.125)
    assert np.allclose(position.to_numpy()[:, 0][: n // 2], np.arange(n // 2) / n + 0.25, atol=1e-5)
    assert np.all(velocity.to_numpy()[:, 1] == 0.75)


def test_printing(capfd: pytest.CaptureFixture[str]) -> None:
    @ti.kernel
    def say():
        print("the answer is", 42)

    say()
    ti.sync()
    assert "the answer is 42" in capfd.readouterr().out
