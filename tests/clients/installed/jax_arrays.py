"""JAX: XLA's kernels, cuBLAS, a scan, a gradient."""

import os

os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
import jax
import jax.numpy as jnp

print(jax.devices()[0].platform)
x = jnp.arange(1 << 16, dtype=jnp.float32) % 13
print("sum", float(jax.jit(lambda v: (v * 2 + 1).sum())(x)))
m = (jnp.arange(512 * 512) % 7).astype(jnp.float32).reshape(512, 512)
print("matmul", float((m @ m).sum()), float(jax.grad(lambda v: (v**2).sum())(x).sum()))
print("scan", int(jax.lax.scan(lambda c, v: (c + v, c), jnp.int32(0), jnp.arange(1000))[0]))
