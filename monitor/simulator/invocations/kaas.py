"""KaaS's experiments (policies.md §2.5): four GPUs, clients that submit flat out."""

from __future__ import annotations

from dataclasses import dataclass

from ...policy.invocations import Function
from .workload import Calls, Profile, Server

MB = 1000 * 1000
OPEN = 4  # requests that each client has open
CLIENTS = (1, 4, 5, 16, 28, 29, 32)


@dataclass(frozen=True)
class Kind:
    """One of KaaS's applications: constant and dynamic bytes, seconds on the GPU, and of a cold eTask."""

    constant: int
    dynamic: int
    seconds: float
    cold: float


KINDS = {
    "resnet50": Kind(129 * MB, 6 * MB, 0.004, 2.7),
    "bert": Kind(1300 * MB, 6 * MB, 0.092, 7.0),
    "cgemm": Kind(2000 * MB, 28 * MB, 0.039, 2.7),
    "jacobi": Kind(1 * MB, 1 * MB, 0.052, 2.7),
}
SERVER = Server(gpus=4, memory=15_700 * MB)


def calls(kind: str, clients: int, seconds: float, *, tasks: bool) -> Calls:
    """So many clients of one application, each a function of its own. `tasks`: kTasks, whose start is no
    more than loading their constants; else eTasks, which start a process.
    """
    what = KINDS[kind]
    size = what.constant + what.dynamic
    load = size / SERVER.bandwidth
    functions = {}
    for number in range(clients):
        name = f"{kind} {number:02}"
        function = Function(name, size, run=what.seconds)
        functions[name] = Profile(function, what.seconds, load if tasks else what.cold, back=load)
    closed = dict.fromkeys(functions, OPEN)
    return Calls(f"KaaS, {clients} × {kind}", functions, closed=closed, until=seconds, server=SERVER)
