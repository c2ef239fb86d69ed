"""MQFQ-Sticky's experiments (policies.md §5.3): one GPU, copies of eight functions, calls at random."""

from __future__ import annotations

from collections.abc import Sequence

from numpy.random import RandomState

from ...policy.invocations import Function
from ..workload import MIB
from .workload import Calls, Profile, Server

# Seconds on a warm and on a cold GPU container (Table 1).
TIMES = {
    "imagenet": (2.253, 11.286),
    "roberta": (0.268, 15.481),
    "ffmpeg": (4.483, 4.612),
    "fft": (0.897, 3.322),
    "isoneural": (0.026, 9.963),
    "lud": (2.050, 2.359),
    "needle": (1.979, 2.177),
    "pathfinder": (1.472, 1.797),
}
MEMORY = 1536 * MIB  # of each: what the paper says of FFT
ZIPF = 1.5
COPIES = 24
SERVER = Server(gpus=1, memory=16384 * MIB)


def profiles(number: int, share: float = 1.0) -> dict[str, Profile]:
    """So many functions: copies of the eight, in their order. `share`: of a GPU that each uses."""
    kinds = list(TIMES)
    found = {}
    for rank in range(number):
        kind = kinds[rank % len(kinds)]
        warm, cold = TIMES[kind]
        name = f"{rank:02} {kind}"
        found[name] = Profile(Function(name, MEMORY), warm, cold - warm, share=share)
    return found


def zipf(seed: int, utilisation: float, seconds: float, number: int = COPIES, share: float = 1.0) -> Calls:
    """Calls with exponential gaps, by the seed. Rates fall as 1/rank^1.5 over the functions in the order of
    Table 1, and keep a GPU this busy if all are warm.
    """
    random = RandomState(seed)
    functions = profiles(number, share)
    popularity = {name: 1.0 / (rank + 1) ** ZIPF for rank, name in enumerate(functions)}
    demand = sum(popularity[name] * functions[name].run for name in functions)
    rates = {name: popularity[name] * utilisation / demand for name in functions}
    arrivals: list[tuple[float, str]] = []
    for name, rate in rates.items():
        moment = float(random.exponential(1.0 / rate))
        while moment < seconds:
            arrivals.append((moment, name))
            moment += float(random.exponential(1.0 / rate))
    return Calls(f"MQFQ, Zipf, {utilisation:.0%}", functions, sorted(arrivals), server=SERVER)


def backlogged(calls: Sequence[int] = (2, 1, 1, 1), seconds: float = 300.0) -> Calls:
    """Copies of one function, each of which always has so many calls open."""
    functions = {}
    for number in range(len(calls)):
        name = f"{number} fft"
        functions[name] = Profile(Function(name, MEMORY), TIMES["fft"][0], TIMES["fft"][1] - TIMES["fft"][0])
    closed = {name: 8 * count for name, count in zip(functions, calls, strict=True)}
    return Calls("MQFQ, all busy", functions, closed=closed, until=seconds, server=SERVER)
