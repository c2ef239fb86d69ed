"""The programs of tests/programs and what their header comments declare.

A header comment says in words what the program proves; a line `// key: value` in it declares

    compile:  flags added to the compiler's
    device:   `sim` if it must not run on a real GPU, and why
    suite:    `long` (slow to build or run) or `killed` (never ends by itself)
    compare:  `sorted` if the order of output lines is not promised
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .paths import PROGRAMS

_KEYS = ("compile", "device", "suite", "compare")
_SHARED = ("kernels.cu",)


@dataclass(frozen=True)
class Program:
    """One source file of tests/programs."""

    source: Path
    proves: str
    flags: tuple[str, ...] = ()
    only_sim: bool = False
    suite: str = "default"
    sorted_output: bool = False

    @property
    def name(self) -> str:
        return self.source.stem


def programs(suite: str = "default") -> list[Program]:
    """All programs of one suite, by name."""
    sources = [p for p in sorted(PROGRAMS.iterdir()) if p.suffix in (".c", ".cu") and p.name not in _SHARED]
    return [program for program in map(_read, sources) if program.suite == suite]


def program(name: str) -> Program:
    """The program of this name."""
    return _read(next(p for suffix in (".c", ".cu") if (p := PROGRAMS / (name + suffix)).exists()))


def _read(source: Path) -> Program:
    words: list[str] = []
    declared: dict[str, str] = {}
    for line in source.read_text().splitlines():
        if not line.startswith("//"):
            break
        key, colon, value = line.removeprefix("//").strip().partition(": ")
        if colon and key in _KEYS:
            declared[key] = value
        else:
            words.append(line.removeprefix("//").strip())
    return Program(
        source=source,
        proves=" ".join(words),
        flags=tuple(declared.get("compile", "").split()),
        only_sim=declared.get("device", "").startswith("sim"),
        suite=declared.get("suite", "default"),
        sorted_output=declared.get("compare") == "sorted",
    )
