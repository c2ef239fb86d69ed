"""What every layer of the generator names: a place in a spec file, a mistake there, access to memory."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Access(Enum):
    """What a call does with device memory."""

    READ = "read"
    WRITE = "write"
    READWRITE = "readwrite"


@dataclass(frozen=True)
class Where:
    """A place in a spec file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class SpecError(Exception):
    """A mistake in the spec: where, what, and what to do about it."""

    def __init__(self, where: Where, cause: str, remedy: str) -> None:
        super().__init__(f"{where}: {cause}\n    {remedy}")
        self.where = where
