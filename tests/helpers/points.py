"""Named points in a process of ours, at which a test holds it, or makes it fail (pointed.py).

    with Points(tmp_path, WELCOMES) as points:
        … start `points.command("gpuferry.apiserver")` with `points.environment` …
        with points.hold(WELCOMES) as held:
            … what shall find it between two of its steps …

So a test says what comes first, instead of hoping for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.helpers.door import Door
from tests.helpers.pointed import POINTED
from tests.helpers.warm import CLI

DEADLINE = 120.0


def daemon(constants: Mapping[str, float], cli: Sequence[str] = CLI) -> tuple[Sequence[str], dict[str, str]]:
    """The CLI (`python -m MODULE`) with these constants of ours, and the environment that sets them."""
    if not constants:
        return cli, {}
    return [cli[0], POINTED, *cli[2:]], {"GPUFERRY_TEST_SET": json.dumps(constants)}


class Held:
    """A point at which the next process that comes is held until the test lets it go."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.pid = 0
        self._come = threading.Event()
        self._answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def wait(self) -> int:
        """Wait until a process is there. Returns its pid."""
        assert self._come.wait(DEADLINE), f"nobody comes to {self.name}"
        return self.pid

    def go(self, do: str = "go", **answer: Any) -> None:
        """Let the process go on, now or when it comes; `do`: or `raise`, or `kill` itself there."""
        self._answers.put({"do": do, **answer})

    def answer(self, pid: int) -> dict[str, Any]:
        """Wait for what the test says to the process `pid`, which is there."""
        self.pid = pid
        self._come.set()
        return self._answers.get()


class Points:
    """Named points of the code where processes started with `environment` can be held. A context manager."""

    def __init__(self, *names: str, restores: str = "") -> None:
        """`names`: the points. `restores`: the one at which a process takes back the constants that were set
        for it.
        """
        self._names = names
        self._restores = restores
        self._lock = threading.Lock()
        self._held: list[Held] = []  # by tests, in the order in which they will be found
        self._all: list[Held] = []
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Points:
        folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="gf-", dir="/tmp"))
        self.path = os.path.join(folder, "points")
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listening.bind(self.path)
        listening.listen()
        self._door = self._stack.enter_context(Door(listening, self._come))
        return self

    def __exit__(self, *_: object) -> None:
        self.let_all_go()
        self._stack.close()

    def let_all_go(self) -> None:
        """Let all processes go on that are held, and those that were to be."""
        with self._lock:
            known, self._held, self._all = self._all, [], []
        for held in known:
            held.go()

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a process in which points are used, and of those that it starts by `command`."""
        return {"GPUFERRY_TEST_POINTS": self.path, "GPUFERRY_TEST_AT": " ".join(self._names)}

    @staticmethod
    def command(module: str) -> list[str]:
        """The command line of `python -m MODULE`, with points."""
        return [sys.executable, POINTED, module]

    def at(self, name: str) -> Held:
        """Whoever comes there next, once those are gone for whom this was said before."""
        assert name in self._names, name
        held = Held(name)
        with self._lock:
            self._held.append(held)
            self._all.append(held)
        return held

    def fail(self, name: str, how: str) -> None:
        """Whoever comes there next is to `raise`, or to `kill` itself."""
        self.at(name).go(how)

    @contextlib.contextmanager
    def hold(self, name: str) -> Iterator[Held]:
        """Whoever comes there next goes on after this, if not before."""
        held = self.at(name)
        try:
            yield held
        finally:
            held.go()

    def _come(self, connection: socket.socket) -> None:
        self._door.begin(self._answer, connection)

    def _answer(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):  # it may be killed meanwhile
            said = json.loads(connection.recv(1 << 16) or b"{}")
            with self._lock:
                held = next((each for each in self._held if each.name == said.get("name")), None)
                if held is not None:
                    self._held.remove(held)
            answer = held.answer(said["pid"]) if held else {}
            restore = said.get("name") == self._restores
            connection.send(json.dumps({**answer, "restore": restore}).encode())
