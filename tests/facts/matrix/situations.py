"""What was before the call: one function for each situation, which makes the calls of its cases."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.facts.children import Say
from tests.facts.matrix.objects import Objects
from tests.facts.scope import Scope
from tests.facts.show import driver

FACTS = Path(__file__).parents[1]
Case = dict[str, Any]
MISSING = "no such function"
MODES = {"global": 0, "thread local": 1, "relaxed": 2}


class Bench:
    """A process with a primary context, which is current, and what calls need."""

    def __init__(self, known: dict[str, int], init: bool = True) -> None:
        self.names = Scope({"cu": [driver]}, known)
        self.known = known
        if init:
            self.ok("cuInit", 0)
            self.ok("cuDevicePrimaryCtxRetain", self.names.at("primary"), 0)
            self.restore()
        self.objects = Objects(driver(), (FACTS / "kernels.ptx").read_bytes(), known)

    def call(self, name: str, *arguments: Any) -> int | str:
        """Its result, or that the driver, an older one, has no such function."""
        try:
            function = self.names[name]
        except KeyError:
            return MISSING
        return int(function(*arguments))

    def ok(self, name: str, *arguments: Any) -> None:
        if result := self.call(name, *arguments):
            raise RuntimeError(f"{name} -> {result}")

    def restore(self) -> None:
        """The primary context is current again, whatever a call has done, and nothing is under way in it."""
        self.call("cuCtxSetCurrent", self.names["primary"])
        self.call("cuCtxSynchronize")

    def values(self, case: Case) -> list[Any]:
        return [self.objects.value(token) for token in case["args"]]

    def make(self, case: Case, values: list[Any] | None = None) -> int | str:
        values = self.values(case) if values is None else values
        result = self.call(case["symbol"], *values)
        if result == 0:
            for place in case["ends"]:
                self.objects.forget(values[place])
        return result


def plain(known: dict[str, int], cases: list[tuple[int, Case]], say: Say) -> None:
    """Every case, with the primary context current."""
    bench = Bench(known)
    bench.objects.all()
    for number, case in cases:
        if not case["wrong"]:
            bench.objects.afresh()
        say(number, None)
        say(number, bench.make(case))
        bench.restore()


def before(known: dict[str, int], cases: list[tuple[int, Case]], say: Say) -> None:
    """Before cuInit, with nulls wherever an object would be."""
    bench = Bench(known, init=False)
    for number, case in cases:
        if case["symbol"] == "cuInit":
            continue
        simple = [["behind", ""] if t[0] == "behind" else t for t in case["args"]]
        objects = ("handle", "memory", "freed", "params", "other")
        values = [0 if t[0] in objects else bench.objects.value(t) for t in simple]
        say(number, None)
        say(number, bench.call(case["symbol"], *values))


def no_context(known: dict[str, int], cases: list[tuple[int, Case]], say: Say) -> None:
    """No context is current; the objects are those of one that lives."""
    bench = Bench(known)
    bench.objects.all()
    for number, case in cases:
        bench.restore()
        values = bench.values(case)
        bench.call("cuCtxSetCurrent", 0)
        say(number, None)
        say(number, bench.make(case, values))


def other_context(known: dict[str, int], cases: list[tuple[int, Case]], say: Say) -> None:
    """Another context is current than the one of the objects."""
    bench = Bench(known)
    bench.objects.all()
    bench.ok("cuCtxCreate_v2", bench.names.at("another"), 0, 0)
    for number, case in cases:
        bench.restore()
        values = bench.values(case)
        bench.call("cuCtxSetCurrent", bench.names["another"])
        say(number, None)
        say(number, bench.make(case, values))


def destroyed(known: dict[str, int], cases: list[tuple[int, Case]], say: Say) -> None:
    """The context of the objects was destroyed; the primary one is current."""
    bench = Bench(known)
    bench.ok("cuCtxCreate_v2", bench.names.at("gone"), 0, 0)
    bench.objects.current = bench.names["gone"]
    bench.objects.all()
    calls = [(number, case, bench.values(case)) for number, case in cases]
    bench.ok("cuCtxDestroy_v2", bench.names["gone"])
    for number, case, values in calls:
        bench.restore()
        say(number, None)
        say(number, bench.call(case["symbol"], *values))


def after_reset(known: dict[str, int], cases: list[tuple[int, Case]], say: Say) -> None:
    """The primary context, current and owner of the objects, was reset."""
    bench = Bench(known)
    bench.objects.all()
    calls = [(number, case, bench.values(case)) for number, case in cases]
    bench.ok("cuDevicePrimaryCtxReset_v2", 0)
    for number, case, values in calls:
        bench.restore()
        say(number, None)
        say(number, bench.call(case["symbol"], *values))


def sticky(known: dict[str, int], cases: list[tuple[int, Case]], say: Say) -> None:
    """After a kernel that trapped."""
    bench = Bench(known)
    bench.objects.all()
    calls = [(number, case, bench.values(case)) for number, case in cases]
    bench.ok("cuModuleGetFunction", bench.names.at("traps"), bench.objects.get("module"), b"traps")
    bench.ok("cuLaunchKernel", bench.names["traps"], 1, 1, 1, 1, 1, 1, 0, 0, 0, 0)
    if not bench.call("cuCtxSynchronize"):
        raise RuntimeError("the trap is not noticed")
    for number, case, values in calls:
        bench.restore()
        say(number, None)
        say(number, bench.call(case["symbol"], *values))


def child(known: dict[str, int], cases: list[tuple[int, Case]], say: Say) -> None:
    """In a forked child of a process that has made all objects."""
    bench = Bench(known)
    bench.objects.all()
    calls = [(number, case, bench.values(case)) for number, case in cases]
    forked = os.fork()
    if forked:
        os.waitpid(forked, 0)
        return
    for number, case, values in calls:
        say(number, None)
        say(number, bench.call(case["symbol"], *values))


def captured(mode: int) -> Callable[..., None]:
    def situation(known: dict[str, int], cases: list[tuple[int, Case]], say: Say) -> None:
        """While a stream is captured, which is that of every call that takes one; then its capture ends."""
        bench = Bench(known)
        bench.objects.all()
        for number, case in cases:
            bench.restore()
            values = bench.values(case)
            bench.ok("cuStreamCreate", bench.names.at("stream"), 0)
            stream = bench.names["stream"]
            bench.ok("cuStreamBeginCapture_v2", stream, mode)
            for place in case["captured"]:
                values[place] = stream if case["args"][place][0] == "handle" else values[place]
            say(number, None)
            result = bench.make(case, values)
            bench.call("cuCtxSetCurrent", bench.names["primary"])
            bench.names["graph"] = 0
            end = bench.call("cuStreamEndCapture", stream, bench.names.at("graph"))
            say(number, [result, end])
            bench.call("cuGraphDestroy", bench.names["graph"])
            bench.call("cuStreamDestroy_v2", stream)

    return situation


EVERY_CASE = "with a context"  # elsewhere those alone in which nothing is wrong,
NULLS = re.compile("after a sticky error|in a capture")  # or, in these, something is null
SITUATIONS: dict[str, Callable[..., None]] = {
    EVERY_CASE: plain,
    "before cuInit": before,
    "without a context": no_context,
    "in another context": other_context,
    "of a destroyed context": destroyed,
    "after a reset": after_reset,
    "after a sticky error": sticky,
    "in a forked child": child,
    **{f"in a capture that is {name}": captured(mode) for name, mode in MODES.items()},
}


def has(situation: str, case: Case) -> bool:
    """Whether the case is made in that situation."""
    null = case["wrong"].endswith(" null") and NULLS.match(situation) is not None
    return situation == EVERY_CASE or not case["wrong"] or null
