"""Programs on a GPU that are disturbed and do not notice: `python -m tests.gpu PYTHON FILE`.

What a program prints when nobody disturbs it must come out again while its memory leaves and returns and
while it moves between two GPU servers: the programs of tests/programs, those in rounds at each round, and
the frameworks that PYTHON has. FILE is JSON: what was done, what was refused and why.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.helpers import programs, toolchain
from tests.helpers.paths import ROOT
from tests.helpers.programs import Program
from tests.helpers.running import Command, Outcome, guest_environment, native_environment, real_gpu, run

from .unrest import Servers, Told, Way, servers, unrest

SCRIPTS = ROOT / "tests" / "clients" / "installed"
SECONDS = 60.0  # for a program
COUNT = 6  # rounds of a program
MOVING = "moving_"

Result = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    parser.add_argument("python", help="that has the frameworks")
    parser.add_argument("file", type=Path)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--until", type=float, default=600.0, help="seconds, then no program is begun")
    given = parser.parse_args()
    until = time.monotonic() + given.until
    found: dict[str, Result] = {}
    with servers() as running:
        for part in given.parts:
            for name, go in PARTS[part](running, given.python):
                if time.monotonic() > until:
                    break
                found[name] = outcome = guarded(go)
                print(name, "same" if outcome["same"] else "DIFFERENT", json.dumps(outcome), flush=True)
                given.file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        for server in running.both:
            print(server.log.read_text(errors="replace")[-3000:], file=sys.stderr)
    return 0 if all(each["same"] for each in found.values()) else 1


def guarded(go: Callable[[], Result]) -> Result:
    """Its result, or what went wrong."""
    try:
        return go()
    except (subprocess.TimeoutExpired, AssertionError, OSError) as error:
        return {"same": False, "error": str(error)[-3000:]}


Cases = Iterator[tuple[str, Callable[[], Result]]]


def in_rounds(running: Servers, _: str) -> Cases:
    """Programs that are disturbed before each of their rounds."""
    for program in programs.programs():
        if program.name.startswith(MOVING):
            command = [toolchain.program(program.source, program.flags), str(COUNT)]
            for way in Way:
                yield f"{program.name} {way.value}", lambda c=command, w=way: at_rounds(running, c, w)  # type: ignore[misc]


def at_rounds(running: Servers, command: Command, way: Way) -> Result:
    """A program that says when a round begins, and waits to be told to go on."""
    native, told = run(command, native_environment(), SECONDS), Told()
    if native.status:
        return {"same": True, "native": native.status}
    environment, pipe = guest_environment(running.first.settings()), subprocess.PIPE
    program = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    killer = threading.Timer(SECONDS, program.kill)
    killer.start()
    assert program.stdin
    assert program.stdout
    said = ""
    for line in program.stdout:
        said += line
        if line.startswith("round "):
            running.disturb(way, told, len(said), program.pid)
            with contextlib.suppress(BrokenPipeError):
                program.stdin.write("\n")
                program.stdin.flush()
    _, stderr = program.communicate()
    killer.cancel()
    return compared(native, Outcome(program.returncode, said, stderr), told)


def of_the_suite(running: Servers, _: str) -> Cases:
    """Programs of the differential suite, disturbed fifty times a second."""
    for program in programs.programs():
        if not program.name.startswith(MOVING) and not (program.only_sim and real_gpu()):
            for way in Way:
                command = [toolchain.program(program.source, program.flags)]
                name = f"{program.name} {way.value}"
                yield name, lambda c=command, w=way, p=program: disturbed(running, c, w, 0.02, p)  # type: ignore[misc]


def of_frameworks(running: Servers, python: str) -> Cases:
    """Frameworks, disturbed every half second."""
    for script in sorted(SCRIPTS.glob("*.py")):
        for way in Way:
            name = f"{script.stem} {way.value}"
            yield name, lambda s=script, w=way: disturbed(running, [python, s], w, 0.5)  # type: ignore[misc]


def disturbed(
    running: Servers, command: Command, way: Way, pause: float, program: Program | None = None
) -> Result:
    """A program that is disturbed again and again. One that fails natively shows nothing here."""
    native = run(command, native_environment(), SECONDS)
    if native.status:
        return {"same": True, "native": native.status}
    with unrest(running, way, pause) as told:
        remote = run(command, guest_environment(running.first.settings()), SECONDS)
    return compared(native, remote, told, in_any_order=program is not None and program.sorted_output)


def compared(native: Outcome, remote: Outcome, told: Told, in_any_order: bool = False) -> Result:
    """Whether it did what it does natively, how often it was disturbed, and what it said if it did not."""
    here, there = (outcome.stdout.splitlines() for outcome in (native, remote))
    if in_any_order:
        here, there = sorted(here), sorted(there)
    same = remote.status == native.status and there == here
    failure = {"stdout": remote.stdout[-1000:], "stderr": remote.stderr[-2000:], "status": remote.status}
    return {"same": same, **told.as_json()} | ({} if same else failure)


PARTS: dict[str, Callable[[Servers, str], Cases]] = {
    "rounds": in_rounds,
    "frameworks": of_frameworks,
    "programs": of_the_suite,
}

if __name__ == "__main__":
    sys.exit(main())
