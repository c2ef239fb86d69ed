"""How many lines are written by hand for each function, in the guest and in the engine, found by their names.

Counted in the guest are the function itself (`gf_<symbol>`), its overridden steps (`gf_<symbol>_<step>`), and
what it `calls` if no other function does; in the engine its step `<symbol>_call` and what `server: custom`
leaves to `on_<symbol>`. What several functions are made of is nobody's own.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from .model import By, Class, Spec, Variant

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "guest" / "src"
ENGINE = ROOT / "apiserver" / "core"
# What both libraries share is named DRIVER(symbol) there, and gf_symbol in the guest.
SHARED = ROOT / "native" / "driver_interop"
BEGIN = re.compile(r"^\w[\w \*]*?\b(?:(gf_\w+)|DRIVER\((\w+)\))\(")
CYTHON = re.compile(r"^cdef [\w \*]*?\b(on_\w+|\w+_call)\(")


def functions(folder: Path = SOURCES) -> dict[str, int]:
    """Lines of every function in the guest's sources, its first and last one included."""
    found: dict[str, int] = {}
    shared = sorted(SHARED.glob("*.c.h")) if folder == SOURCES else []
    for file in [*sorted(folder.glob("*.c")), *shared]:
        lines = file.read_text(encoding="utf-8").split("\n")
        for begin, line in enumerate(lines):
            match = BEGIN.match(line)
            if match is None or line.endswith(";"):
                continue
            end = next((i for i in range(begin, len(lines)) if lines[i] in ("}", "{}")), None)
            declares = next((i for i in range(begin, len(lines)) if lines[i].endswith(";")), len(lines))
            opens = next((i for i in range(begin, len(lines)) if "{" in lines[i]), len(lines))
            if end is not None and opens < declares:
                found[match[1] or f"gf_{match[2]}"] = end - begin + 1
    return found


def of_guest(spec: Spec, folder: Path = SOURCES) -> dict[str, int]:
    """Lines by hand for each carried function, by symbol; 0: its entry in the spec says all."""
    lines = functions(folder)
    carried = [v for v in spec.driver.variants if v.alias is None and v.klass is not Class.UNSUPPORTED]
    callers = Counter(v.calls.function for v in carried if v.calls is not None)

    def of(variant: Variant) -> int:
        if variant.guest is By.CUSTOM:
            return lines.get(f"gf_{variant.symbol}", 0)
        own = [f"gf_{variant.symbol}_{step.value}" for step in variant.guest_steps]
        if variant.calls is not None and callers[variant.calls.function] == 1:
            own.append(variant.calls.function)
        return sum(lines.get(name, 0) for name in own)

    return {variant.symbol: of(variant) for variant in carried}


def of_server(spec: Spec, folder: Path = ENGINE) -> dict[str, int]:
    """Lines by hand for each operation that has a message, by symbol; 0: all of it is generated."""
    found: dict[str, int] = {}
    for file in sorted(folder.glob("*.pxi")):
        lines = file.read_text(encoding="utf-8").split("\n")
        for begin, line in enumerate(lines):
            if match := CYTHON.match(line):
                after = (i for i in range(begin + 1, len(lines)) if lines[i] and not lines[i].startswith(" "))
                body = lines[begin : next(after, len(lines))]
                found[match[1]] = len("\n".join(body).rstrip().split("\n"))
    return {v.symbol: found.get(f"{v.symbol}_call", found.get(f"on_{v.symbol}", 0)) for v in spec.operations}
