"""The one exception of this package."""

from __future__ import annotations

SHOWN = 300  # characters of what a text says: a number or a name may have a million


def _cut(said: str) -> str:
    return said if len(said) <= SHOWN else f"{said[:SHOWN]}..."


class PtxError(Exception):
    """PTX that this compiler refuses: which kernel, which source line, its text and why."""

    def __init__(self, kernel: str, line: int, text: str, reason: str) -> None:
        self.kernel = kernel
        self.line = line
        self.text = text
        self.reason = reason
        where = f"{_cut(kernel)}: " if kernel else ""
        what = f": {_cut(text)}" if text else ""
        super().__init__(f"{where}line {line}: {_cut(reason)}{what}")


class LinkError(Exception):
    """Modules that do not make one."""


class DefinedTwice(LinkError):
    def __init__(self, name: str, first: str, second: str) -> None:
        super().__init__(
            f"error   : Multiple definition of '{name}' in '{second}', first defined in '{first}'"
        )


class OtherPrototype(LinkError):
    def __init__(self, name: str, first: str, second: str) -> None:
        super().__init__(
            f"error   : Prototype doesn't match for '{name}' in '{second}', first defined in '{first}'"
        )


class NotDefined(LinkError):
    def __init__(self, name: str, where: str, hint: str = "") -> None:
        super().__init__(f"error   : Undefined reference to '{name}' in '{where}'{hint}")
