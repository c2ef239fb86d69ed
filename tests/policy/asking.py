"""A server of a few GPUs and requests that ask it for memory."""

from __future__ import annotations

from gpuferry.monitor.policy import Gpu, Place, Policy, Request, Scheduler


def server(made: Scheduler, memory: list[int], workers: int = 2) -> Scheduler:
    """A GPU per entry; worker 12 is the third of GPU 1."""
    for index, size in enumerate(memory):
        made.add_gpu(Gpu(index, size))
        for worker in range(workers):
            made.on_idle(index, 10 * index + worker)
    return made


def ask(policy: Policy, *memory: int, first: int = 1) -> list[tuple[int, int] | None]:
    """(GPU, worker) of requests that arrive together; None for those that wait or are refused."""
    for number, size in enumerate(memory, first):
        policy.on_arrival(Request(number, size), 0.0)
    placed = {}
    while decision := policy.next():
        if isinstance(decision, Place):
            placed[decision.request.id] = (decision.gpu, decision.worker)
    return [placed.get(number) for number in range(first, first + len(memory))]


def drain(policy: Policy) -> list[object]:
    return list(iter(policy.next, None))
