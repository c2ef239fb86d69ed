"""Runs a module of ours in which a test has named points or changed constants: `pointed.py MODULE ARGUMENT…`.

A point is a function of ours, named `package.module:Class.function`; with a `!` behind it, its end. Their
names are in GPUFERRY_TEST_AT, between spaces. Who comes to one says so to the socket that
GPUFERRY_TEST_POINTS names, and waits for the answer (points.py), which is what to do there. A constant is
named in the same way; GPUFERRY_TEST_SET says what it is instead (JSON): how long something waits, so that no
test waits as long. The modules themselves know nothing of it.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import inspect
import json
import os
import runpy
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

POINTED = os.path.abspath(__file__)  # what is to be executed

_changed: dict[str, Any] = {}  # what a test has set, and what was there before


def reach(name: str) -> None:
    """Says that this process is there, and does what the test answers."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as test:
        try:
            test.connect(os.environ["GPUFERRY_TEST_POINTS"])
        except (FileNotFoundError, ConnectionRefusedError):  # it is over
            return
        test.send(json.dumps({"name": name, "pid": os.getpid()}).encode())
        answer = json.loads(test.recv(1 << 16) or b"{}")
    if answer.get("restore"):
        for what in list(_changed):
            assign(what, _changed.pop(what))
    for what, value in answer.get("set", {}).items():
        before = assign(what, value)
        _changed.setdefault(what, before)
    if answer.get("do") == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if answer.get("do") == "raise":
        raise OSError("a fault that a test wanted")


def assign(what: str, value: Any) -> Any:
    """Returns what was there."""
    owner, name = find(what)
    before = getattr(owner, name)
    setattr(owner, name, value)
    return before


def find(what: str) -> tuple[Any, str]:
    """The module or class, and the name in it."""
    module, _, path = what.partition(":")
    *classes, name = path.split(".")
    return functools.reduce(getattr, classes, importlib.import_module(module)), name


def make_point(where: str) -> None:
    owner, name = find(where.rstrip("!"))
    works: Callable[..., Any] = getattr(owner, name)
    at_end = where.endswith("!")

    @functools.wraps(works)
    def pointed(*arguments: Any, **named: Any) -> Any:
        if not at_end:
            reach(where)
        result = works(*arguments, **named)
        if at_end:
            reach(where)
        return result

    @functools.wraps(works)
    async def awaited(*arguments: Any, **named: Any) -> Any:
        if not at_end:
            await asyncio.to_thread(reach, where)
        result = await works(*arguments, **named)
        if at_end:
            await asyncio.to_thread(reach, where)
        return result

    setattr(owner, name, awaited if inspect.iscoroutinefunction(works) else pointed)


def prepare() -> None:
    """The constants and the points that this process's environment names."""
    for constant, value in json.loads(os.environ.get("GPUFERRY_TEST_SET", "{}")).items():
        assign(constant, value)
    for each in os.environ.get("GPUFERRY_TEST_AT", "").split():
        make_point(each)


if __name__ == "__main__":
    del sys.path[0]  # this folder: its modules are nobody else's
    del sys.argv[0]
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # the CLI says it before it imports anything
    prepare()
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
