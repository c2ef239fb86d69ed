"""KaaS's experiments (policies.md §2.5): four GPUs, clients that submit flat out."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.random import RandomState

from ...policy.invocations import Function, Start
from ...policy.invocations.buffers import HOT, Buffer, BufferCache
from .result import Result
from .workload import Calls, Profile, Server

MB = 1000 * 1000
OPEN = 4  # requests that each client has open
OFFERED = 0.8  # of what the GPUs can do, online


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
    functions = _profiles(kind, clients, tasks)
    closed = dict.fromkeys(functions, OPEN)
    return Calls(f"KaaS, {clients} × {kind}", functions, closed=closed, until=seconds, server=SERVER)


def online(kind: str, clients: int, requests: int, seed: int) -> Calls:
    """Requests of kTasks at random (MLPerf's server scenario), at 80 % of the most that the GPUs can do."""
    functions = _profiles(kind, clients, tasks=True)
    random = RandomState(seed)
    gaps = random.exponential(KINDS[kind].seconds / SERVER.gpus / OFFERED, size=requests)
    names = list(functions)
    callers = random.randint(clients, size=requests)
    arrivals = [(float(moment), names[who]) for moment, who in zip(gaps.cumsum(), callers, strict=True)]
    return Calls(f"KaaS, {clients} × {kind}, online", functions, arrivals, server=SERVER)


def _profiles(kind: str, clients: int, tasks: bool) -> dict[str, Profile]:
    what = KINDS[kind]
    size = what.constant + what.dynamic
    load = size / SERVER.bandwidth
    functions = {}
    for number in range(clients):
        name = f"{kind} {number:02}"
        function = Function(name, size, run=what.seconds)
        functions[name] = Profile(function, what.seconds, load if tasks else what.cold, back=load)
    return functions


def loads(kind: str, result: Result, *, hot: int = HOT) -> tuple[int, int]:
    """How often constants were loaded: as the policy's residency of whole functions had it, and as KaaS's
    cache of buffers (policies.md §2.4) would have, given the same requests on the same GPUs in their order.
    """
    what = KINDS[kind]
    caches = [BufferCache(SERVER.memory, hot=hot, margin=0) for _ in range(SERVER.gpus)]
    done = result.done()
    # A request ends before the next one on its GPU begins, also where both are at the same moment.
    events = sorted(
        [(one.finished, 0, number) for number, one in enumerate(done)]
        + [(one.decided, 1, number) for number, one in enumerate(done)]
    )
    loaded = 0
    for _, begins, number in events:
        record = done[number]
        constant = Buffer((record.function, "constant", "0"), what.constant)
        dynamic = Buffer((record.function, "dynamic", str(number)), what.dynamic)  # each request's own
        request = [constant, dynamic]
        if begins:
            loaded += constant in caches[record.gpu].load(request).loaded
        else:
            caches[record.gpu].release(request)
    return sum(one.start is not Start.WARM for one in done), loaded
