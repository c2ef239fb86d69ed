"""KubeShare's Algorithm 1 as a fit (policies.md §3.1, corrected): the GPU of a request among those where the
rules of company.py let it be.
"""

from __future__ import annotations

from collections.abc import Callable

from .gpu import Gpu
from .portion import Portion

Rank = tuple[int, int]


def ranking(portion: Portion) -> Callable[[Gpu], Rank]:
    """How good each GPU is for such a request: the least is best, among equals the lowest index.

    The first of an affinity wants an idle GPU. Others: best fit by time among GPUs without affinities, idle
    ones included; else worst fit among those with them. Who has no request shares what is left, so it goes
    last where nothing is.
    """
    scope, request = portion.scope, portion.request
    if portion.affinity:
        return lambda gpu: (int(gpu.busy > 0), -gpu.time)

    def rank(gpu: Gpu) -> Rank:
        if not request and gpu.time <= 0:
            return 2, 0
        marks = gpu.marks.get(scope)
        return (1, -gpu.time) if marks and marks.affinity else (0, gpu.time)

    return rank
