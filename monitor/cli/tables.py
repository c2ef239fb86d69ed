"""Plain columns on stdout."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .errors import plain


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Left-aligned columns, as wide as their content; for eyes, `cut` and `awk`."""
    lines = [[plain(cell) for cell in line] for line in (header, *rows)]  # some are somebody else's words
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
