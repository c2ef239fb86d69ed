"""JAX on a device that runs no kernel: every call is taken, and what is only copied is what it was."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src import hardware_utils

# JAX looks for the device files of NVIDIA's kernel module before it asks the driver.
hardware_utils.has_visible_nvidia_gpu = lambda: True
SIDE = 128


def square() -> jax.Array:
    return jnp.ones((SIDE, SIDE))


CASES: dict[str, Callable[[], object]] = {
    "random": lambda: jax.random.normal(jax.random.PRNGKey(0), (SIDE, SIDE)),
    "product": lambda: square() @ square(),
    "halves": lambda: jax.jit(lambda a: (a @ a).sum())(square().astype(jnp.bfloat16)),
    "convolution": lambda: jax.lax.conv(jnp.ones((4, 8, 32, 32)), jnp.ones((16, 8, 3, 3)), (1, 1), "SAME"),
    "fft": lambda: jnp.fft.fft(jnp.ones(1024)),
    "solve": lambda: jnp.linalg.solve(square() + jnp.eye(SIDE), square()[:, 0]),
    "qr": lambda: jnp.linalg.qr(square()),
    "svd": lambda: jnp.linalg.svd(square()),
    "eigh": lambda: jnp.linalg.eigh(square()),
    "cholesky": lambda: jnp.linalg.cholesky(square()),
    "sort": lambda: jnp.argsort(square().ravel()),
    "cumsum": lambda: jnp.cumsum(square(), axis=1),
    "scan": lambda: jax.lax.scan(lambda c, a: (c * 0.5 + a, c), jnp.zeros(SIDE), square()),
    "loop": lambda: jax.jit(lambda a: jax.lax.fori_loop(0, 5, lambda i, c: c + i, a))(square()),
    "branch": lambda: jax.jit(lambda a: jax.lax.cond(True, jnp.sin, jnp.cos, a))(square()),
    "gradient": lambda: jax.vmap(jax.grad(lambda a: jnp.tanh(a).sum()))(square()),
    "callback": lambda: jax.jit(
        lambda a: jax.pure_callback(lambda v: np.asarray(v) + 1, jax.ShapeDtypeStruct((4,), jnp.float32), a)
    )(jnp.ones(4)),
    "collective": lambda: jax.pmap(lambda a: jax.lax.psum(a, "i"), axis_name="i")(square()[None]),
}


def test_the_device_is_used() -> None:
    assert [each.platform for each in jax.devices()] == ["gpu"]


@pytest.mark.parametrize("name", CASES)
def test_calls(name: str) -> None:
    jax.block_until_ready(CASES[name]())


def test_copies() -> None:
    given = np.arange(1 << 20, dtype=np.float32)
    assert (np.asarray(jax.device_put(given)) == given).all()
    pinned = jax.sharding.SingleDeviceSharding(jax.devices()[0], memory_kind="pinned_host")
    assert (np.asarray(jax.device_put(jax.device_put(given), pinned)) == given).all()


def test_training() -> None:
    weights = [(square() * 0.01, jnp.zeros(SIDE)) for _ in range(2)]

    def loss(weights: list[tuple[jax.Array, jax.Array]], given: jax.Array) -> jax.Array:
        for weight, bias in weights:
            given = jax.nn.relu(given @ weight + bias)
        return (given**2).mean()

    @jax.jit  # type: ignore[untyped-decorator]
    def step(weights: object, given: jax.Array) -> object:
        value, slopes = jax.value_and_grad(loss)(weights, given)
        return value, jax.tree.map(lambda weight, slope: weight - 0.1 * slope, weights, slopes)

    for _ in range(3):
        value, weights = step(weights, square())
    assert np.asarray(value).shape == ()
