"""Runs the C targets: seeds from the contract, the corpus that is kept, then changed inputs."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz import seeds
from tests.fuzz.building import FOLDER, HERE

CORPUS = HERE / "corpus"
SANITIZERS = {
    "ASAN_OPTIONS": "allocator_may_return_null=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}
LAST = re.compile(r"(\w+): (\d+) inputs, (\d+) branches\n$")


class Found(Exception):
    """An input that must not do what it did; the text has the sanitizer's words and where the input is."""


@dataclass(frozen=True)
class Outcome:
    """What a run came to."""

    inputs: int
    branches: int


def run(program: Path, target: str, inputs: int, seed: int = 1, grown: Path | None = None) -> Outcome:
    """Try so many inputs, those of the corpus among them. Raises Found."""
    begin = FOLDER / "begin" / target
    seeds.write(target, begin)
    kept = CORPUS / target
    for path in kept.iterdir() if kept.is_dir() else ():
        (begin / path.name).write_bytes(path.read_bytes())
    crash = FOLDER / f"crash-{target}-{seed}-{os.getpid()}"
    command = [str(program), target, str(begin), str(inputs), str(seed), str(crash)]
    if grown:
        grown.mkdir(parents=True, exist_ok=True)
        command.append(str(grown))
    done = subprocess.run(
        command, env=os.environ | SANITIZERS | {"LD_PRELOAD": ""}, capture_output=True, text=True, check=False
    )
    last = LAST.search(done.stdout)
    if done.returncode != 0 or not last:
        kept_as = f"the input: {crash}" if crash.exists() else "no single input: see what was left behind"
        raise Found(f"{target}, seed {seed}: exit {done.returncode}; {kept_as}\n{done.stderr[-6000:]}")
    return Outcome(int(last[2]), int(last[3]))
