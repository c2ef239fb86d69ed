"""Copies of a session's memory, page by page, in files that the monitor gave; what of them is still true."""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from ._core import blank_pages

PAGE = 2 << 20
CHUNK = 8  # pages that are copied at once: so long does a call wait that comes while its session leaves
BACK = 64  # pages that are copied back at once
HASHED = 64  # pages, likewise


class Interrupted(Exception):
    """The session has something to do."""


class NoSpace(Exception):
    """The files that the monitor gave are too small for the copies."""

    def __init__(self, missing: int) -> None:
        super().__init__(f"its copies lack {missing} bytes")
        self.missing = missing


class Memory(Protocol):
    """What is needed of the session's engine (Core)."""

    @property
    def changes(self) -> int: ...
    @property
    def work(self) -> int: ...
    def layout(self) -> list[tuple[int, int]]: ...
    def written(self) -> set[int]: ...
    def read_pages(self, address: int, target: memoryview) -> None: ...
    def write_pages(self, address: int, source: memoryview) -> None: ...
    def clear_pages(self, address: int, size: int) -> None: ...
    def page_hashes(self, pages: list[int]) -> list[bytes]: ...
    def pin_copy(self, data: memoryview) -> bool: ...
    def unpin_copy(self, data: memoryview) -> None: ...


class _InMemory:
    """A file in memory, mapped, and page-locked where the driver does that."""

    def __init__(self, core: Memory, descriptor: int, size: int) -> None:
        self._core = core
        try:
            self._map = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)
        self._view = memoryview(self._map)
        self._written: set[int] = set()  # offsets of pages
        self._pinned = core.pin_copy(self._view)

    def save(self, core: Memory, address: int, at: int, size: int) -> memoryview:
        """Copy from the device to this place in the file. Returns what was copied."""
        part = self._view[at : at + size]
        self._written.update(range(at, at + size, PAGE))
        core.read_pages(address, part)
        return part

    def load(self, core: Memory, address: int, at: int, size: int) -> None:
        """Copy so many bytes from this place in the file to the device."""
        core.write_pages(address, self.read(at, size))

    def read(self, at: int, size: int) -> memoryview:
        """So many bytes of the file from this place on."""
        return self._view[at : at + size]

    def fetch(self, at: int, target: memoryview) -> None:
        """What the file holds from this place on."""
        target[:] = self.read(at, len(target))

    @property
    def taken(self) -> int:
        """Bytes that the file has of host memory: what was never written has none."""
        return len(self._written) * PAGE

    def close(self) -> None:
        """Give the file's host memory back."""
        if self._pinned:
            self._core.unpin_copy(self._view)
        self._view.release()
        self._map.close()


class _OnDisk:
    """A file on a disk. What cannot be read or written is an OSError: it is never mapped."""

    def __init__(self, descriptor: int) -> None:
        self._file = descriptor
        self._buffer = memoryview(bytearray(CHUNK * PAGE))

    def save(self, core: Memory, address: int, at: int, size: int) -> memoryview:
        """Copy from the device to this place in the file. Returns what was copied."""
        part = self._buffer[:size]
        core.read_pages(address, part)
        self.take(part, at)
        return part

    def load(self, core: Memory, address: int, at: int, size: int) -> None:
        """Copy so many bytes from this place in the file to the device."""
        for begin in range(0, size, CHUNK * PAGE):
            part = self._buffer[: min(size - begin, CHUNK * PAGE)]
            self.fetch(at + begin, part)
            core.write_pages(address + begin, part)

    def fetch(self, at: int, target: memoryview) -> None:
        """What the file holds from this place on. Raises OSError."""
        done = 0
        while done < len(target):
            some = os.preadv(self._file, [target[done:]], at + done)
            if not some:
                raise OSError("the file with the session's memory has become shorter")
            done += some

    def fileno(self) -> int:
        """Return the descriptor of the file."""
        return self._file

    def take(self, data: memoryview, at: int) -> None:
        """Write `data` to the file, from byte `at` on. Raises OSError."""
        done = 0
        while done < len(data):
            done += os.pwrite(self._file, data[done:], at + done)

    def close(self) -> None:
        """Close the file, which has no name: its room on the disk is free."""
        os.close(self._file)


class Copies:
    """The copies of one session's pages. `update` makes them true, `restore` writes them back."""

    _changing = threading.Lock()  # which files on a disk there are

    def __init__(self, core: Memory) -> None:
        self._core = core
        self._files: list[_InMemory | _OnDisk] = []
        self._places: dict[int, tuple[int, int]] = {}  # of each page that has a copy: file and offset
        self._free: list[tuple[int, int]] = []  # places
        self._blank: set[int] = set()  # pages of zeroes, which need no place
        self._hashes: dict[int, bytes] = {}  # of pages as their copies have them
        self._stale: set[int] = set()  # pages whose copies are known not to be true
        self._work = -1  # as the engine counted, when the others were
        self._changes = -1  # as the engine counted, when all were
        self.host_bytes = self.disk_bytes = 0  # of the files

    def add(self, descriptor: int, size: int, on_disk: bool) -> None:
        """Use one more file. Takes the descriptor. Raises OSError if that is no file of so many bytes."""
        if os.fstat(descriptor).st_size < size:
            os.close(descriptor)
            raise OSError(f"a file for copies has less than {size} bytes")
        number = len(self._files)
        file = _OnDisk(descriptor) if on_disk else _InMemory(self._core, descriptor, size)
        with self._changing:
            self._files.append(file)
        # The first place is taken first: what lies in a row is copied at once.
        self._free[:0] = [(number, at) for at in reversed(range(0, size - PAGE + 1, PAGE))]
        if on_disk:
            self.disk_bytes += size
        else:
            self.host_bytes += size

    @property
    def on_disk(self) -> bool:
        """Whether any page's copy is in a file on a disk."""
        return any(isinstance(self._files[number], _OnDisk) for number, _ in self._places.values())

    @property
    def host_taken(self) -> int:
        """Bytes that the files in memory have of it."""
        with self._changing:
            return sum(file.taken for file in self._files if isinstance(file, _InMemory))

    def update(self, stop: Callable[[], bool]) -> int:
        """Make all copies true. The session is held. Returns the bytes copied.

        Raises Interrupted once `stop` says so, or NoSpace; what was copied until then is kept.
        """
        if self._core.changes == self._changes:
            return 0
        pages = [
            page for address, size in self._core.layout() for page in range(address, address + size, PAGE)
        ]
        self._look_what_changed(pages, stop)
        todo = [page for page in pages if page in self._stale]
        missing = sum(page not in self._places for page in todo) - len(self._free)
        if missing > 0:
            raise NoSpace(missing * PAGE)
        copied = 0
        for page in todo:
            if page not in self._places:
                self._places[page] = self._free.pop()
        for first, count in self._runs(todo, CHUNK):
            if stop():
                raise Interrupted
            self._save(first, count)
            copied += count * PAGE
        self._changes = self._core.changes
        return copied

    def _look_what_changed(self, pages: list[int], stop: Callable[[], bool]) -> None:
        """Which copies are not known to be true any more."""
        here = set(pages)
        for page in (self._places.keys() | self._blank) - here:
            self._forget(page)
        known = self._places.keys() | self._blank
        self._stale = (self._stale & here) | (here - known) | (self._core.written() & here)
        if self._core.work != self._work:
            unsure = [page for page in pages if page not in self._stale]
            told = {page for page in unsure if page in self._hashes}
            self._stale.update(page for page in unsure if page not in told)
            self._work = self._core.work
            left = set(told)
            try:
                for page, now in self._hash([page for page in unsure if page in told], stop):
                    left.discard(page)
                    if now != self._hashes[page]:
                        self._stale.add(page)
            finally:
                self._stale.update(left)  # nobody looked
        for page in self._stale:
            self._hashes.pop(page, None)

    def _forget(self, page: int) -> None:
        if place := self._places.pop(page, None):
            self._free.append(place)
        self._blank.discard(page)
        self._hashes.pop(page, None)

    def _save(self, first: int, count: int) -> None:
        number, at = self._places[first]
        data = self._files[number].save(self._core, first, at, count * PAGE)
        for page, blank in zip(range(first, first + count * PAGE, PAGE), blank_pages(data), strict=True):
            self._stale.discard(page)
            self._blank.discard(page)
            if blank:
                self._free.append(self._places.pop(page))
                self._blank.add(page)

    def note_hashes(self, stop: Callable[[], bool]) -> None:
        """Learn by what true copies can be told later from those that are not. The session is held.

        Raises Interrupted once `stop` says so; what was learned is kept.
        """
        unknown = [page for page in sorted(self._places.keys() | self._blank) if page not in self._hashes]
        for page, found in self._hash(unknown, stop):
            self._hashes[page] = found

    def _hash(self, pages: list[int], stop: Callable[[], bool]) -> Iterator[tuple[int, bytes]]:
        for begin in range(0, len(pages), HASHED):
            if stop():
                raise Interrupted
            some = pages[begin : begin + HASHED]
            yield from zip(some, self._core.page_hashes(some), strict=True)

    def restore(self) -> int:
        """Write all copies into the session's memory, which is mapped again. Returns the bytes copied."""
        copied = 0
        for first, count in self._runs(sorted(self._places), BACK):
            number, at = self._places[first]
            self._files[number].load(self._core, first, at, count * PAGE)
            copied += count * PAGE
        for first, count in _neighbours(sorted(self._blank)):
            self._core.clear_pages(first, count * PAGE)
        return copied

    def read(self, address: int, target: memoryview) -> None:
        """What whole pages of a session that is away hold. Raises OSError; KeyError: they are not its own."""
        for page in range(address, address + len(target), PAGE):
            part = target[page - address : page - address + PAGE]
            if page in self._blank:
                part[:] = bytes(PAGE)
            else:
                number, at = self._places[page]
                self._files[number].fetch(at, part)

    def demote(self, descriptor: int, size: int, stop: Callable[[], bool]) -> int:
        """Move the copies that are in memory to this file on a disk, and give those files back. Takes the
        descriptor. Returns the bytes copied. Raises OSError, or Interrupted once `stop` says so: then all
        copies are where they were.
        """
        if os.fstat(descriptor).st_size < size:
            os.close(descriptor)
            raise OSError("the file for copies is smaller than was said")
        target = _OnDisk(descriptor)
        moved: dict[int, int] = {}  # where each page is in the new file
        try:
            for first, count in self._runs(sorted(self._places), CHUNK):
                number, at = self._places[first]
                source = self._files[number]
                if isinstance(source, _OnDisk):
                    continue
                if stop():
                    raise Interrupted
                there, length = len(moved) * PAGE, count * PAGE
                if there + length > size:
                    raise OSError("the file for copies is too small for them")
                target.take(source.read(at, length), there)
                moved.update((first + done, there + done) for done in range(0, length, PAGE))
        except BaseException:
            target.close()
            raise
        self._replace_those_in_memory(target, moved, size)
        return len(moved) * PAGE

    def _replace_those_in_memory(self, target: _OnDisk, moved: dict[int, int], size: int) -> None:
        """The file has these pages; what is in memory is needed no more."""
        stay = [number for number, file in enumerate(self._files) if isinstance(file, _OnDisk)]
        renamed = {old: new for new, old in enumerate(stay)}
        files, number = [self._files[old] for old in stay], len(stay)
        self._places = {
            page: (number, moved[page]) if page in moved else (renamed[file], at)
            for page, (file, at) in self._places.items()
        }
        self._free = [(renamed[file], at) for file, at in self._free if file in renamed]
        self._free += [(number, at) for at in range(len(moved) * PAGE, size - PAGE + 1, PAGE)]
        for old, file in enumerate(self._files):
            if old not in renamed:
                with contextlib.suppress(OSError):
                    file.close()
        with self._changing:
            self._files = [*files, target]
        self.host_bytes = 0
        self.disk_bytes += size

    def restored(self) -> None:
        """The session goes on: until it writes, all copies are true."""
        self._work, self._changes = self._core.work, self._core.changes

    def _runs(self, pages: Iterable[int], most: int) -> Iterator[tuple[int, int]]:
        """At most so many pages that follow each other, as their copies do: the first, and how many."""

        def joins(first: int, count: int, page: int) -> bool:
            number, at = self._places[page]
            return count < most and self._places[first] == (number, at - count * PAGE)

        return _neighbours(pages, joins)

    def close(self) -> None:
        """Give everything back. They know nothing any more."""
        with self._changing:
            for file in self._files:
                with contextlib.suppress(OSError):
                    file.close()
            self.__init__(self._core)  # type: ignore[misc]

    def on_disks(self) -> list[int]:
        """The files on a disk, once more, for another thread, which closes these descriptors."""
        with self._changing:
            return [os.dup(file.fileno()) for file in self._files if isinstance(file, _OnDisk)]


def _neighbours(
    pages: Iterable[int], joins: Callable[[int, int, int], bool] = lambda first, count, page: True
) -> Iterator[tuple[int, int]]:
    """Pages that follow each other: the first, and how many. `joins`: whether a page may go with those
    that it follows, of which it gets the first and the count.
    """
    first, count = 0, 0
    for page in pages:
        if count and page == first + count * PAGE and joins(first, count, page):
            count += 1
            continue
        if count:
            yield first, count
        first, count = page, 1
    if count:
        yield first, count
