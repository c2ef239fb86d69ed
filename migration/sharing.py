"""What the processes of a program share: each carries what it has made, and opens what the others have."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from gpuferry.specs._generated.wire import REQUESTS

from . import frames
from .abc import Movable, Wire
from .errors import Refused
from .frames import RANGE, Kept

AT_ONCE = 32  # things that a destination asks others for
EXPORT_MEMORY = REQUESTS["sessionExportMemory"]
EXPORT_EVENT = REQUESTS["sessionExportEvent"]
FIND = REQUESTS["sessionImportFind"]
MAP = REQUESTS["sessionImportMap"]
IMPORT_EVENT = REQUESTS["sessionImportEvent"]
CLAIM = REQUESTS["sessionMemoryClaim"]
CLAIM_ON = REQUESTS["sessionMemoryClaimOn"]
ALIAS = REQUESTS["sessionMemAlias"]
EVENT_CREATE = REQUESTS["cuEventCreate"]
HANDLE = REQUESTS["cuEventDestroy_v2"]
OPERATIONS = frames.OPERATIONS
ORPHAN = OPERATIONS["sessionRestoreOrphan"]
MAPS = OPERATIONS["sessionMemMap"], OPERATIONS["sessionMemMapOn"]
ACCESSES = OPERATIONS["sessionMemAccess"], OPERATIONS["sessionMemAccessOn"]
T = TypeVar("T")


class Shared:
    """What one process shares with the others of its program."""

    def __init__(
        self, core: Movable, wire: Wire, sessions: Mapping[int, int], lacks: Collection[int]
    ) -> None:
        """`sessions`: of the program's processes, by their seats in the lease's book. `lacks`: wire ids that
        the destination does not know.
        """
        self._lacks = lacks
        self._core = core
        self._wire = wire
        self._sessions = sessions

    def claim(self) -> None:
        """Claim for the destination what the session has claimed here: nobody else may have it there."""
        for device, wanted in enumerate(self._core.claimed):
            if wanted and device == 0:
                self._wire.tell("sessionMemoryClaim", CLAIM.pack(wanted))
            elif wanted:
                self._wire.tell("sessionMemoryClaimOn", CLAIM_ON.pack(wanted, device))

    def show(self) -> None:
        """Export at the destination what is exported here, once it is known there what nobody has made."""
        for address, size in self._core.carried() if ORPHAN not in self._lacks else ():
            self._wire.tell("sessionRestoreOrphan", RANGE.pack(address, size))
        for token, address, size, event in self._core.exports():
            if event:
                self._wire.tell("sessionExportEvent", EXPORT_EVENT.pack(token, event))
            else:
                self._wire.tell("sessionExportMemory", EXPORT_MEMORY.pack(token, address, size))
        self._wire.settle()

    def open(self) -> int:
        """Let the destination open what the others have made; bytes that it has mapped of that."""
        total = 0
        for some in _batches(self._core.imports()):
            for token, session, seat, _, _ in some:
                exporter = session or self._sessions.get(seat, 0)
                self._wire.tell("sessionImportFind", FIND.pack(exporter, token))
            self._settle("memory")
            for token, _, _, address, size in some:
                if size:
                    self._wire.tell("sessionImportMap", MAP.pack(token, address))
                    total += size
            self._wire.settle()
        for events in _batches(self._core.opened_events()):
            for token, session, _, _ in events:
                self._wire.tell("sessionImportFind", FIND.pack(session, token))
            self._settle("an event")
            for token, _, handle, context in events:
                self._wire.tell("sessionImportEvent", IMPORT_EVENT.pack(token, handle), context=context)
            self._wire.settle()
        for frame, answer in self._core.opened_aliases():
            self._wire.replay(Kept(frame, answer), frames.describe(frame))
        self._wire.settle()
        return total

    def _settle(self, what: str) -> None:
        try:
            self._wire.settle()
        except Refused:
            raise Refused(
                f"it has {what} open that another process of its program has made and has destroyed since"
            ) from None


class OwnFrames:
    """Which of a session's frames are about what it has made itself. The others are about memory and events
    that it has opened, which come when all else is there.
    """

    def __init__(self) -> None:
        self._homes: dict[int, int] = {}  # sizes of mappings, by address
        self._aliases: dict[int, int] = {}
        self._events: set[int] = set()

    def only(self, kept: Iterable[Kept]) -> list[Kept]:
        """Those of the frames that are to be played, in their order."""
        return [each for each in kept if self._is_own(each.frame)]

    def missing(self, kept: Iterable[Kept]) -> list[Kept]:
        """Of a whole journal, the frames of memory that has become the session's own since it was opened."""
        return list(self._lacking(kept))

    def _lacking(self, kept: Iterable[Kept]) -> Iterator[Kept]:
        shown = None
        for each in kept:
            operation = frames.header(each.frame).op
            if operation in MAPS or operation == OPERATIONS["sessionMemAlias"]:
                address, _ = RANGE.unpack_from(each.frame, frames.HEADER.size)
                known = self._homes if operation in MAPS else self._aliases
                shown = None
                if not _within(known, address, 1):
                    shown = address
                    yield each
            elif operation in ACCESSES:
                address, _ = RANGE.unpack_from(each.frame, frames.HEADER.size)
                if address == shown:
                    yield each

    def _is_own(self, frame: bytes) -> bool:
        operation, at = frames.header(frame).op, frames.HEADER.size
        if operation in MAPS:
            address, size = RANGE.unpack_from(frame, at)
            self._homes[address] = size
        elif operation == OPERATIONS["sessionMemUnmap"]:
            return _forget(self._homes, *RANGE.unpack_from(frame, at))
        elif operation == OPERATIONS["sessionMemAlias"]:
            address, size, home = ALIAS.unpack_from(frame, at)
            if not _within(self._homes, home, size):
                return False
            self._aliases[address] = size
        elif operation == OPERATIONS["sessionMemUnalias"]:
            return _forget(self._aliases, *RANGE.unpack_from(frame, at))
        elif operation in ACCESSES:
            return bool(_within(self._aliases, *RANGE.unpack_from(frame, at)))
        elif operation == OPERATIONS["cuEventCreate"]:
            self._events.add(EVENT_CREATE.unpack_from(frame, at)[0])
        elif operation == OPERATIONS["cuEventDestroy_v2"]:
            (handle,) = HANDLE.unpack_from(frame, at)
            if handle not in self._events:
                return False
            self._events.discard(handle)
        return True


def _batches(found: Sequence[T]) -> Iterator[Sequence[T]]:
    for at in range(0, len(found), AT_ONCE):
        yield found[at : at + AT_ONCE]


def _within(ranges: Mapping[int, int], address: int, size: int) -> list[int]:
    return [begin for begin, length in ranges.items() if begin < address + size and address < begin + length]


def _forget(ranges: dict[int, int], address: int, size: int) -> bool:
    found = _within(ranges, address, size)
    for begin in found:
        end = begin + ranges.pop(begin)
        if begin < address:
            ranges[begin] = address - begin
        if end > address + size:
            ranges[address + size] = end - address - size
    return bool(found)
