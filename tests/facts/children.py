"""Work in forked processes, which may die of it."""

from __future__ import annotations

import json
import os
import signal
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

LIMIT = "GPUFERRY_TEST_SECONDS"
SECONDS = int(os.environ.get(LIMIT, "60"))  # for one item; then it hangs
DIED = "the process died"
HUNG = "the process hung"

Item = TypeVar("Item")
Items = list[tuple[int, Item]]
Say = Callable[[int, Any], None]  # of an item by its number: None when it begins, and what it gave


def each(
    items: list[tuple[int, Item]], work: Callable[[list[tuple[int, Item]], Say], None]
) -> dict[int, Any]:
    """What `work` says of each item. Where its process dies or hangs, another goes on behind that item."""
    results: dict[int, Any] = {}
    while items:
        found, died, how = _forked(items, work)
        results.update(found)
        if died is None:
            break
        results[died] = how
        items = items[[number for number, _ in items].index(died) + 1 :]
    return results


def _forked(
    items: Items[Item], work: Callable[[Items[Item], Say], None]
) -> tuple[dict[int, Any], int | None, str]:
    """What was said, and the item in which the process died or hung."""
    here, there = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(here)

        def say(number: int, what: Any) -> None:
            signal.alarm(SECONDS)
            os.write(there, (json.dumps([number, what]) + "\n").encode())

        signal.alarm(SECONDS)
        try:
            work(items, say)
        except BaseException:
            say(-1, traceback.format_exc())
        finally:
            os._exit(0)
    os.close(there)
    found: dict[int, Any] = {}
    began: int | None = None
    with os.fdopen(here) as lines:
        for line in lines:
            number, what = json.loads(line)
            if number == -1:
                raise SystemExit(what)
            began = number if what is None else None
            if what is not None:
                found[number] = what
    _, status = os.waitpid(process, 0)
    hung = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM
    return found, began, HUNG if hung else DIED
