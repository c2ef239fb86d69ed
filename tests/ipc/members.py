"""Processes of a program that share what they have, each asked by the test what to do."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

ALL = 6144  # MiB of a lease
PROGRAM = Path(__file__).with_name("member.py")
INVALID_VALUE, OUT_OF_MEMORY, INVALID_CONTEXT, INVALID_HANDLE, NOT_READY = 1, 2, 201, 400, 600


class Member:
    """One process; its attributes are the methods of member.Member."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = environment
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM)],
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout
        assert self._process.stdout.readline() == "ready\n"

    def __getattr__(self, name: str) -> Any:
        def ask(*arguments: object) -> Any:
            assert self._process.stdin
            assert self._process.stdout
            print(json.dumps([name, *arguments]), file=self._process.stdin, flush=True)
            return json.loads(self._process.stdout.readline())

        return ask

    def kill(self) -> None:
        """With SIGKILL; returns when it is gone."""
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        """It ends by itself, if it still lives."""
        self._process.communicate(timeout=100)


@contextmanager
def program(environment: Mapping[str, str], count: int) -> Iterator[list[Member]]:
    """So many processes that belong together; they end with this."""
    with ExitStack() as stack:
        members = []
        of_one = {**environment, "GPUFERRY_PROGRAM": secrets.token_hex(32)}
        for _ in range(count):
            members.append(Member(of_one))
            stack.callback(members[-1].end)
        yield members
