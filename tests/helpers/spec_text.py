"""Where in the spec a text stands, for tests that replace it."""

from __future__ import annotations

from pathlib import Path


def entry(specs: Path, place: str, text: str) -> Path:
    """The file in which the text stands: `place`, or one of that folder. ValueError if not there once."""
    path = specs / place
    paths = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
    times = {file: file.read_text(encoding="utf-8").count(text) for file in paths}
    if sum(times.values()) != 1:
        raise ValueError(f"{place}: {text!r} is there {sum(times.values())} times")
    return max(times, key=times.__getitem__)
