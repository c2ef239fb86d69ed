"""Logs of processes that run beside a test: shown with its failure."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

SHOWN = 20_000  # characters, the last ones

_kept: list[Path] = []


@contextlib.contextmanager
def shown_on_failure(log: Path) -> Iterator[None]:
    """Show the end of this log with a failure of the test inside the block."""
    _kept.append(log)
    try:
        yield
    finally:
        _kept.remove(log)


def sections() -> list[tuple[str, str]]:
    """Title and text of each log that is being written."""
    return [(str(log), log.read_text(errors="replace")[-SHOWN:]) for log in _kept if log.exists()]
