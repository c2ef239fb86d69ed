"""tinygrad: tensors whose kernels it writes as PTX, and gives the driver through ctypes."""

from __future__ import annotations

import numpy as np
from tinygrad import Device, Tensor, TinyJit, dtypes

RNG = np.random.default_rng(5)


def test_it_writes_ptx() -> None:
    assert Device.DEFAULT == "CUDA"


def test_a_matrix_product_and_what_follows_it() -> None:
    a, b = (RNG.random((64, 64), dtype=np.float32) - 0.5 for _ in range(2))
    found = (Tensor(a) @ Tensor(b)).relu().sum(axis=1).numpy()
    assert np.allclose(found, np.maximum(a @ b, 0).sum(axis=1), 1e-4)


def test_a_convolution_and_its_gradient() -> None:
    x, w = RNG.random((2, 3, 8, 8), dtype=np.float32), RNG.random((4, 3, 3, 3), dtype=np.float32)
    weights = Tensor(w)
    gradient = Tensor(x).conv2d(weights).sum().gradient(weights)[0].numpy()
    expected = np.array(
        [[[x[:, c, i : i + 6, j : j + 6].sum() for j in range(3)] for i in range(3)] for c in range(3)]
    )
    assert np.allclose(gradient, np.broadcast_to(expected, w.shape), 1e-4)


def test_sorting_and_prefix_sums() -> None:
    values = RNG.random(1000, dtype=np.float32)
    assert np.array_equal(Tensor(values).sort()[0].numpy(), np.sort(values))
    assert np.allclose(Tensor(values).cumsum().numpy(), np.cumsum(values), 1e-4)


def test_kernels_that_are_kept() -> None:
    @TinyJit  # type: ignore[untyped-decorator]
    def step(x: Tensor) -> Tensor:
        return (x * 2 + 1).realize()

    for i in range(5):
        assert step(Tensor(np.full(100, i, np.float32)).realize()).numpy()[-1] == 2 * i + 1


def test_types() -> None:
    assert (Tensor([1, 2, 3], dtype=dtypes.half) * 2).numpy().tolist() == [2, 4, 6]
    assert (Tensor([250, 6], dtype=dtypes.uint8) + 10).numpy().tolist() == [4, 16]
    assert (Tensor([1 << 40], dtype=dtypes.int64) * 3).numpy().tolist() == [3 << 40]
