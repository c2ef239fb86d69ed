"""One session of an API server: its limits, its connection, its end."""

from __future__ import annotations

import array
import math
import os
import socket
import time
from typing import TYPE_CHECKING

from gpuferry.specs._generated import migration_pb2, node_pb2

from ._core import Core
from .book import Book
from .end import LOST, End, revoked
from .log import Log
from .residing import Residing

if TYPE_CHECKING:
    from .moving import Mover

PAUSE_LEAST, PAUSE_MOST = 0.5, 64.0  # seconds between looks at what kernels printed
LEAVE_SECONDS = 0.6  # for the engine to stop once its guest is gone; a running kernel cannot be stopped
COPY_SECONDS = 10.0  # likewise, if all it did is copy: copies end by themselves, on a busy machine later
RESTORE_SECONDS = 10.0  # likewise, if it is the source of a session that is gone
FOLLOW_SECONDS = 30.0  # for a guest to come after its session, once it has left where it was
SCRUB_SECONDS = 10.0  # to reset a context takes a real driver a while


class Session:
    """One session of this API server, from its Grant to the scrub. The engine's dispatcher serves it on a
    thread of its own.
    """

    def __init__(
        self,
        core: Core,
        grant: node_pb2.Grant,
        guest: socket.socket,
        log: Log,
        started: float,
        tls: bytes = b"",
        book: Book | None = None,
    ) -> None:
        """`tls`: what TLS needs to go on, on the guest's socket; empty: it is in clear. `book`: of the lease,
        if other processes have it too.
        """
        self.id = grant.session
        self._book: Book | None = None
        self.grant = grant
        self.started = started
        self.ended: End | None = None  # why it did
        self.clean = False
        self.stats: dict[str, int] = {}  # once it is over: a scrub leaves none
        self.deadline: float | None = None  # when the process ends if the session has not
        self._leaving = -math.inf  # since when its guest is gone
        self.watched = False  # the monitor wants to know of the next launch
        self.away_until: float | None = None  # the guest lost its connection, and may come back until then
        self.mover: Mover | None = None  # until its end was told
        self.left: migration_pb2.Migrate | None = None  # by this order: it only has to be cleared away here
        self._end_after: End | None = None  # why the session ends, once it is known that it stays
        self._core = core
        self._guest = guest
        self._log = log.bind(session=grant.session)
        self._calls = 0
        self._active = time.monotonic()  # when calls were last seen
        self._pause = PAUSE_LEAST
        self._look = math.inf  # when to look for output: a session that launches nothing needs no look
        grace = int(grant.resume_seconds * 1000)
        spoken = array.array("H", grant.operations).tobytes() if grant.limited else None
        resumable, memory = grace > 0, grant.host_memory
        core.begin(guest.fileno(), grant.memory_quota, resumable, grant.restore, spoken, tls, memory)
        self.residing = Residing(core, grant.session, self._log)
        if grant.elastic:
            self.residing.limit(grant.allowance)
        if book:
            self.share(book, tell=False)
        if not grant.welcomed:
            try:
                guest.sendall(core.welcome(grant.welcome_proof, grant.session, grant.memory_quota, grace))
            except OSError:
                core.end(LOST)
        self._log.info("session started", tenant=grant.tenant, function=grant.function, program=grant.program)

    def share(self, book: Book, tell: bool = True) -> None:
        """Other processes have the lease too. `tell`: the guest, which does not know."""
        before, self._book = self._book, book
        book.note_active(self._active)
        self._core.open_book(book.file, book.seat, tell and before is None)
        if before:
            before.close()

    @property
    def guest(self) -> socket.socket:
        """The connected socket over which this session's guest speaks."""
        return self._guest

    def end(self, end: End) -> None:
        """End the session for this reason. One that is being moved is stopped first, and ends if it then
        is still here.
        """
        if self.mover is not None:
            self.mover.cancel(end.reason)
            self._end_after = self._end_after or end
            return
        self._core.end(end)
        self.leave()

    @property
    def restoring(self) -> bool:
        """Whether the session is still another API server's, from which it comes."""
        return self.grant.restore and not self._core.taken_over

    @property
    def ours(self) -> bool:
        """Whether this API server has the session, and nobody else is about to."""
        return self.left is None and not self.restoring

    def taken_over(self) -> bool:
        """Whether a session that was restored here has just become this API server's. True once."""
        if not (self.grant.restore and self._core.taken_over):
            return False
        self.grant.restore = False
        self.deadline = None
        return True

    def moving_over(self) -> None:
        """Close the mover, which has said how the migration ended; the session was left, or goes on here."""
        self.residing.may_leave()
        mover, self.mover = self.mover, None
        assert mover is not None
        mover.close()
        if mover.left:
            self.left = mover.order
            self.leave()
        elif self._end_after:
            self.end(self._end_after)

    def hung_up(self) -> None:
        """The connection is broken. A session that may be resumed waits for its guest; another one ends."""
        if self.mover is not None:
            self.mover.cancel("its program ended, or lost its connection")
        if self.grant.restore:  # the engine sees it after what came before it, which may be TAKE OVER
            self.deadline = time.monotonic() + RESTORE_SECONDS
            return
        grace = self.grant.resume_seconds
        if self._core.following:
            grace = max(grace, FOLLOW_SECONDS)
        if not grace:
            self._core.go_on_without_guest()
            self.leave()
        elif self.away_until is None:
            self.away_until = time.monotonic() + grace

    def does_not_come_back(self) -> None:
        """End a session whose guest has not come back in its time."""
        self.away_until = None
        self._core.go_on_without_guest()
        self.end(LOST)

    def resume(self, guest: socket.socket, resume: node_pb2.Resume, tls: bytes) -> bool:
        """Go on with this connection in place of the one before. Returns False if the guest's proof or its
        count of bytes is wrong.
        """
        if not self._core.resume(guest.fileno(), resume.proof, resume.received, tls):
            return False
        self.away_until = None
        self._log.info("session resumed", received=resume.received)
        return True

    def leave(self) -> None:
        """Start the deadline for the session's end: the guest is gone, or must go."""
        self._core.give_up_turn()
        if self.deadline is None:
            self._leaving = time.monotonic()
            self.deadline = self._leaving + LEAVE_SECONDS

    def stood_still(self) -> None:
        """Begin the deadline anew: the main thread had no processor, nor had those who work against it."""
        if self.deadline is not None:
            self.deadline = max(self.deadline, time.monotonic() + LEAVE_SECONDS)

    def may_take_longer(self) -> bool:
        """Whether to wait beyond the deadline: only copies are under way, which end by themselves, for 10
        s at most.
        """
        late = self.stats or time.monotonic() > self._leaving + COPY_SECONDS
        return not late and not self._core.may_never_end

    def launched(self) -> None:
        """A kernel was launched, which may print: look for output soon."""
        self._pause = PAUSE_LEAST
        self._look = time.monotonic() + self._pause

    def look_for_output(self) -> None:
        """Send the guest what kernels printed, if it is time to look: half a second after a launch, then
        ever more rarely.
        """
        if time.monotonic() < self._look:
            return
        self._core.forward_output()
        self._core.rest()
        self._pause = min(2 * self._pause, PAUSE_MOST)
        self._look = time.monotonic() + self._pause

    def enforce_limits(self) -> None:
        """End the session if it has lived, or made no call, for as long as its Grant allows. A call's wait
        for room ends, too.
        """
        self.residing.look_at_patience()
        now = time.monotonic()
        wall, idle = self.grant.wall_seconds, self.grant.idle_seconds
        if idle:
            stats = self._core.stats()
            calls = stats["calls_async"] + stats["calls_sync"]
            if calls != self._calls or self._core.waiting:
                self._calls, self._active = calls, now
            if self._book:  # the limit is the program's: it is idle when all of its processes are
                self._book.note_active(self._active)
                self._active = max(self._active, self._book.last_active())
        if wall and now >= self.started + wall:
            self.end(revoked(f"the time limit of {wall:g} s is over"))
        elif idle and now >= self._active + idle:
            self.end(revoked(f"no CUDA call for {idle:g} s, which is the limit"))

    def look_again(self) -> float:
        """Seconds until there may be output, or a limit may be reached."""
        now = time.monotonic()
        wall, idle = self.grant.wall_seconds, self.grant.idle_seconds
        waits = [self._look - now, self.residing.patience()]
        if wall:
            waits.append(self.started + wall - now)
        if idle:  # it may have become active meanwhile, or not
            waits.append(max(self._active + idle - now, idle / 4))
        return max(0.0, min(waits))

    def close(self) -> None:
        """Close the guest's socket and log how the session ended."""
        self._guest.close()
        self.residing.close()
        if self._book:
            self._book.close()
        assert self.ended
        self._log.info("session ended", reason=self.ended.reason, clean=self.clean)

    def serve(self) -> None:
        """Serve the guest until the session ends, then scrub. On the dispatcher's thread."""
        self.ended = self._core.serve()
        mover = self.mover  # the main thread takes it away when it is over
        if mover is not None:
            mover.cancel("the session ended")
            mover.join()
        self.residing.end()
        self.stats = self._core.stats()
        self.deadline = time.monotonic() + SCRUB_SECONDS
        os.eventfd_write(self._core.bell, 1)
        self.clean = self._core.scrub()
