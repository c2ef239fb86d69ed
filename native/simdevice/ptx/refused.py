"""Instructions that a text may hold and no kernel here can run: found when it is loaded, by their names.

A launch would find them too, but only those of the kernel that is launched, when the program no longer
expects it. The text is searched for words, not parsed, since most kernels of an image never run.
"""

from __future__ import annotations

import re
from bisect import bisect_right

from .errors import PtxError
from .model import Function
from .module import Module, Unit

# Words that only these instructions hold, and how the instructions begin.
_INSTRUCTIONS = {
    "wgmma": r"wgmma\.",
    "tcgen05": r"tcgen05\.",
    "multimem": r"multimem\.",
    "tensormap": r"tensormap\.",
    ".bulk": r"cp\.(?:reduce\.)?async\.bulk\.(?:prefetch\.)?tensor\b[\w.:]*\.(?:im2col|tile::)",
    ".block_scale": r"mma\.sp\b[\w.:]*\.block_scale\b",
}
_PATTERNS = {word: re.compile(rf"(?<![\w$%.])(?:{begin})[\w.:]*") for word, begin in _INSTRUCTIONS.items()}


def check_instructions(module: Module) -> None:
    """Raises PtxError for the first instruction, or what a kernel asks of its launch, that cannot be here."""
    for unit in module.units:
        text = unit.functions[0].text if unit.functions else ""
        patterns = [pattern for word, pattern in _PATTERNS.items() if word in text]
        if patterns:
            _search(unit, text, patterns)
        for function in unit.functions:
            if "blocksareclusters" in function.directives:
                raise PtxError(function.name, function.line, "", "a launch counts blocks here, not clusters")


def _search(unit: Unit, text: str, patterns: list[re.Pattern[str]]) -> None:
    functions = sorted((each for each in unit.functions if each.start >= 0), key=lambda each: each.start)
    starts = [each.start for each in functions]

    def function_at(position: int) -> Function | None:
        before = bisect_right(starts, position)
        return functions[before - 1] if before and position < functions[before - 1].end else None

    found = []
    for pattern in patterns:
        inside = (each for each in pattern.finditer(text) if function_at(each.start()) is not None)
        first = next(inside, None)
        found += [(first.start(), first[0])] if first is not None else []
    if found:
        position, name = min(found)
        where = function_at(position)
        assert where is not None
        line = text.count("\n", 0, position) + 1
        raise PtxError(where.name, line, "", f"'{name}' does not exist on the simulated device")
