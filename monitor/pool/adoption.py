"""What a monitor leaves for the next one, if it is killed."""

from __future__ import annotations

import json
import secrets
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import structlog

from ..service.runtime import RuntimeDirectory

LEDGER = "ledger"
BLOCK = 1000  # session numbers that are reserved at once
UNKNOWN = 1 << 50  # beyond what a monitor ever counts to
RETURN_SECONDS = 0.5  # in which API servers that are there come back
LATEST_RETURN_SECONDS = 30.0  # on a machine that has much else to do

log = structlog.get_logger()


class Ledger:
    """What the next monitor must know. It is there exactly while this one runs, or after it was killed."""

    def __init__(self, runtime: RuntimeDirectory) -> None:
        self._runtime = runtime
        try:
            left = json.loads((runtime.path / LEDGER).read_text())
            self.secret, first = bytes.fromhex(left["secret"]), int(left["sessions"])
            self.released = left.get("released", True)  # that monitor, or one before it, was of release 0.1
            self.inherited = True  # an earlier monitor was killed
        except FileNotFoundError:
            self.secret, first = secrets.token_bytes(32), 1
            self.inherited = self.released = False
        except (OSError, ValueError, KeyError, TypeError) as error:
            # Nobody knows how far it went. No monitor counts that far, so no number is given twice.
            log.error("the ledger cannot be read: sessions of an earlier monitor are lost", error=str(error))
            self.secret, first = secrets.token_bytes(32), UNKNOWN + secrets.randbelow(UNKNOWN)
            self.inherited = self.released = False
        runtime.leave(LEDGER, self.inherited)
        self._next = self._reserved = first
        self._failing = False
        self._writing = threading.Lock()
        self._writer = ThreadPoolExecutor(1, "ledger")
        self._writer.submit(int)  # its thread starts now, not before a guest
        self._written: Future[None] | None = None

    def take_over(self) -> None:
        """This monitor runs: what the one before has left is its own from now on, and ends with it. Until
        then its end is that of a start that failed, and no reason to lose sessions.
        """
        self._runtime.leave(LEDGER, False)

    def next_session(self) -> int | None:
        """A number that no session of this or an earlier monitor has; None: the ledger cannot be written, and
        all numbers that it promises were given.

        More are promised long before these run out, so that a disk that is full for a while keeps nobody
        out, and in the background, so that no guest waits for a disk.
        """
        if self._next >= self._reserved:
            self._try_to_reserve(0)
            if self._next >= self._reserved:
                return None
        elif self._next + BLOCK // 2 >= self._reserved and (not self._written or self._written.done()):
            self._written = self._writer.submit(self._try_to_reserve, BLOCK // 2)
        self._next += 1
        return self._next - 1

    def _try_to_reserve(self, left: int) -> None:
        """Unless more than `left` numbers are there by now."""
        with self._writing:
            if self._next + left < self._reserved:
                return
            try:
                self.reserve_numbers()
            except OSError as error:
                if not self._failing:
                    numbers = self._reserved - self._next
                    log.error("the ledger cannot be written", error=str(error), numbers_left=numbers)
                self._failing = True
            else:
                self._failing = False

    def reserve_numbers(self) -> None:
        """Write down how far session numbers may go, so that the next monitor gives none of them twice.
        Raises OSError, and nothing has changed.
        """
        reserved = self._reserved + BLOCK
        content = {"secret": self.secret.hex(), "sessions": reserved, "released": self.released}
        self._runtime.publish(LEDGER, json.dumps(content) + "\n")
        self._reserved = reserved
