"""An answer that comes in parts, on its way from its replica to its caller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from .invocation import Code, Failed, Ran


class Stream:
    """One part at a time: the next is taken from the replica once the one before was written, so a handler is
    no faster than its caller reads.
    """

    def __init__(self, left: Callable[[], None]) -> None:
        """`left` is called when the caller has gone before the end."""
        self._left = left
        self._part: bytes | None = None
        self._error: Failed | None = None
        self._over = False  # no part comes any more
        self._gone = False  # nobody takes them any more
        self._stirred = asyncio.Event()
        self._taken = asyncio.Event()

    @property
    def unfinished(self) -> bool:
        """Whether more parts of the answer may come."""
        return not self._over

    @property
    def left(self) -> bool:
        """Whether nobody takes its parts any more."""
        return self._gone

    async def put(self, part: bytes) -> None:
        """Hand a part over, and wait until it was written. Without a reader it is dropped."""
        if self._over or self._gone:
            return
        self._part = part
        self._taken.clear()
        self._stirred.set()
        await self._taken.wait()

    def finish(self, error: Failed | None = None) -> None:
        """End the stream, with an error if parts are missing. Only the first call counts."""
        if not self._over:
            self._over, self._error = True, error
            self._stirred.set()
            self._taken.set()

    def leave(self) -> None:
        """The caller has gone, or has all."""
        if self._gone:
            return
        self._gone = True
        self._taken.set()
        if not self._over:
            self._left()

    async def parts(self) -> AsyncIterator[bytes]:
        """Each part. Raises Failed where the rest does not come."""
        while True:
            await self._stirred.wait()
            self._stirred.clear()
            if (part := self._part) is not None:
                yield part
                self._part = None
                self._taken.set()
            if self._over:
                break
        if self._error:
            raise self._error

    async def whole(self, most: int) -> bytes:
        """All of it, for who cannot be given parts. Raises Failed."""
        parts, size = [], 0
        async for part in self.parts():
            size += len(part)
            if size > most:
                raise Failed(Code.BAD_ANSWER, f"the answer has more than {most} bytes", Ran.YES)
            parts.append(part)
        return b"".join(parts)
