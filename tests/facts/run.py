"""Runs the rows of one file against the driver that this process was given: `python run.py FILE`.

A line of JSON for each row: its number, and what was not so. Rows that are alone or fresh, and all others together, run
in processes that are forked before the driver is touched. Where one dies, the next row goes on in another.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent)]

import language  # noqa: E402
import scope  # noqa: E402

VARIABLE = re.compile(r"&(\w+)")
ARROW = re.compile(r"(.*) -> (.*)", re.DOTALL)


def toolkit() -> Path:
    spec = find_spec("nvidia")
    return next(
        Path(place) / "cu13"
        for place in (spec.submodule_search_locations or () if spec else ())
        if (Path(place) / "cu13" / "include" / "cuda.h").exists()
    )


@functools.cache
def driver() -> Any:
    return ctypes.CDLL("libcuda.so.1")


@functools.cache
def runtime() -> Any:
    return ctypes.CDLL(str(next((toolkit() / "lib").glob("libcudart.so.*"))))


def wrong(step: str, names: scope.Scope) -> str | None:
    """What is not as the step says."""
    code = VARIABLE.sub(r'at("\1")', step)
    try:
        if found := ARROW.fullmatch(code):
            given, right = eval(found[1], names), eval(found[2], names)  # noqa: S307
            return None if given in (right if isinstance(right, tuple) else (right,)) else f"{step}, but {given}"
        try:
            expression = compile(code, "step", "eval")
        except SyntaxError:
            exec(code, names)  # noqa: S102
            return None
        return None if eval(expression, names) not in (False, 0) else f"not so: {step}"  # noqa: S307
    except Exception:
        return f"{step}: {traceback.format_exc(limit=-1)}"


def first_wrong(steps: list[str], names: scope.Scope) -> str | None:
    return next(filter(None, (wrong(step, names) for step in steps)), None)


def together(rows: list[language.Row], start: list[str], known: dict[str, int], say: Callable[..., None]) -> None:
    names = scope.Scope([driver, runtime], known)
    names["PTX"] = (language.FOLDER / "kernels.ptx").read_bytes()
    if found := first_wrong(start, names):
        raise RuntimeError(f"@start: {found}")
    for row in rows:
        say(row.number, None)
        mine = names.copy_for_row()
        say(row.number, first_wrong(row.steps, mine) or "")


def forked(work: Callable[[Callable[..., None]], None]) -> tuple[dict[int, str], int | None, str]:
    """What a child found of each row, the row in which it died, and how it ended."""
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(here)
        signal.alarm(60)
        try:
            work(lambda number, found: os.write(there, (json.dumps([number, found]) + "\n").encode()))
        except BaseException:
            os.write(there, (json.dumps([0, traceback.format_exc()]) + "\n").encode())
        finally:
            os._exit(0)
    os.close(there)
    found: dict[int, str] = {}
    began: int | None = None
    with os.fdopen(here) as lines:
        for line in lines:
            number, what = json.loads(line)
            began = number if what is None else None
            if what is not None:
                found[number] = what
    status = os.waitpid(child, 0)[1]
    return found, began, f"the process died, status {status}"


def main() -> None:
    section = language.read(Path(sys.argv[1]))
    headers = toolkit() / "include"
    known = scope.constants(headers / "cuda.h", headers / "driver_types.h")
    results: dict[int, str] = {}

    def run(rows: list[language.Row], start: list[str]) -> None:
        while rows:
            found, died, how = forked(lambda say: together(rows, start, known, say))
            if 0 in found:
                raise SystemExit(found[0])
            results.update(found)
            if died is not None:
                results[died] = how
            rows = [row for row in rows if row.number not in results] if died is not None else []

    shown = [row for row in section.rows if row.steps]
    run([row for row in shown if not row.marks.keys() & {"alone", "fresh"}], section.start)
    for row in shown:
        if row.marks.keys() & {"alone", "fresh"}:
            run([row], [] if "fresh" in row.marks else section.start)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
