"""Names that an option takes, and what to say of one that it does not."""

from __future__ import annotations

from collections.abc import Iterable

from ..settings.options import meant
from .errors import CliError, Exit


def check_known(option: str, name: str, known: Iterable[str], kind: str = "thing") -> None:
    """Raise CliError unless the name is one of these; it says them all, and which was probably meant."""
    names = list(known)
    if name in names:
        return
    what = f"{option} {name or repr(name)}".strip()
    raise CliError(
        Exit.USAGE, f"{what}: no such {kind}{meant(name, names)}", f"choose from {', '.join(names)}"
    )
