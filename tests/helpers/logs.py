"""Logs of processes that run beside a test: shown with its failure."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

SHOWN = 20_000  # characters, the last ones

_written: list[Path] = []
_of_failures: list[tuple[str, str]] = []


@contextlib.contextmanager
def shown_on_failure(log: Path) -> Iterator[None]:
    """Show the end of this log with a failure of the test inside the block, even if it is gone by then."""
    _written.append(log)
    try:
        yield
    except BaseException:
        _of_failures.append(_end_of(log))
        raise
    finally:
        _written.remove(log)


def _end_of(log: Path) -> tuple[str, str]:
    return str(log), log.read_text(errors="replace")[-SHOWN:]


def sections() -> list[tuple[str, str]]:
    """Title and text of each log that is being written, or was when the test failed."""
    return [*_of_failures, *(_end_of(log) for log in _written if log.exists())]


def forget() -> None:
    """The next test's failure is none of these logs' business."""
    _of_failures.clear()
