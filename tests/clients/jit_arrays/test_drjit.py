"""Dr.Jit: arrays whose kernels it writes as PTX while the program runs."""

from __future__ import annotations

import drjit as dr
import numpy as np
from drjit.cuda import PCG32, Array3f, Float, UInt32
from drjit.cuda.ad import Float as Traced


def test_arithmetic_and_reductions() -> None:
    x = dr.arange(Float, 1000)
    assert np.allclose(
        dr.sum(dr.sin(x) * dr.cos(x) + 2), np.sum(np.sin(np.arange(1000)) * np.cos(np.arange(1000)) + 2), 1e-4
    )
    assert dr.max(x)[0] == 999
    assert dr.min(x)[0] == 0
    assert dr.prefix_sum(UInt32(1, 2, 3, 4)).numpy().tolist() == [0, 1, 3, 6]


def test_scatter_with_addition() -> None:
    index, total = dr.arange(UInt32, 100), dr.zeros(Float, 10)
    dr.scatter_reduce(dr.ReduceOp.Add, total, Float(index), index % 10)
    assert total.numpy().tolist() == [450 + 10 * i for i in range(10)]


def test_gather_and_compress() -> None:
    values = dr.arange(UInt32, 10)
    assert dr.compress(values % 3 == 0).numpy().tolist() == [0, 3, 6, 9]
    assert dr.gather(UInt32, values, UInt32(9, 0, 5)).numpy().tolist() == [9, 0, 5]


@dr.syntax  # type: ignore[untyped-decorator]
def halves_below(n: UInt32) -> Float:
    i, total = UInt32(0), Float(0)
    while i < n:
        total += Float(i) * 0.5
        i += 1
    return total


def test_a_loop_that_each_lane_leaves_by_itself() -> None:
    assert halves_below(dr.arange(UInt32, 8)).numpy().tolist() == [n * (n - 1) / 4 for n in range(8)]


def test_gradients() -> None:
    z = Traced(1, 2, 3)
    dr.enable_grad(z)
    dr.backward(dr.sum(z * z * z))
    assert z.grad.numpy().tolist() == [3, 12, 27]


def test_random_numbers_are_the_generators_own() -> None:
    first, again = PCG32(size=1000), PCG32(size=1000)
    numbers = first.next_float32()
    assert np.array_equal(numbers.numpy(), again.next_float32().numpy())
    assert 0.4 < dr.mean(numbers)[0] < 0.6


def test_vectors() -> None:
    v = Array3f(dr.arange(Float, 4), 1, 2)
    assert np.allclose(dr.norm(v).numpy(), np.sqrt(np.arange(4) ** 2 + 5))
