"""Sends the session's memory away from its device and brings it back, on a thread, as the monitor orders."""

from __future__ import annotations

import contextlib
import math
import os
import queue
import threading
import time
import traceback
from collections.abc import Callable, Sequence

from gpuferry.specs._generated import node_pb2

from ._core import Core, DeviceError, SessionOver
from .copies import Copies, Interrupted, NoSpace
from .end import End
from .log import Log
from .outbox import Outbox

HOLD_SECONDS = 0.1  # for the dispatcher to come to the end of a call
LEND_SECONDS = 10.0  # likewise, of a session that moves out of its copies, however busy the machine is
INSIST_SECONDS = 2.0  # likewise, and for the device to come to rest, of one that works
ROOM_SECONDS = 600.0  # that a call waits for room of a monitor which says nothing at all

MOVES = "it is being moved"

RESIDENT = node_pb2.RESIDENCE_RESIDENT
LEAVING = node_pb2.RESIDENCE_LEAVING
HOST = node_pb2.RESIDENCE_HOST
DISK = node_pb2.RESIDENCE_DISK
RETURNING = node_pb2.RESIDENCE_RETURNING

Job = Callable[[], None]


class Residing:
    """Where the memory of one session is. Orders are carried out one after the other."""

    def __init__(self, core: Core, session: int, log: Log) -> None:
        self._core = core
        self._session = session
        self._log = log
        self._copies = Copies(core)
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._outbox = Outbox()
        self._changed = threading.Condition()
        self._stop = False  # leave as soon as possible, or rather stay
        self._over = False
        self._busy = 0  # orders that are not carried out yet
        self._lent = False  # the copies, to whoever moves the session
        self._wanted_back = False  # by whoever moves the session, and the monitor was told
        self._heard = time.monotonic()  # when the monitor last said anything, or was told of a wish
        self.where = RESIDENT
        self.allowance = 0
        self.elastic = False

    def fileno(self) -> int:
        """A descriptor that is readable when there are messages for the monitor."""
        return self._outbox.fileno()

    def messages(self) -> list[node_pb2.FromServer]:
        """The messages for the monitor since this was last asked."""
        return self._outbox.take()

    def limit(self, allowance: int) -> None:
        """At most so many bytes may be on the device: the monitor has promised more than there are. Who is
        away meanwhile has none of them.
        """
        self.elastic = True
        self.allowance = self._core.limit_room(0 if self._core.absent else allowance)

    def wish(self) -> node_pb2.RoomWanted | None:
        """What the session waits for, once."""
        found = None if self._lent else self._core.wish()
        if found is None:
            return None
        away, wanted = found
        self._heard = time.monotonic()
        return node_pb2.RoomWanted(session=self._session, bytes=wanted, away=away)

    def heard(self) -> None:
        """The monitor has said something: it is there, and knows who waits for what."""
        self._heard = time.monotonic()

    def patience(self) -> float:
        """For how many seconds a call that waits for room does so if the monitor says nothing. Infinite:
        there is none, or it has to wait, because the session's memory is not on its device.
        """
        if not self._core.awaits_room:
            return math.inf
        return max(0.0, self._heard + ROOM_SECONDS - time.monotonic())

    def look_at_patience(self) -> None:
        """A call that has waited for too long is out of memory."""
        if self.patience() == 0:
            self._log.error("no room", session=self._session, reason=f"no word in {ROOM_SECONDS:g} s")
            self._core.refuse_room()

    # -- orders

    def allow(self, order: node_pb2.Allow) -> None:
        """More may be on the device from now on, or less; or what the session waits for cannot be had."""
        if order.refused:
            self._core.refuse_room()
        else:
            self.limit(order.allowance)
        self._say(self._described(order.number))

    def leave(self, order: node_pb2.Leave, descriptors: Sequence[int], refusal: str) -> None:
        """Send the memory away, unless there is a reason not to. Takes the descriptors."""
        files = list(zip(descriptors, order.bytes, order.on_disk, strict=True))
        if not self._begin(lambda: self._leave(order, files, refusal), order.number):
            for each in descriptors:
                os.close(each)

    def come_back(self, order: node_pb2.ComeBack) -> None:
        """Begin to bring the session's memory back to its device; the order is answered when it is there."""
        self._begin(lambda: self._come_back(order.number, order.allowance), order.number)

    def forget(self, order: node_pb2.Forget) -> None:
        """Give the copies back, if the memory is on the device."""
        self._begin(lambda: self._forget(order.number), order.number)

    def demote(self, order: node_pb2.Demote, descriptor: int) -> None:
        """Move what of the copies is in memory to this file on a disk. Takes the descriptor."""
        if not self._begin(lambda: self._demote(order, descriptor), order.number):
            os.close(descriptor)

    def lend(self, stop: Callable[[], bool]) -> Copies | None:
        """Return the copies, if the memory is away and no call has begun that needs it. Then it stays away
        until `may_leave`. For a thread that moves the session; `stop`: it shall not wait any longer.
        """
        with self._changed:
            self._stop = True
            while self._busy and not stop():
                self._changed.wait(0.05)
            self._lent = self._core.absent and not self._busy and not self._over
        if self._lent and self._between_calls(stop):
            return self._copies
        self._lent = False
        return None

    def _between_calls(self, stop: Callable[[], bool]) -> bool:
        """Whether the dispatcher came to the end of a call. Who waits for its memory within one does not."""
        deadline = time.monotonic() + LEND_SECONDS
        while not self._core.hold(HOLD_SECONDS):
            if self._core.waits_in_call or stop() or time.monotonic() > deadline:
                return False
        self._core.proceed()
        return True

    def stay(self, stop: Callable[[], bool], patience: float) -> str:
        """See to it that the memory is on the device, and stays until `leave` is ordered again. Returns why
        it cannot be, or nothing. For a thread that moves the session; `stop`: it shall not wait any longer.
        """
        deadline = time.monotonic() + patience
        with self._changed:
            self._stop = True
            while self._busy or self._core.absent:
                if self._core.absent and not self._busy:
                    self._wants_back()
                if stop() or self._over:
                    return "it was stopped while its memory was brought back"
                if time.monotonic() > deadline:
                    return "its memory is not on the GPU, and there was no room to bring it back first"
                self._changed.wait(0.05)
        return ""

    def _wants_back(self) -> None:
        """Tell the monitor, once for each move, that who moves the session needs its memory on the device."""
        if not self._wanted_back:
            self._wanted_back = True
            wanted = node_pb2.RoomWanted(session=self._session, bytes=self._needed(), away=True)
            self._tell(node_pb2.FromServer(room_wanted=wanted))

    def may_leave(self) -> None:
        """Nobody moves the session any more. What it waits for it wishes again."""
        if self._lent:
            self._core.wish_again()
        self._stop = self._wanted_back = self._lent = False

    def wish_again(self) -> None:
        """Let another monitor be told of what the session waits for."""
        self._wanted_back = False
        self._core.wish_again()

    def end(self) -> None:
        """The session is over: whatever is under way is given up, and the copies are given back."""
        with self._changed:
            self._over = self._stop = True
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
        self._copies.close()

    def close(self) -> None:
        """Close the descriptor of the messages."""
        self._outbox.close()

    # -- what is told

    def describe(self) -> node_pb2.Resides:
        """Describe where the session's memory and its copies are, when no order asked for it."""
        return self._described(0)

    def files(self) -> list[int]:
        """Its copies' files on a disk, for the next monitor. The caller closes the descriptors."""
        return self._copies.on_disks()

    def _needed(self) -> int:
        stats = self._core.stats()
        return self._core.resident + (stats["memory_mapped"] if self._core.absent else 0)

    def _described(self, number: int, reason: str = "") -> node_pb2.Resides:
        return node_pb2.Resides(
            session=self._session,
            number=number,
            where=self.where,
            reason=reason,
            allowance=self.allowance,
            mapped=self._core.stats()["memory_mapped"],
            host_bytes=self._copies.host_bytes,
            disk_bytes=self._copies.disk_bytes,
            host_taken=self._copies.host_taken,
        )

    def _say(self, resides: node_pb2.Resides) -> None:
        self._tell(node_pb2.FromServer(resides=resides))

    def _tell(self, message: node_pb2.FromServer) -> None:
        self._outbox.put(message)

    # -- on the thread

    def _begin(self, job: Job, number: int) -> bool:
        """False: the session is over, and the monitor is told so."""
        with self._changed:
            if self._over:
                self._say(self._described(number, "the session is over"))
                return False
            self._busy += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="residing", daemon=True)
                self._thread.start()
            self._jobs.put(job)
        return True

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception:
                traceback.print_exc()
                os._exit(1)  # nobody knows any more where the session's memory is
            with self._changed:
                self._busy -= 1
                self._changed.notify_all()

    def _leave(self, order: node_pb2.Leave, files: list[tuple[int, int, bool]], refusal: str) -> None:
        began = time.monotonic()
        missing = 0
        copied = 0
        with contextlib.ExitStack() as stack:
            reason = self._take_files(files) or refusal or self._why_not(order.insist)
            if not reason:
                self.where = LEAVING
                try:
                    copied = self._take_away(order, stack)
                except Interrupted:
                    reason = self._why_not_now() or "it works"
                except NoSpace as error:
                    reason, missing = str(error), error.missing
                except (OSError, RuntimeError) as error:  # of a disk; of the driver, or the session is over
                    reason = str(error)
            if not self._core.absent:
                self.where = RESIDENT
        described = self._described(order.number, reason)
        described.copied_bytes, described.missing = copied, missing
        described.seconds = time.monotonic() - began
        self._say(described)
        if self.where == RESIDENT and order.copy_only and not reason:
            self._learn()

    def _take_files(self, files: list[tuple[int, int, bool]]) -> str:
        """For copies; why one cannot be used, or nothing."""
        reason = ""
        for descriptor, size, on_disk in files:
            try:
                self._copies.add(descriptor, size, on_disk)
            except (OSError, ValueError, SessionOver) as error:
                reason = str(error)
        return reason

    def _why_not_now(self) -> str:
        return "it ends, or is being moved" if self._over or self._stop else ""

    def _why_not(self, insist: bool) -> str:
        if why := self._why_not_now():
            return why
        if self._core.absent:
            return "it is away already"
        if why := self._core.stays:
            return why
        if not insist and self._core.idle_seconds == 0:
            return "it works"
        return ""

    def _take_away(self, order: node_pb2.Leave, stack: contextlib.ExitStack) -> int:
        """Copies the session's memory and gives the device's back. Returns the bytes copied."""
        core = self._core
        patience = INSIST_SECONDS if order.insist else 0.0
        if not core.hold_to_leave(patience or HOLD_SECONDS):
            raise Interrupted
        stack.callback(core.stay)
        self._come_to_rest(patience)

        def stop() -> bool:
            return self._stop or (not order.insist and core.guest_waits)

        copied = self._copies.update(stop)
        if order.copy_only:
            return copied
        if stop():
            raise Interrupted
        try:
            core.send_away()
        except DeviceError as error:
            self._lost(error)
        self.where = DISK if self._copies.on_disk else HOST
        self.allowance = core.limit_room(0) if self.elastic else 0
        self._log.info("left the device", session=self._session, copied=copied)
        return copied

    def _come_to_rest(self, patience: float) -> None:
        """Nothing of it is under way any more. What the device waits for may be what the program does next:
        so it goes on a little, now and then.
        """
        if why := self._core.drain(patience):
            raise Interrupted if "at work" in why or "functions" in why else RuntimeError(why)
        if why := self._core.stays:
            raise RuntimeError(why)

    def _learn(self) -> None:
        """By what true copies can be told later, as long as nobody needs the session."""
        # Its program may have mapped more meanwhile, for which there is no room.
        with contextlib.ExitStack() as stack, contextlib.suppress(Interrupted, NoSpace, RuntimeError):
            if not self._core.hold_to_leave(HOLD_SECONDS):
                return
            stack.callback(self._core.stay)
            if not self._core.drain(0.0):
                self._copies.update(lambda: True)
                self._copies.note_hashes(self._is_wanted)
                self._log.info("knows its pages by their hashes", session=self._session)

    def _come_back(self, number: int, allowance: int) -> None:
        began = time.monotonic()
        reason, copied = "", 0
        if self._lent:
            reason = MOVES
        elif self._core.absent:
            self.where = RETURNING
            try:
                copied, reason = self._bring_back(allowance)
            except SessionOver as error:
                reason = str(error)
            except (OSError, RuntimeError) as error:
                reason = self._lost(error)
            if self._core.absent:
                self.where = DISK if self._copies.on_disk else HOST
        elif self.elastic:
            self.limit(allowance)
        described = self._described(number, reason)
        described.copied_bytes, described.seconds = copied, time.monotonic() - began
        self._say(described)

    def _bring_back(self, allowance: int) -> tuple[int, str]:
        """Returns the bytes copied, and why it stays away."""
        core = self._core
        if self.elastic and allowance < self._needed():
            return 0, f"it needs {self._needed()} bytes on the device"
        if not core.bring_back():
            return 0, "the device has not enough memory"
        copied = self._copies.restore()
        self._copies.restored()
        if self.elastic:
            self.allowance = core.limit_room(allowance)
        self.where = RESIDENT
        core.settle_back()
        return copied, ""

    def _lost(self, error: Exception) -> str:
        """A disk or the device has failed, and with it what the session had there."""
        reason = f"device error: its memory is lost: {error}"
        self._log.error("memory is lost", session=self._session, reason=str(error))
        self._core.end(End(node_pb2.CAUSE_DEVICE, reason))
        return reason

    def _demote(self, order: node_pb2.Demote, descriptor: int) -> None:
        began = time.monotonic()
        reason, copied = "it is not away", 0
        try:
            if not self._core.absent or self._lent:
                os.close(descriptor)
            else:
                copied = self._copies.demote(descriptor, order.bytes, self._is_wanted)
                reason = ""
                self.where = DISK if self._copies.on_disk else HOST
        except Interrupted:
            reason = "it is wanted back"
        except (OSError, SessionOver) as error:
            reason = str(error)
        described = self._described(order.number, reason)
        described.copied_bytes, described.seconds = copied, time.monotonic() - began
        self._say(described)

    def _is_wanted(self) -> bool:
        """Whether somebody waits for the session's memory, or for this thread."""
        return self._stop or self._core.guest_waits or not self._jobs.empty()

    def _forget(self, number: int) -> None:
        reason = ""
        if self._core.absent:
            reason = "they are all that there is of it"
        else:
            self._copies.close()
        self._say(self._described(number, reason))
