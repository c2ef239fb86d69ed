"""What a session may have of a GPU's time: the one place where turns learn it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..policy.portion import FULL
from ..sessions.session import Session

VARIABLE = "GPUFERRY_SHARES"  # by function: NAME=REQUEST:LIMIT,… in thousandths; for tests and experiments


class Wishes(NamedTuple):
    """Thousandths of each GPU's time; 0: none said."""

    request: int = 0
    limit: int = 0
    function: str = ""
    owner: str = ""  # whose sessions go on where others of his have ended


def shares_of(session: Session | None, stated: Mapping[str, tuple[int, int]]) -> Wishes:
    """What this session may have: what it asked for, unless `stated` (`read_stated`) says something of its
    function.
    """
    if session is None:
        return Wishes()
    function, portion = session.hello.function, session.hello.portion
    asked = portion.request, portion.limit if portion.limit < FULL else 0
    processes = max(1, len(session.lease.members))  # the program's share is divided among them
    # A thousandth at least: none would say nothing, and let each have all.
    request, limit = (share and max(1, share // processes) for share in stated.get(function, asked))
    return Wishes(request, limit, function, session.hello.tenant or function or session.hello.program)


def read_stated(text: str) -> dict[str, tuple[int, int]]:
    """NAME=REQUEST:LIMIT,… as a mapping. Raises ValueError."""
    found = {}
    for item in filter(None, text.split(",")):
        name, _, figures = item.partition("=")
        request, _, limit = figures.partition(":")
        found[name] = (int(request), int(limit))
    return found
