"""Runs the rows of one file against the driver that this process was given: `python show.py FILE [ROW]`.

A row that needs several devices is run alone, if it is named by its number. It prints JSON: by the number
of each row what was not so. Rows that are alone or fresh, and all others together, run in processes that
are forked before the driver is touched.
"""

from __future__ import annotations

import ctypes
import functools
import json
import re
import sys
import traceback
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[2])]

from tests.facts import children, language, scope  # noqa: E402

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


@functools.cache
def management() -> Any:
    return ctypes.CDLL("libnvidia-ml.so.1")


def constants() -> dict[str, int]:
    headers = toolkit() / "include"
    return scope.constants(headers / "cuda.h", headers / "driver_types.h")


def wrong(step: str, names: scope.Scope) -> str | None:
    """What is not as the step says."""
    code = VARIABLE.sub(r'at("\1")', step)
    try:
        if found := ARROW.fullmatch(code):
            given, right = eval(found[1], names), eval(found[2], names)
            return (
                None if given in (right if isinstance(right, tuple) else (right,)) else f"{step}, but {given}"
            )
        try:
            expression = compile(code, "step", "eval")
        except SyntaxError:
            exec(code, names)
            return None
        return None if eval(expression, names) not in (False, 0) else f"not so: {step}"
    except Exception:
        return f"{step}: {traceback.format_exc(limit=-1)}"


def first_wrong(steps: list[str], names: scope.Scope) -> str | None:
    return next(filter(None, (wrong(step, names) for step in steps)), None)


def together(start: list[str], rows: list[tuple[int, language.Row]], say: children.Say) -> None:
    """Rows in one process, behind `start`."""
    names = scope.Scope({"cu": [driver, runtime], "nvml": [management]}, constants())
    names["PTX"] = (language.FOLDER / "kernels.ptx").read_bytes()
    if found := first_wrong(start, names):
        raise RuntimeError(f"@start: {found}")
    for number, row in rows:
        say(number, None)
        say(number, first_wrong(row.steps, names.copy_for_row()) or "")


def main() -> None:
    section = language.read(Path(sys.argv[1]))
    constants()  # once for all processes
    if len(sys.argv) > 2:
        (named,) = [(row.number, row) for row in section.rows if row.number == int(sys.argv[2])]
        print(json.dumps(children.each([named], functools.partial(together, []))))
        return
    shown = [(row.number, row) for row in section.rows if row.steps and not row.devices]
    apart = [(number, row) for number, row in shown if row.marks.keys() & {"alone", "fresh"}]
    rest = [item for item in shown if item not in apart]
    results = children.each(rest, functools.partial(together, section.start))
    for number, row in apart:
        start = [] if "fresh" in row.marks else section.start
        results |= children.each([(number, row)], functools.partial(together, start))
    print(json.dumps(results))


if __name__ == "__main__":
    main()
