"""Moves the session of this process elsewhere, on a thread of its own; most of the time its program runs."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import traceback
from pathlib import Path

from gpuferry.migration.abc import Movable
from gpuferry.migration.errors import Cancelled, Lost, MigrationError, OthersStay, Refused
from gpuferry.migration.gate import Gate
from gpuferry.migration.link import Link
from gpuferry.migration.place import GivenFile
from gpuferry.migration.source import Order, Source
from gpuferry.migration.targets import Local, Remote, Suspended, Target
from gpuferry.native.tls.stream import Connection, state_of, with_state
from gpuferry.specs._generated import migration_pb2, node_pb2, snapshot_pb2

from .lending import FromCopies
from .log import Log
from .progress import Progress
from .residing import Residing

RETURN_SECONDS = 30.0  # for memory that is not on the device, of a session that waits for it within a call


class Given:
    """A link that somebody else goes on with."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def fileno(self) -> int:
        return self._connection.fileno()

    def tls_state(self) -> bytes:
        """What TLS needs to go on there; empty: it is in clear."""
        return state_of(self._connection)


class Mover:
    """Carries out one order to move the session, on a thread of its own, or gives it up."""

    def __init__(
        self,
        core: Movable,
        grant: node_pb2.Grant,
        age: float,
        guest: socket.socket,
        order: migration_pb2.Migrate,
        descriptors: list[int],
        tls: bytes,
        log: Log,
        residing: Residing,
    ) -> None:
        """`tls`: what TLS needs to go on, on the first socket; empty: it is in clear. `residing`: knows where
        the session's memory is, and keeps it there.
        """
        self.order = order
        self.left = False  # the session is not ours any more
        self._progress = Progress(order.session)
        self._core = core
        self._snapshot = snapshot_pb2.Snapshot(grant=grant, age_seconds=age, created=time.time())
        self._guest = guest
        self._gate = descriptors.pop() if order.members and descriptors else None
        self._file = descriptors.pop() if order.HasField("file") and descriptors else None
        self._sockets = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        self._tls = tls
        self._residing = residing
        self._away = False  # it moves out of its copies
        self._log = log.bind(session=order.session)
        self._thread = threading.Thread(target=self._run, name="mover", daemon=True)

    def start(self) -> None:
        """Begin the move, in a thread of its own."""
        self._thread.start()

    def fileno(self) -> int:
        """A descriptor that is readable when there are messages for the monitor."""
        return self._progress.fileno()

    def messages(self) -> list[node_pb2.FromServer]:
        """The messages for the monitor since this was last asked; the last one is Moved."""
        return self._progress.messages()

    def cancel(self, reason: str) -> None:
        """Give the migration up, for this reason, if that is still possible."""
        self._progress.cancel(reason)

    def join(self) -> None:
        """Wait until the thread is over."""
        self._thread.join()

    def close(self) -> None:
        """Wait until the thread is over, and close. To be called after its last message was sent."""
        self.join()
        self._progress.close()

    def _run(self) -> None:
        moved = migration_pb2.Moved(session=self.order.session)
        source = None
        try:
            with contextlib.ExitStack() as stack:
                for each in self._sockets:
                    stack.callback(each.close)
                stack.callback(self._close_unused)
                self._settle()
                source = self._source(stack)
                moved.report.CopyFrom(source.run())
            moved.moved = self.left = True
        except MigrationError as error:
            moved.cancelled = isinstance(error, Cancelled)
            moved.reason = self._progress.cancelled if moved.cancelled else error.reason
            moved.lost = self.left = isinstance(error, Lost)
            moved.others_stay = isinstance(error, OthersStay)
        except (RuntimeError, TimeoutError, MemoryError) as error:  # it ended, or something cannot be had
            moved.cancelled = bool(self._progress.cancelled)
            moved.reason = self._progress.cancelled or str(error)
        except Exception as error:
            traceback.print_exc()
            moved.reason = f"{type(error).__name__}: {error}"
        if source is not None and not moved.moved:
            moved.report.CopyFrom(source.report())
        self._log.info(
            "migration over",
            moved=moved.moved,
            lost=moved.lost,
            reason=moved.reason,
            seconds=moved.report.seconds,
            pause=moved.report.pause_seconds,
            variables_elsewhere=moved.report.variables_elsewhere,
        )
        self._progress.say(node_pb2.FromServer(moved=moved))

    def _settle(self) -> None:
        """See to it that the session's memory stays where it is: in its copies, or else on the device. Raises
        MigrationError.
        """

        def stop() -> bool:
            return bool(self._progress.cancelled)

        if copies := self._residing.lend(stop):
            self._core, self._away = FromCopies(self._core, copies).movable, True
        elif why_not := self._residing.stay(stop, RETURN_SECONDS):
            raise Cancelled(self._progress.cancelled) if stop() else Refused(why_not)

    def _close_unused(self) -> None:
        """What came with the order, where the move did not come so far as to use it."""
        for descriptor in (self._gate, self._file):
            if descriptor is not None:
                os.close(descriptor)

    def _source(self, stack: contextlib.ExitStack) -> Source:
        sessions = {each.seat: each.session for each in self.order.members}
        order = Order(self.order.strategy, self.order.drain_seconds, sessions, self.order.variables_stay)
        gate = None
        if self._gate is not None:
            gate = Gate(self._gate, self._progress.stop, self._sockets[0].fileno())
            self._gate = None
            stack.callback(gate.close)
            stack.callback(gate.stay)
        target = self._target(stack)
        return Source(self._core, self._guest.fileno(), target, order, self._progress, gate)

    def _target(self, stack: contextlib.ExitStack) -> Target:
        kind = self.order.WhichOneof("target")
        wanted = {"local": 1, "remote": 2, "file": 2}.get(kind or "")
        if wanted is None or len(self._sockets) != wanted:
            raise Refused("the order to move does not say where to")
        core, sockets = self._core, self._sockets
        if kind == "file":
            if self._file is None:
                raise Refused("the order to move comes without its file")
            file = GivenFile(self._file, sockets[1], Path(self.order.file.path))
            self._file = None
            stack.callback(file.close)
            return Suspended(core, file, self.order.file, sockets[0], self._snapshot)
        end = with_state(sockets[0], self._tls)
        link = Link(end, self._progress.stop)
        if kind == "local":
            return Local(core, link, self._away)
        given = Given(end)
        return Remote(core, link, given, sockets[1], self.order.session, self.order.remote, self._away)
