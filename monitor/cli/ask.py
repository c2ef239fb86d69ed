"""Asks before something is lost."""

from __future__ import annotations

import sys

from .errors import CliError, Exit


def confirm(question: str, yes: bool) -> None:
    """Returns if the answer is yes; a script has to say so with --yes."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise CliError(Exit.USAGE, f"{question} Nobody is there to answer", "add --yes")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CliError(Exit.FAILED, "nothing was changed")
