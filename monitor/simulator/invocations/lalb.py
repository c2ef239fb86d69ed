"""The LALB thesis's experiments (policies.md §4.4): twelve GPUs, six minutes of calls, image models."""

from __future__ import annotations

from numpy.random import RandomState

from ...policy.invocations import Function
from ..azure import scaled
from ..models import LARGE, MEDIUM, SMALL, Model
from ..workload import MIB
from .workload import Calls, Profile, Server

TOP = {"vgg19": 13.0, "densenet161": 11.0, "resnet152": 9.0, "resnet18": 4.0, "alexnet": 3.0}  # per cent
TAIL = 15.0  # per cent over the rank, of the others: it goes on from the fifth, and the top fifteen have 56 %
MINUTES = 6
PER_MINUTE = 325
SERVER = Server(gpus=12, memory=8192 * MIB)
SETS = (15, 25, 35)


def models(functions: int) -> list[tuple[Model, float]]:
    """So many models with their popularity, the five that the thesis names first; the others evenly small,
    medium and large.
    """
    by_name = {model.name: model for model in (*SMALL, *MEDIUM, *LARGE)}
    chosen = [(by_name[name], share) for name, share in TOP.items()]
    sizes = [[model for model in models if model.name not in TOP] for models in (SMALL, MEDIUM, LARGE)]
    for rank in range(max(0, functions - len(TOP))):
        kind = sizes[rank % len(sizes)]
        chosen.append((kind[rank // len(sizes) % len(kind)], TAIL / (len(TOP) + rank + 1)))
    return chosen


def calls(functions: int, seed: int) -> Calls:
    """The workload of a set of so many functions; the seed decides the order of calls within each minute."""
    random = RandomState(seed)
    profiles, shares = {}, {}
    for rank, (model, share) in enumerate(models(functions)):
        name = f"{rank:02} {model.name}"
        size = model.megabytes * MIB
        function = Function(name, size, load=model.load, run=model.inference)
        profiles[name] = Profile(function, model.inference, model.load)
        shares[name] = share
    counts = scaled([round(1000 * share) for share in shares.values()], PER_MINUTE)
    arrivals = [
        (float(moment), name)
        for minute in range(MINUTES)
        for name, count in zip(shares, counts, strict=True)
        for moment in random.uniform(60.0 * minute, 60.0 * (minute + 1), size=count)
    ]
    return Calls(f"LALB, set {functions}", profiles, sorted(arrivals), server=SERVER)
