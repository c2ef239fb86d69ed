"""What two drivers may say otherwise of the same call."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

NOT_READY = 600
ADDRESS = 1 << 33  # and numbers beyond
UNTOUCHED = 0xA5A5A5A5  # what play.py puts behind a pointer
# Where several things are wrong, which of them is looked at first is open; tests/facts/matrix has one wrong.
MISUSE = {1, 101, 201, 224, 400, 401, 709, 801}
CAPTURE = {
    900,
    901,
    902,
    903,
    904,
    905,
    906,
    907,
    908,
}  # which may end a capture, so that what follows is open


@dataclass(frozen=True)
class Open:
    """Calls of which something is left open: whether work is done by now, or any of what is written."""

    calls: str
    reason: str
    when: bool = False  # not ready and done are alike
    outputs: bool = True  # what is written may be anything


OPEN: tuple[Open, ...] = (
    Open(r"cu(Stream|Event)Query", "work may be done or not", when=True, outputs=False),
    Open(r"cuEventElapsedTime(_v2)?", "time passes", when=True),
    Open(r"cuFuncIsLoaded", "when a function is loaded"),
    Open(r"cuMemGetInfo_v2|cuDeviceTotalMem_v2", "of a quota, less what the driver itself takes"),
    Open(
        r"cuGraphNodeGetToolsId|cuGraphNodeGetLocalId|cuGraphGetId|cuGraphExecGetId|cuStreamGetId|cuCtxGetId",
        "any number",
    ),
)


def alike(step: dict[str, Any], here: list[Any], there: list[Any]) -> bool | None:
    """Whether two drivers said the same of a call, but for what is open; None: so is all that follows."""
    for each in OPEN:
        if re.fullmatch(each.calls, step["call"]):
            if each.when and NOT_READY in (here[0], there[0]) and {here[0], there[0]} <= {0, NOT_READY}:
                return True
            if each.outputs:
                return bool(here[0] == there[0])
    if here[0] in MISUSE and there[0] in MISUSE:
        return True
    if {here[0], there[0]} & CAPTURE and {here[0], there[0]} <= CAPTURE | MISUSE and here[0] != there[0]:
        return None
    return here[0] == there[0] and (here[0] != 0 or same(here, there))


def same(here: Any, there: Any) -> bool:
    """Whether two outputs are, but for addresses that are a driver's own, and what it leaves untouched."""
    if isinstance(here, list) and isinstance(there, list):
        return len(here) == len(there) and all(map(same, here, there))
    if isinstance(here, int) and isinstance(there, int):
        halves = [(word & 0xFFFFFFFF, word >> 32) for word in (here, there)]
        alike = all(a == b or UNTOUCHED in (a, b) for a, b in zip(*halves, strict=True))
        return alike or min(here, there) >= ADDRESS
    return bool(here == there)
