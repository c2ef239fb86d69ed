"""LuisaCompute: shaders made from Python by its own NVRTC, with textures, bindless arrays and kernels that
the device itself dispatches. Each of its kernels comes with one that launches it.
"""

# Shaders are Python in form only: they have names of their own, and no types that Python knows.
# mypy: ignore-errors
# ruff: noqa: F821

from __future__ import annotations

import luisa
import numpy as np
from luisa.mathtypes import make_float2, make_float4
from luisa.types import uint, uint3

luisa.init("cuda")

COUNT = 1000
VALUES = np.random.default_rng(0).standard_normal(COUNT).astype(np.float32)


def test_maths() -> None:
    data = luisa.buffer(VALUES.copy())

    @luisa.func
    def compute(data):
        i = dispatch_id().x
        v = data.read(i)
        data.write(i, exp(-v * v) + sqrt(abs(v)) + atan2(v, 1.0 + v * v))

    compute(data, dispatch_size=COUNT)
    wanted = np.exp(-VALUES * VALUES) + np.sqrt(abs(VALUES)) + np.arctan2(VALUES, 1 + VALUES * VALUES)
    np.testing.assert_allclose(data.numpy(), wanted, rtol=1e-5, atol=1e-5)


def test_atomics() -> None:
    counters = luisa.buffer(np.zeros(4, np.int32))

    @luisa.func
    def count(counters):
        _ = counters.atomic_fetch_add(int(dispatch_id().x % 4), 1)

    count(counters, dispatch_size=COUNT + 1)
    assert counters.numpy().tolist() == [251, 250, 250, 250]


def test_shared_memory() -> None:
    Shared = luisa.SharedArrayType(256, float)
    data, sums = luisa.buffer(VALUES[:768].copy()), luisa.buffer(np.zeros(3, np.float32))

    @luisa.func
    def add_up(data, sums):
        set_block_size(256, 1, 1)
        part = Shared()
        t = thread_id().x
        part[t] = data.read(dispatch_id().x)
        sync_block()
        reach = 128
        while reach > 0:
            if t < reach:
                part[t] += part[t + reach]
            sync_block()
            reach = reach // 2
        if t == 0:
            sums.write(block_id().x, part[0])

    add_up(data, sums, dispatch_size=768)
    np.testing.assert_allclose(sums.numpy(), VALUES[:768].reshape(3, 256).sum(1), rtol=1e-4, atol=1e-4)


def test_struct_and_callable() -> None:
    Pair = luisa.StructType(real=float, whole=int)
    out = luisa.buffer(np.zeros(100, np.float32))

    @luisa.func
    def make(i):
        pair = Pair()
        pair.real = float(i) * 2.0
        pair.whole = i
        return pair

    @luisa.func
    def fill(out):
        i = int(dispatch_id().x)
        pair = make(i)
        out.write(i, pair.real + float(pair.whole))

    fill(out, dispatch_size=100)
    assert out.numpy().tolist() == [3 * i for i in range(100)]


def picture() -> luisa.Image2D:
    image = luisa.Image2D(64, 48, 4, float)

    @luisa.func
    def paint(image):
        p = dispatch_id().xy
        image.write(p, make_float4(float(p.x) / 64.0, float(p.y) / 48.0, 0.5, 1.0))

    paint(image, dispatch_size=(64, 48, 1))
    return image


def test_surface() -> None:
    painted = picture().numpy()
    np.testing.assert_allclose(painted[..., 0], np.tile(np.arange(64) / 64, (48, 1)), atol=1e-6)
    np.testing.assert_allclose(painted[..., 1], np.tile(np.arange(48)[:, None] / 48, (1, 64)), atol=1e-6)


def test_bindless() -> None:
    """A buffer and a picture, found by numbers; the picture is sampled between its texels."""
    array = luisa.BindlessArray.bindless_array({0: luisa.buffer(VALUES), 1: picture()})
    read, sampled = luisa.buffer(np.zeros(40, np.float32)), luisa.buffer(np.zeros(40, np.float32))

    @luisa.func
    def look(array, read, sampled):
        i = dispatch_id().x
        read.write(i, array.buffer_read(float, 0, i))
        at = make_float2((float(i) + 1.0) / 64.0, 0.5)
        sampled.write(i, array.texture2d_sample(1, at).x)

    look(array, read, sampled, dispatch_size=40)
    np.testing.assert_array_equal(read.numpy(), VALUES[:40])
    position = np.arange(40) + 0.5  # between two texels
    np.testing.assert_allclose(sampled.numpy(), position / 64, atol=1.1 / 64)


def test_dispatch_by_the_device() -> None:
    """How large it is, a kernel has written: another one launches it."""
    indirect = luisa.IndirectDispatchBuffer(2)
    out = luisa.buffer(np.zeros(COUNT, np.int32))

    @luisa.func
    def plan(indirect):
        indirect.set_dispatch_count(uint(2))
        indirect.set_kernel(uint(0), uint3(64, 1, 1), uint3(100, 1, 1), uint(0))
        indirect.set_kernel(uint(1), uint3(64, 1, 1), uint3(300, 1, 1), uint(1))

    @luisa.func
    def add(out):
        set_block_size(64, 1, 1)
        _ = out.atomic_fetch_add(int(dispatch_id().x), 1)

    plan(indirect, dispatch_size=1)
    add(out, dispatch_size=indirect)
    assert out.numpy().tolist() == [2] * 100 + [1] * 200 + [0] * (COUNT - 300)
