"""A copy of the spec with one text replaced: what mistakes look like."""

from __future__ import annotations

import shutil
from pathlib import Path

from codegen.load import SPECS


def edited(folder: Path, file: str, old: str, new: str) -> tuple[Path, int]:
    """The folder of the edited copy, and the line where `old` began."""
    specs = folder / "specs"
    for part in ("cuda", "gpuferry"):
        shutil.copytree(SPECS / part, specs / part)
    path = specs / file
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{old!r} is there {text.count(old)} times"
    path.write_text(text.replace(old, new), encoding="utf-8")
    return specs, text[: text.index(old)].count("\n") + 1
