"""Contents of device memory: shared with the destination, streamed to it, or written to a file."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import groupby

from gpuferry.specs._generated import migration_pb2
from gpuferry.specs._generated.frames import CHUNK

from . import mapped
from .abc import Memory, Movable
from .errors import LinkBroken
from .file import Writer
from .frames import COPY_IN, PAGE, PRIMARY, RANGE
from .link import Link, require
from .report import Progress

HASH = 16
SHARED_CHUNK = 32 << 20
ROUNDS = 8
FEW_PAGES = 8  # that this few are left is as good as none
SHRINKING = 0.75  # a round must leave less than this much of what the one before left
SMALL = 64 << 20  # bytes that are copied in the pause at once if nobody says how
BUFFERS = 3
ZEROES = bytes(PAGE)

Advance = Callable[[int], None]
ContextOf = Callable[[int], int]


class Shared:
    """Memory for a destination on this machine, which maps the source's memory aside and copies it on its
    device.
    """

    def __init__(self, core: Movable, link: Link) -> None:
        self._core = core
        self._link = link
        self._starts: frozenset[int] = frozenset()

    def add(self, mappings: Sequence[mapped.Mapping]) -> bool:
        """Share physical memory with the destination, anew where it has changed. Returns whether its
        device reaches it.
        """
        statuses: list[int] = []
        for address, size in mappings:
            descriptor = self._core.share(address)
            try:
                self._link.ask(
                    "sessionRestoreShare",
                    RANGE.pack(address, size),
                    lambda status, _: statuses.append(status),
                    descriptors=[descriptor],
                )
            finally:
                os.close(descriptor)
        self._starts |= {address for address, _ in mappings}
        self._link.settle()
        return not any(statuses)

    def copy(self, pages: Sequence[int], advance: Advance, context_of: ContextOf) -> int:
        for address, size in mapped.runs(pages, SHARED_CHUNK, self._starts):
            self._link.tell("sessionRestoreCopy", RANGE.pack(address, size), context=PRIMARY)
            advance(size)
        self._link.settle()
        return len(pages) * PAGE

    def hashes(self, pages: Sequence[int]) -> bytes:
        return remote_hashes(self._link, pages)


class Streamed:
    """Memory for a destination on another machine: contents travel as ordinary copies to the device, pages
    of zeroes not at all.
    """

    def __init__(self, core: Movable, link: Link) -> None:
        self._reader = ReadAhead(core)
        self._link = link
        self.written: set[int] = set()  # pages that may be other than zero there

    def add(self, mappings: Sequence[mapped.Mapping]) -> None:
        """Note new mappings, which are zero on the other side."""
        self.written.difference_update(mapped.pages(mappings))

    def copy(self, pages: Sequence[int], advance: Advance, context_of: ContextOf) -> int:
        copied = 0
        for address, contents in self._reader.read(mapped.runs(pages, CHUNK)):
            for context, some in groupby(self._worth_sending(address, contents), context_of):
                for begin, size in mapped.runs(some, CHUNK):
                    payload = contents[begin - address : begin - address + size]
                    self._link.tell("sessionCopyIn", COPY_IN.pack(0, begin, 0, size, 1), payload, context)
                    copied += size
            advance(len(contents))
        self._link.settle()
        return copied

    def hashes(self, pages: Sequence[int]) -> bytes:
        return remote_hashes(self._link, pages)

    def _worth_sending(self, address: int, contents: memoryview) -> Iterator[int]:
        for at in range(0, len(contents), PAGE):
            page = address + at
            if page in self.written or contents[at : at + PAGE] != ZEROES:
                self.written.add(page)
                yield page


class Nearby:
    """Memory for a destination on this machine: shared, or staged in host memory where one device does not
    reach the other's.
    """

    def __init__(self, core: Movable, link: Link) -> None:
        self._shared = Shared(core, link)
        self._streamed = Streamed(core, link)
        self._way: Shared | Streamed = self._shared

    def add(self, mappings: Sequence[mapped.Mapping]) -> None:
        self._streamed.add(mappings)
        if self._way is self._shared and not self._shared.add(mappings):
            self._way = self._streamed

    def copy(self, pages: Sequence[int], advance: Advance, context_of: ContextOf) -> int:
        if self._way is self._shared:
            self._streamed.written.update(pages)
        return self._way.copy(pages, advance, context_of)

    def hashes(self, pages: Sequence[int]) -> bytes:
        return self._way.hashes(pages)


class Filed:
    """Memory that goes into a file, once: what is written cannot be compared with what came later."""

    def __init__(self, core: Movable, writer: Writer) -> None:
        self._reader = ReadAhead(core)
        self._writer = writer

    def add(self, mappings: Sequence[mapped.Mapping]) -> None:
        """Do nothing: a file holds contents only."""

    def copy(self, pages: Sequence[int], advance: Advance, context_of: ContextOf) -> int:
        copied = 0
        for address, contents in self._reader.read(mapped.runs(pages, CHUNK)):
            for at in range(0, len(contents), PAGE):
                copied += PAGE * self._writer.page(address + at, contents[at : at + PAGE])
            advance(len(contents))
        return copied

    def hashes(self, pages: Sequence[int]) -> None:
        return None


class ReadAhead:
    """Reads device memory into pinned buffers ahead of whoever uses it."""

    def __init__(self, core: Movable) -> None:
        self._core = core
        self._buffers: list[memoryview] = []

    def read(self, ranges: Iterable[mapped.Mapping]) -> Iterator[tuple[int, memoryview]]:
        """Address and contents of each of these ranges, of at most a chunk; contents hold until the next
        is asked for.
        """
        if not self._buffers:
            self._buffers = [memoryview(mmap.mmap(-1, CHUNK)) for _ in range(BUFFERS)]
            for buffer in self._buffers:
                self._core.pin(buffer)
        waiting: list[tuple[int, memoryview, Future[None]]] = []
        with ThreadPoolExecutor(1, "reader") as pool:
            for turn, (address, size) in enumerate(ranges):
                if len(waiting) == BUFFERS - 1:
                    yield _first(waiting)
                view = self._buffers[turn % BUFFERS][:size]
                waiting.append((address, view, pool.submit(self._core.read, address, view)))
            while waiting:
                yield _first(waiting)


def _first(waiting: list[tuple[int, memoryview, Future[None]]]) -> tuple[int, memoryview]:
    address, view, done = waiting.pop(0)
    done.result()
    return address, view


def remote_hashes(link: Link, pages: Sequence[int]) -> bytes:
    """16 bytes for each of these pages, hashed on the destination's device. Raises LinkBroken or Refused."""
    found: list[bytes] = []

    def take(status: int, body: memoryview) -> None:
        require(status, "hashing memory")
        found.append(bytes(body))

    for address, size in mapped.runs(pages, CHUNK // HASH * PAGE):
        link.ask("sessionRestoreHash", RANGE.pack(address, size // PAGE), take, context=PRIMARY)
    link.settle()
    hashes = b"".join(found)
    if len(hashes) != len(pages) * HASH:
        raise LinkBroken("the destination hashed another number of pages")
    return hashes


class Contents:
    """What the destination said that it holds of the session's memory, and what it lacks."""

    def __init__(self, core: Movable, memory: Memory, progress: Progress, context_of: ContextOf) -> None:
        self._core = core
        self._memory = memory
        self._progress = progress
        self._context_of = context_of
        self._there: dict[int, bytes] = {}  # page and its hash

    def forget(self, ranges: Iterable[mapped.Mapping]) -> None:
        """Note that other memory lies in these ranges now."""
        for page in mapped.pages(ranges):
            self._there.pop(page, None)

    def send(self, pages: Sequence[int]) -> None:
        """Bring the contents of these pages to the destination."""
        total, done = len(pages) * PAGE, 0

        def advance(size: int) -> None:
            nonlocal done
            done += size
            self._progress.advance(done, total)

        self._progress.advance(0, total)
        self._progress.copied(self._memory.copy(pages, advance, self._context_of))

    def compare(self, pages: Sequence[int]) -> None:
        """Ask the destination for hashes of these pages, and remember them."""
        hashes = self._memory.hashes(pages)
        if hashes is not None:
            self._there.update(zip(pages, split(hashes), strict=True))

    def lacking(self, pages: list[int]) -> list[int]:
        """Those of the pages whose contents here differ from what the destination holds."""
        return [
            page
            for page, ours in zip(pages, split(self._core.hashes(pages)), strict=True)
            if self._there.get(page) != ours
        ]


class Precopy:
    """Decides when to stop copying while the program runs: little is left, or it shrinks no more."""

    def __init__(self) -> None:
        self.rounds = 0
        self._before = float("inf")

    def goes_on(self, left: int) -> bool:
        """Whether another round is worth it, after one that left so many pages."""
        self.rounds += 1
        shrinks = left < self._before * SHRINKING
        self._before = left
        return left > FEW_PAGES and shrinks and self.rounds < ROUNDS


def split(hashes: bytes) -> Iterator[bytes]:
    return (hashes[at : at + HASH] for at in range(0, len(hashes), HASH))


def choose(wanted: migration_pb2.Strategy, mapped_bytes: int, comparable: bool) -> migration_pb2.Strategy:
    """The strategy to use: `stop` if contents cannot be compared, if it is wanted, or up to 64 MiB; else
    precopy.
    """
    if not comparable or wanted == migration_pb2.STRATEGY_STOP:
        return migration_pb2.STRATEGY_STOP
    if wanted != migration_pb2.STRATEGY_PRECOPY and mapped_bytes <= SMALL:
        return migration_pb2.STRATEGY_STOP
    return migration_pb2.STRATEGY_PRECOPY


def hot_last(pages: Sequence[int], hot: Sequence[int], mappings: Sequence[mapped.Mapping]) -> list[int]:
    """The pages in order, those of mappings that kernels use right now last: they would change again."""
    warm = set(mapped.pages([each for each in mappings if each[0] in set(hot)]))
    return sorted(pages, key=lambda page: (page in warm, page))
