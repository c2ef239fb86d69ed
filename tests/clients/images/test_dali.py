"""NVIDIA's DALI: operators over batches of images, against the same operators on the CPU. Their kernels were
compiled apart (-rdc=true). Its wheel has PTX for compute capability 12.0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from nvidia.dali import Pipeline, fn, types

BATCH, ROUNDS = 4, 2

OPERATORS: dict[str, Callable[[Any], Any]] = {
    "resize": lambda x: fn.resize(x, size=[24, 32], antialias=False),
    "resize_antialiased": lambda x: fn.resize(x, size=[17, 19]),
    "brightness_contrast": lambda x: fn.brightness_contrast(x, brightness=1.2, contrast=0.8),
    "hsv": lambda x: fn.hsv(x, hue=40.0, saturation=0.7, value=1.1),
    "rotate": lambda x: fn.rotate(x, angle=30.0, fill_value=0),
    "warp_affine": lambda x: fn.warp_affine(x, matrix=[1.0, 0.2, 3, 0.1, 0.9, 2], fill_value=1),
    "gaussian_blur": lambda x: fn.gaussian_blur(x, sigma=1.5),
    "laplacian": lambda x: fn.laplacian(x, window_size=5, dtype=types.FLOAT),
    "crop_mirror_normalize": lambda x: fn.crop_mirror_normalize(
        x, crop=(20, 28), mean=[120.0, 110.0, 100.0], std=[50.0, 60.0, 70.0], mirror=1, dtype=types.FLOAT
    ),
    "flip": lambda x: fn.flip(x, horizontal=1, vertical=1),
    "transpose": lambda x: fn.transpose(x, perm=[2, 0, 1]),
    "pad": lambda x: fn.pad(x, fill_value=7, axes=(0, 1), shape=(50, 60)),
    "erase": lambda x: fn.erase(x, anchor=(3, 5), shape=(10, 12), axis_names="HW", fill_value=9),
    "slice": lambda x: fn.slice(x, start=[2, 3], shape=[20, 21], axes=[0, 1]),
    "gray": lambda x: fn.color_space_conversion(x, image_type=types.RGB, output_type=types.GRAY),
    "cast": lambda x: fn.cast(x, dtype=types.FLOAT16),
    "sum": lambda x: fn.reductions.sum(x, axes=[0, 1], dtype=types.UINT64),
    "deviation": lambda x: fn.reductions.std_dev(x, fn.reductions.mean(x)),
    "normalize": lambda x: fn.normalize(x, batch=True, dtype=types.FLOAT),
    "arithmetic": lambda x: x * 2 + 3.5,
}


def batches() -> list[list[np.ndarray]]:
    random = np.random.default_rng(1)
    shapes = [(40 + i, 50, 3) for i in range(BATCH)]
    return [[random.integers(0, 255, shape, dtype=np.uint8) for shape in shapes] for _ in range(ROUNDS)]


def run(operator: Callable[[Any], Any], device: str) -> list[np.ndarray]:
    pipeline = Pipeline(batch_size=BATCH, num_threads=2, device_id=0, seed=7)
    with pipeline:
        images = fn.external_source(source=batches(), layout="HWC")
        pipeline.set_outputs(operator(images.gpu() if device == "gpu" else images))
    pipeline.build()
    made = [pipeline.run()[0].as_cpu() for _ in range(ROUNDS)]
    return [np.array(each.at(i)) for each in made for i in range(BATCH)]


@pytest.mark.parametrize("name", OPERATORS)
def test_operator(name: str) -> None:
    ours, reference = (run(OPERATORS[name], device) for device in ("gpu", "cpu"))
    for mine, other in zip(ours, reference, strict=True):
        assert mine.shape == other.shape
        assert mine.dtype == other.dtype
        whole = np.issubdtype(mine.dtype, np.integer)
        np.testing.assert_allclose(
            mine.astype(float), other.astype(float), atol=1 if whole else 1e-2, rtol=1e-3
        )
