"""The same programs on two drivers: where they differ, and the shortest program that still does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .known import alike
from .programs import Program

Said = list[Any]  # how the process ended, and what it said of each call


class Player:
    """A process that plays programs on one driver."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "play.py")],
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def begin(self, program: Program) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(program) + "\n")
        self.process.stdin.flush()

    def said(self) -> Said:
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, f"the player ended: {self.process.poll()}"
        found: Said = json.loads(line)
        return found

    def __enter__(self) -> Player:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()


class Pair:
    """Two drivers that are to say the same."""

    def __init__(self, here: Player, there: Player) -> None:
        self.here = here
        self.there = there

    def difference(self, program: Program) -> tuple[int, str] | None:
        """The first step of which they say other things, and what."""
        self.here.begin(program)
        self.there.begin(program)
        here, there = self.here.said(), self.there.said()
        for number, (ours, theirs) in enumerate(zip(here[1], there[1], strict=False)):
            step = program["steps"][number] if number < len(program["steps"]) else {"call": "contents"}
            same = alike(step, ours, theirs)
            if same is None:
                return None
            if not same:
                return number, f"{step['call']}: {ours} natively, {theirs} remotely"
        if here[0] != there[0] or len(here[1]) != len(there[1]):
            number = min(len(here[1]), len(there[1]))
            step = program["steps"][number] if number < len(program["steps"]) else {"call": "contents"}
            return number, f"{step['call']}: ended with {here[0]} natively, {there[0]} remotely"
        return None

    def shrunk(self, program: Program, kind: str) -> tuple[Program, str]:
        """Without all steps that the difference of this kind does not need, and what it is then."""
        found = kind
        part = len(program["steps"]) // 2
        while part:
            for candidate in without(program, part):
                difference = self.difference(candidate)
                if difference and kind_of(difference[1]) == kind_of(kind):
                    program, found = candidate, difference[1]
                    program = {**program, "steps": program["steps"][: difference[0] + 1]}
                    break
            else:
                part //= 2
        return program, found


def without(program: Program, part: int) -> Iterator[Program]:
    """The program without some steps in a row, the last ones first."""
    steps = program["steps"]
    for end in range(len(steps), 0, -part):
        yield {**program, "steps": steps[: max(end - part, 0)] + steps[end:]}


def kind_of(difference: str) -> str:
    """What two differences have in common that are one defect: the call."""
    return difference.partition(":")[0]


def shown(program: Program) -> str:
    """As a reader would write it."""
    lines = []
    for step in program["steps"]:
        ends = f"   # ends {', '.join(step['ends'])}" if "ends" in step else ""
        lines.append(f"    {step['call']}({', '.join(map(spoken, step['args']))}){ends}")
    return "\n".join(lines)


def spoken(token: Any) -> str:
    if not isinstance(token, list):
        return str(token)
    kind, *rest = token
    if kind == "out":
        return f"&{rest[1]['name']}" if rest[1] else "&out"
    if kind == "mem":
        return "{" + ", ".join(f"@{at}: {spoken(value)}" for at, _, value in rest[1]) + "}"
    if kind == "params":
        return "params(" + ", ".join(spoken(value) for _, value in rest[0]) + ")"
    if kind == "at":
        return f"{rest[0]}+{rest[1]}"
    return f"{kind}({', '.join(map(str, rest))})"
