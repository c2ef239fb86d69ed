"""What copies of sessions' memory have of host memory and of the disk: files, demotion, giving up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import structlog
from gpuferry.specs._generated import node_pb2

from ..pool.channel import HasFileno
from .books import Books, Entry
from .files import PAGE, CopyFile, handed_back, in_memory, let_go, on_disk
from .orders import Orders

log = structlog.get_logger()


class NoRoom(Exception):
    """A session cannot leave, or come back. The text says why."""


class Copies:
    """The copies of all sessions, on the event loop's thread; what they have is in the books before anybody
    else looks what is left. `is_busy`: whether an API server has an order that must be over before it gets
    another one; `is_wanted`: whether a session comes back, or waits to.
    """

    def __init__(
        self,
        books: Books,
        folder: Path,
        orders: Orders,
        is_busy: Callable[[int], bool],
        is_wanted: Callable[[Entry], bool],
        note: Callable[[Entry, Sequence[CopyFile]], bool],
        available: Callable[[], int],
    ) -> None:
        """`note`: writes down for the next monitor which files on the disk the session's copies have. False:
        it cannot. `available`: bytes of host memory that may be taken.
        """
        self._books = books
        self._folder = folder
        self._orders = orders
        self._is_busy = is_busy
        self._is_wanted = is_wanted
        self._note = note
        self._available = available
        self._demoted: set[int] = set()  # keys of API servers whose copies are moved to the disk
        self._giving_up: set[int] = set()  # keys of API servers that were ordered to give theirs up
        self._refused: set[int] = set()  # keys of API servers, whose sessions the log said to have no room

    # -- files

    @property
    def host_left(self) -> int:
        """Bytes that copies may still have of host memory: of what they may have, and of what there is."""
        return min(self._books.host_free, max(self._available() - self._books.host_promised, 0))

    async def files(self, entry: Entry, size: int, ahead: bool, spare: int = 0) -> list[CopyFile]:
        """Files of so many bytes in all, in memory as far as there is any; they are in the books. Raises
        NoRoom, also if fewer than `spare` would be left for copies of others.
        """
        try:
            self._check_spare(entry, size, spare)
            files = await self._files(entry, -(-max(size, 0) // PAGE) * PAGE, ahead)
        except NoRoom as error:
            if entry.server not in self._refused and not ahead:
                self._refused.add(entry.server)
                log.warning("a session cannot leave its device", session=entry.session, reason=str(error))
            raise
        self._refused.discard(entry.server)
        return files

    @property
    def room(self) -> int:
        """Bytes that all copies may have in all, of host memory and the disk."""
        return self.host_left + self._books.host_used + self._books.disk_free + self._books.disk_used

    def left(self, leaves: Entry | None = None) -> int:
        """Bytes that copies may still have, of host memory and the disk, once those are given up that nobody
        needs. `leaves`: it needs its own.
        """
        needless = sum(one.copy_bytes for one in self._books.needless() if one is not leaves)
        return self.host_left + self._books.disk_free + needless

    def _check_spare(self, entry: Entry, size: int, spare: int) -> None:
        if spare and self.left(entry) < size + spare:
            raise NoRoom(
                f"{size} bytes are needed for its copy, and {spare} for copies of those that leave when it"
                f" comes back: {self.left(entry)} of host memory (--away-memory) and disk (--disk) are left"
            )

    async def _files(self, entry: Entry, size: int, ahead: bool) -> list[CopyFile]:
        if not size and not entry.host_promised:
            return []
        for needless in self._books.needless():
            if self.host_left >= size:
                break
            if needless is not entry and needless.host_bytes and not self._is_busy(needless.server):
                await self.give_up(needless)
        if self.host_left < size and not ahead:
            await self._demote_for(entry, size)
        # What was promised to it may have been taken by others on this machine, before it was written.
        if entry.host_promised and self._available() < entry.host_promised:
            raise NoRoom(
                f"this machine has not the {entry.host_promised} bytes left that its copies may need"
            )
        for needless in self._books.needless():
            if self.host_left + self._books.disk_free >= size:
                break
            if needless is not entry and not self._is_busy(needless.server):
                await self.give_up(needless)
        memory = min(size, self.host_left // PAGE * PAGE)
        rest = size - memory
        if rest > self._books.disk_free:
            short = self._books.host_free - self.host_left
            why = f" ({short} more may be used, which this machine has not left)" if short else ""
            raise NoRoom(
                f"{size} bytes are needed for its copy: {memory} of host memory (--away-memory){why}"
                f" and {self._books.disk_free} of the disk (--disk) are left"
            )
        files = []
        entry.host_bytes += memory
        entry.disk_bytes += rest
        try:
            if memory:
                files.append(in_memory(memory))
            if rest:
                files.append(await on_disk(self._folder, rest))
        except BaseException as error:
            entry.host_bytes -= memory
            entry.disk_bytes -= rest
            for file in files:
                file.close()
            if not isinstance(error, OSError):
                raise
            raise NoRoom(f"no room for its copy in {self._folder}: {error.strerror}") from None
        return files

    def keep(self, entry: Entry, files: Sequence[CopyFile], answered: bool = True) -> None:
        """The API server has them now; unless it has `answered`, it may not. Those on the disk stay open here
        as long as it has the session.
        """
        for file in files:
            if file.on_disk and self._books.get(entry.server) is entry:
                file.taken = answered
                entry.files.append(file)
                self._note(entry, entry.files)
            else:
                let_go([file])

    def are_taken(self, entry: Entry, files: Sequence[CopyFile]) -> None:
        """The API server has answered at last, and has them."""
        for file in files:
            file.taken = True
        self._note(entry, entry.files)

    def take_back(self, entry: Entry, files: Iterable[HasFileno], sizes: Mapping[str, int]) -> bool:
        """Keep the files that an earlier monitor made and the API server hands back. False: of those that it
        wrote down one is missing.
        """
        entry.files = handed_back(files, self._folder, sizes)
        return sizes.keys() <= {file.name for file in entry.files}

    # -- demotion

    async def _demote_for(self, entry: Entry, size: int) -> None:
        """Host memory is for those that return first: copies of sessions that have been idle for longer than
        this one go on to the disk, those idle longest first, until so many bytes are free, or nobody is left.
        """
        away = [one for one in self._books.in_host_memory() if one.used_at < entry.used_at]
        for one in sorted(away, key=lambda one: one.used_at):
            if self.host_left >= size:
                return
            stays = self._is_wanted(one) or one.server in self._demoted or self._is_busy(one.server)
            if not stays and one.host_bytes <= self._books.disk_free:
                await self._demote(one)

    async def _demote(self, entry: Entry) -> None:
        self._demoted.add(entry.server)
        try:
            await self._move_to_disk(entry)
        finally:
            self._demoted.discard(entry.server)

    async def _move_to_disk(self, entry: Entry) -> None:
        size = entry.host_bytes
        entry.disk_bytes += size
        try:
            file = await on_disk(self._folder, size)
        except BaseException as error:
            entry.disk_bytes -= size
            if not isinstance(error, OSError):
                raise
            log.info("copies stay in host memory", session=entry.session, reason=error.strerror or str(error))
            return
        try:
            order = node_pb2.Demote(session=entry.session, bytes=size)
            late = partial(self._demoted_late, entry, file)
            told = await self._orders.give(entry, [file], size, hurry=True, late=late, demote=order)
        except BaseException:
            self.keep(entry, [file], answered=False)
            raise
        if self._books.get(entry.server) is not entry:
            let_go([file])
            return
        if told and told.reason:
            entry.disk_bytes -= size
            let_go([file])
            log.info("copies stay in host memory", session=entry.session, reason=told.reason)
            return
        self.keep(entry, [file], told is not None)
        if told:  # else it is late, and until its copies are given up both count
            entry.host_bytes -= size
            log.info("copies moved to the disk", session=entry.session, bytes=size)

    def _demoted_late(self, entry: Entry, file: CopyFile, told: node_pb2.Resides) -> None:
        if not told.reason and file in entry.files:
            self.are_taken(entry, [file])

    # -- giving up

    async def give_up(self, entry: Entry) -> None:
        """Order that the session's copies are given up, unless they are being moved to the disk."""
        if entry.server in self._demoted:
            return
        # Before it may have closed them: who has not what is noted lies.
        if entry.files and not self._note(entry, ()):
            return
        forget, late = node_pb2.Forget(session=entry.session), partial(self._given_up, entry)
        self._giving_up.add(entry.server)
        try:
            told = await self._orders.give(entry, hurry=True, late=late, forget=forget)
        finally:
            self._giving_up.discard(entry.server)
        if told:
            late(told)

    def are_given_up(self, key: int) -> bool:
        """Whether this API server was ordered to give its copies up, and new ones would be taken for them."""
        return key in self._giving_up

    def _given_up(self, entry: Entry, told: node_pb2.Resides) -> None:
        if not told.reason:
            entry.host_bytes = entry.disk_bytes = entry.host_taken = 0
            self.are_gone(entry)
        elif entry.files:
            self._note(entry, entry.files)

    def are_gone(self, entry: Entry | None) -> None:
        """What its copies have on the disk is free, whoever has the files open. A disk may be slow."""
        if entry:
            self._refused.discard(entry.server)
        if entry and entry.files:
            files, entry.files = entry.files, []
            let_go(files)
