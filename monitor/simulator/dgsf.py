"""DGSF's own experiments (policies.md §1.3): its six functions and the order and times of their launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from numpy.random import RandomState

from .workload import MIB, Job, Server, Workload

HELD = 0.72  # the share of its run time for which a function has a GPU; before, it downloads (DESIGN.md)
COPIES = 10
HEAVY, LIGHT = 2.0, 3.0  # mean seconds between launches


@dataclass(frozen=True)
class Function:
    """One of DGSF's six functions (Table II): its run time through DGSF in seconds, peak memory, and what
    its stack.yml asks for; MB as printed.
    """

    seconds: float
    peak: int
    asks: int
    load: float = 0.75  # calibrated: Job.load, and DESIGN.md for the two that differ


FUNCTIONS: Mapping[str, Function] = {
    "bert": Function(32.4, 4028, 5000, load=0.9),
    "resnet": Function(24.8, 7650, 7000, load=0.5),
    "faceid": Function(10.5, 3514, 4000),
    "facedet": Function(16.4, 13194, 12000),
    "covid": Function(22.4, 7802, 12000),
    "kmeans": Function(9.9, 323, 350),
}
ALL = tuple(FUNCTIONS)
SMALL = ("bert", "resnet", "faceid", "kmeans")


def job(name: str, launch: float, *, held: float = HELD) -> Job:
    """One call of the function with this name, launched at `launch` seconds; it holds a GPU for the share
    `held` of its run time.
    """
    function = FUNCTIONS[name]
    return Job(
        launch,
        name,
        memory=function.asks * MIB,
        work=held * function.seconds,
        before=(1 - held) * function.seconds,
        content=function.peak * MIB,
        load=function.load,
    )


def poisson(gap: float, names: tuple[str, ...] = ALL) -> list[Job]:
    """The workload of Tables III and IV: ten copies of each function, shuffled by legacy numpy with seed
    0, which then draws the gaps.
    """
    random = RandomState(0)
    order = [name for name in names for _ in range(COPIES)]
    random.shuffle(order)
    gaps = random.exponential(gap, size=len(order))
    return [job(name, float(gaps[:number].sum())) for number, name in enumerate(order)]


def burst() -> list[Job]:
    """The workload of the bursts: all six functions at once, ten times, every two seconds."""
    return [job(name, 2.0 * number) for number in range(COPIES) for name in ALL]


def consolidation() -> list[Job]:
    """The workload of figure 8: two BERT and two ResNet, launched together in this order."""
    return [job(name, 0.0) for name in ("bert", "bert", "resnet", "resnet")]


RECIPES: Mapping[str, Callable[[], Workload]] = {
    "dgsf-heavy": lambda: Workload("DGSF, Table III", poisson(HEAVY)),
    "dgsf-heavy-small": lambda: Workload("DGSF, Table III, four small functions", poisson(HEAVY, SMALL)),
    "dgsf-light": lambda: Workload("DGSF, Table IV", poisson(LIGHT)),
    "dgsf-burst": lambda: Workload("DGSF, bursts", burst()),
    "dgsf-fig8": lambda: Workload("DGSF, Figure 8", consolidation(), Server(gpus=2, memory=14000 * MIB)),
}
