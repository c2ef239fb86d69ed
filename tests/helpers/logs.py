"""Logs of processes that run beside a test: shown with its failure."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

SHOWN = 20_000  # characters, the last ones

_kept: list[Path] = []


@contextlib.contextmanager
def shown_on_failure(log: Path) -> Iterator[None]:
    """As long as it is written."""
    _kept.append(log)
    try:
        yield
    finally:
        _kept.remove(log)


def sections() -> list[tuple[str, str]]:
    """Title and text of each."""
    return [(str(log), log.read_text(errors="replace")[-SHOWN:]) for log in _kept if log.exists()]
