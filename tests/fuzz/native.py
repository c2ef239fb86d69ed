"""Runs the C targets, each in a jail: seeds from the contract, the corpus that is kept, changed inputs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gpuferry.monitor.jail import command, view

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


def in_jail(
    program: Path, arguments: Iterable[str], seen: Iterable[Path], writable: Iterable[Path]
) -> subprocess.CompletedProcess[str]:
    """Run a program that an input may take over: it has these folders, libraries, and nothing else."""
    bwrap = shutil.which("bwrap")
    assert bwrap, "bubblewrap is not installed"
    files = [path for path in view.LIBRARIES if os.path.lexists(path)]
    rules = command.Rules(
        bwrap, os.geteuid() == 0, [*files, str(program), *map(str, seen)], view.DEVICES, SANITIZERS, 0, b""
    )
    cell = command.Cell(0, {str(folder): str(folder) for folder in writable})
    return subprocess.run(
        [bwrap, *command.arguments(rules, cell), "--", str(program), *arguments],
        env={},
        capture_output=True,
        text=True,
        check=False,
    )


def run(program: Path, target: str, inputs: int, seed: int = 1, grown: Path | None = None) -> Outcome:
    """Try so many inputs, those of the corpus among them. Raises Found."""
    begin = FOLDER / "begin" / target
    seeds.write(target, begin)
    kept = CORPUS / target
    for path in kept.iterdir() if kept.is_dir() else ():
        (begin / path.name).write_bytes(path.read_bytes())
    crash = FOLDER / "crashes" / f"{target}-{seed}-{os.getpid()}"
    told = [target, str(begin), str(inputs), str(seed), str(crash)]
    folders = [crash.parent]
    if grown:
        folders.append(grown)
        told.append(str(grown))
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    done = in_jail(program, told, [begin], folders)
    last = LAST.search(done.stdout)
    if done.returncode != 0 or not last:
        kept_as = f"the input: {crash}" if crash.exists() else "no single input: see what was left behind"
        raise Found(f"{target}, seed {seed}: exit {done.returncode}; {kept_as}\n{done.stderr[-6000:]}")
    return Outcome(int(last[2]), int(last[3]))
