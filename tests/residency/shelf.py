"""Files of copies in the model: how many bytes of host memory and of the disk they take."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path


class File:
    """A file of copies: it lies on the shelf until all who have it open closed it."""

    def __init__(self, shelf: Shelf, size: int, on_disk: bool) -> None:
        self._shelf, self.size, self.on_disk = shelf, size, on_disk
        self.name = str(id(self))
        self.outgrown = False
        self.taken = True
        self.monitors = True  # the monitor has it open
        self.theirs = False  # an API server has
        shelf.files.add(self)

    def close(self) -> None:
        assert self.monitors
        self.monitors = False
        self._shelf.look(self)

    def empty(self) -> None:
        assert self.on_disk
        self.size = 0
        self.close()

    def given_back(self) -> None:
        self.theirs = False
        self._shelf.look(self)


@dataclass
class Shelf:
    """All files of copies that there are."""

    host: int
    disk: int
    files: set[File] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)  # which would be lost in the monitor's log

    def look(self, file: File) -> None:
        if not (file.monitors or file.theirs):
            self.files.discard(file)

    def used(self, on_disk: bool) -> int:
        return sum(file.size for file in self.files if file.on_disk == on_disk)

    def make(self, size: int, on_disk: bool) -> File:
        made = File(self, size, on_disk)
        for kind, used, most in (
            ("host memory", self.used(False), self.host),
            ("disk", self.used(True), self.disk),
        ):
            if used > most:
                self.faults.append(f"{used - most} bytes of {kind} more than there are")
        return made

    def in_memory(self, size: int) -> File:
        return self.make(size, False)

    async def put_on_disk(self, folder: Path, size: int) -> File:
        await asyncio.sleep(0.01)
        return self.make(size, True)
