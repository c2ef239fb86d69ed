"""A world of a policy in a few words, and the order in which it runs what waits."""

from __future__ import annotations

from typing import Any

from .world import World


def world(name: str, gpus: int = 1, functions: str = "ab", memory: int = 100, **options: Any) -> World:
    made = World(name, options)
    for number in range(gpus):
        made.gpu(number, memory)
    for function in functions:
        made.function(function, 40, run=1.0, load=3.0)
    return made


def together(made: World, names: str) -> None:
    """They arrive before anybody decides."""
    for name in names:
        made.arrive(name, settle=False)
    made.settle()


def order(made: World, seconds: dict[str, float] | None = None) -> str:
    """Run everything to its end, the invocation that was run first ending first; the order of the runs."""
    for _ in range(10_000):
        if not made.live:
            break
        number = next(iter(made.live))
        function = made.live[number].run.invocation.function
        made.finish(number, (seconds or {}).get(function, 1.0))
    return "".join(word[0] for word in made.log if "@" in word)
