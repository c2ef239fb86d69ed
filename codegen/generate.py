"""Runs every emitter of `emit/`, writes what changed, or says what is stale."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

from . import emit
from .model import Spec

ROOT = Path(__file__).resolve().parent.parent


def outputs(spec: Spec) -> dict[str, str]:
    """The text of every generated file, by its path from the root."""
    found: dict[str, str] = {}
    for module in sorted(info.name for info in pkgutil.iter_modules(emit.__path__)):
        for path, text in importlib.import_module(f"{emit.__name__}.{module}").outputs(spec).items():
            if "_generated" not in Path(path).parts:
                raise ValueError(
                    f"emit/{module}.py writes {path}: generated files live in folders called _generated"
                )
            found[path] = text
    return found


def stale(files: dict[str, str], root: Path = ROOT) -> list[str]:
    """Paths of generated files that are missing or not what the spec yields."""

    def current(path: str) -> str | None:
        file = root / path
        return file.read_text(encoding="utf-8") if file.exists() else None

    return [path for path, text in files.items() if current(path) != text]


def write(files: dict[str, str], root: Path = ROOT) -> list[str]:
    """Write the files that changed, and return their paths. A reader sees the old file or the new one."""
    changed = stale(files, root)
    for path in changed:
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_name(file.name + ".new")
        temporary.write_text(files[path], encoding="utf-8")
        temporary.replace(file)
    return changed
