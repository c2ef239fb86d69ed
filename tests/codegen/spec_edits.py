"""A copy of the spec with one text replaced: what mistakes look like."""

from __future__ import annotations

import shutil
from pathlib import Path

from codegen.load import SPECS
from tests.helpers.spec_text import entry


def edited(folder: Path, file: str, old: str, new: str) -> tuple[Path, int]:
    """The folder of the edited copy of the spec, and the line where `old` began in its file.

    `file` may be a folder: the text is edited in the one file that has it.
    """
    specs = folder / "specs"
    for part in ("cuda", "gpuferry"):
        shutil.copytree(SPECS / part, specs / part)
    path = entry(specs, file, old)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(old, new), encoding="utf-8")
    return specs, text[: text.index(old)].count("\n") + 1


def shown(file: str, text: str) -> str:
    """How an error names the file in which the text stands."""
    return f"specs/{entry(SPECS, file, text).relative_to(SPECS)}"
