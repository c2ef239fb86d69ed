"""Names that an option takes, and what to say of one that it does not."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from .errors import CliError, Exit


def check_known(option: str, name: str, known: Iterable[str], kind: str = "thing") -> None:
    """Raise CliError unless the name is one of these; it says them all, and which was probably meant."""
    names = list(known)
    if name in names:
        return
    meant = get_close_matches(name.lower(), names, n=1)
    question = f"; did you mean {meant[0]}?" if meant else ""
    what = f"{option} {name or repr(name)}".strip()
    raise CliError(Exit.USAGE, f"{what}: no such {kind}{question}", f"choose from {', '.join(names)}")
