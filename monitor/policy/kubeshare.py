"""KubeShare's Algorithm 1 as a fit (policies.md §3.1, corrected): the GPU of a request among those where the
rules of company.py let it be.
"""

from __future__ import annotations

from collections.abc import Sequence

from .gpu import Gpu
from .portion import Portion

LABELLED = 1 << 39  # beyond all GPUs that have no affinity
BUSY, LAST = 1 << 40, 1 << 41


def ranks(portion: Portion, gpus: Sequence[Gpu]) -> list[int]:
    """How good each of these GPUs is for such a request: the least is best, among equals the lowest index.

    The first of an affinity wants an idle GPU. Others: best fit by time among GPUs without affinities, idle
    ones included; else worst fit among those with them. Who has no request shares what is left, so it goes
    last where nothing is.
    """
    scope, request = portion.scope, portion.request
    if portion.affinity:
        return [(BUSY if gpu.busy else 0) - gpu.time for gpu in gpus]
    return [
        LAST
        if not request and gpu.time <= 0
        else LABELLED - gpu.time
        if (marks := gpu.marks.get(scope)) and marks.affinity
        else gpu.time
        for gpu in gpus
    ]
