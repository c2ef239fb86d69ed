"""The models of the LALB thesis (policies.md §4.4, Table 1), for traces that do not say what is called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Model:
    """An image model: the memory that it occupies on a GPU, and the seconds to load it there and to infer
    with it.
    """

    name: str
    megabytes: int
    load: float
    inference: float


SMALL = (
    Model("squeezenet1.1", 1269, 2.41, 1.28),
    Model("resnet18", 1313, 2.52, 1.25),
    Model("resnet34", 1357, 2.60, 1.25),
    Model("squeezenet1.0", 1435, 2.32, 1.33),
    Model("alexnet", 1437, 2.81, 1.25),
    Model("resnext50.32x4d", 1555, 2.64, 1.29),
)
MEDIUM = (
    Model("densenet121", 1601, 2.49, 1.28),
    Model("densenet169", 1631, 2.56, 1.30),
    Model("densenet201", 1665, 2.67, 1.40),
    Model("resnet50", 1701, 2.67, 1.28),
    Model("resnet101", 1757, 2.95, 1.30),
    Model("resnet152", 1827, 3.10, 1.31),
    Model("densenet161", 1919, 2.75, 1.32),
    Model("inception.v3", 2157, 4.42, 1.63),
    Model("resnext101.32x8d", 2191, 3.51, 1.33),
)
LARGE = (
    Model("vgg11", 2903, 3.94, 1.29),
    Model("wide_resnet50_2", 3611, 3.16, 1.31),
    Model("wide_resnet101_2", 3831, 3.91, 1.32),
    Model("vgg13", 3887, 3.98, 1.30),
    Model("vgg16", 3907, 4.04, 1.27),
    Model("vgg16.bn", 3907, 4.03, 1.26),
    Model("vgg19", 3947, 4.07, 1.33),
)


def spread(rank: int) -> Model:
    """Give functions models by popularity, evenly over small, medium and large ones."""
    sizes: Sequence[Sequence[Model]] = (SMALL, MEDIUM, LARGE)
    models = sizes[rank % len(sizes)]
    return models[rank // len(sizes) % len(models)]
