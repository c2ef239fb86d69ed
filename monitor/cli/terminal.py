"""What tables are printed on. Names in them are their owners' own: they are text, and no markup."""

from __future__ import annotations

import sys

from rich.console import Console

WIDE = 200  # characters of a line that nobody looks at: it is whole


def console(width: int = WIDE) -> Console:
    """Not wider than the terminal for eyes; `width` for a pipe."""
    return plain() if sys.stdout.isatty() else plain(width)


def plain(width: int | None = None) -> Console:
    """A console of this width, or of the terminal's, that shows brackets and colons as they are."""
    return Console(width=width, markup=False, emoji=False)
