"""Files of facts: what they say, without running anything.

# driver-facts.md, section 3, digest 0123abcd
@start                          what every row of the file finds done
cuInit(0) -> 0
== cuMemAlloc(0)                a row of driver-facts.md, by its first words
cuMemAlloc_v2(&p, 0) -> 1       a call and its result, or several that are right: (1, 201)
p == 0                          what must be true; or any other statement of Python
! alone                         in a process of its own
! fresh                         in one that has made no call before, @start included
! devices: 3                    in a program that has so many, which has made no call before
! by: graph_conditional.c       programs of tests/programs show it, natively and remotely (tests/differential)
! not: it needs machine code    no check, and why
! differs: a bug of ours        it fails on both drivers as yet; `differs remotely`, `differs natively`: there
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).parent
PROGRAMS = FOLDER.parent / "programs"
MARKS = ("alone", "fresh", "devices", "by", "not", "differs", "differs remotely", "differs natively")


@dataclass
class Row:
    """One fact: how it is shown, or why it is not."""

    words: str
    number: int
    steps: list[str] = field(default_factory=list)
    marks: dict[str, str] = field(default_factory=dict)

    @property
    def devices(self) -> int:
        """How many its program has, if they are several; else 0."""
        return int(self.marks.get("devices", "0"))

    @property
    def programs(self) -> list[str]:
        """Those that show it in its stead."""
        return self.marks["by"].split(", ") if "by" in self.marks else []

    @property
    def shown(self) -> bool:
        """Whether anything fails if it is not so."""
        return bool(self.steps or self.programs)

    def differs(self, where: str) -> str | None:
        """Why it is known to fail `natively` or `remotely`."""
        return self.marks.get("differs") or self.marks.get(f"differs {where}")


@dataclass
class Section:
    """One file, which is one section of driver-facts.md."""

    path: Path
    number: int
    digest: str
    start: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)


def files() -> list[Path]:
    """Of all sections, in their order."""
    return sorted(FOLDER.glob("section_*.facts"))


def read(path: Path) -> Section:
    """Whatever is no row of this language is an error that names its line."""
    first, *lines = path.read_text(encoding="utf-8").splitlines()
    _, number, digest = (part.split()[-1] for part in first.split(","))
    section = Section(path, int(number), digest)
    steps = section.start
    for count, line in enumerate(lines, 2):
        where = f"{path.name}:{count}"
        if line.startswith("== "):
            section.rows.append(Row(line[3:], count))
            steps = section.rows[-1].steps
        elif line.startswith("! "):
            mark, _, why = line[2:].partition(": ")
            if mark not in MARKS or (mark in ("alone", "fresh")) == bool(why):
                raise ValueError(f"{where}: no mark: {line}")
            section.rows[-1].marks[mark] = why
        elif line.startswith(" ") and steps:
            steps[-1] += "\n" + line
        elif line and not line.startswith("#") and line != "@start":
            steps.append(line)
    for row in section.rows:
        if bool(row.steps) + len(row.marks.keys() & {"by", "not"}) != 1:
            raise ValueError(f"{path.name}:{row.number}: a row has steps, or says who shows it or why not")
        if missing := [name for name in row.programs if not (PROGRAMS / name).exists()]:
            raise ValueError(f"{path.name}:{row.number}: there is no program {missing[0]}")
    return section
