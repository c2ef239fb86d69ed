"""What a monitor leaves for the next one, if it is killed."""

from __future__ import annotations

import itertools
import json
import secrets

from ..service.runtime import RuntimeDirectory

LEDGER = "ledger"
BLOCK = 1000  # session numbers that are reserved at once
RETURN_SECONDS = 0.5  # in which API servers that are there come back
LATEST_RETURN_SECONDS = 30.0  # on a machine that has much else to do


class Ledger:
    """What the next monitor must know. It is there exactly while this one runs, or after it was killed."""

    def __init__(self, runtime: RuntimeDirectory) -> None:
        self._runtime = runtime
        try:
            left = json.loads((runtime.path / LEDGER).read_text())
            self.secret, first = bytes.fromhex(left["secret"]), int(left["sessions"])
            self.released = left.get("released", True)  # that monitor, or one before it, was of release 0.1
            self.inherited = True  # an earlier monitor was killed
        except (OSError, ValueError, KeyError, TypeError):
            self.secret, first = secrets.token_bytes(32), 1
            self.inherited = self.released = False
        self._numbers = itertools.count(first)
        self._reserved = first

    def next_session(self) -> int:
        """A number that no session of this or an earlier monitor has."""
        number = next(self._numbers)
        if number >= self._reserved:
            self.reserve_numbers()
        return number

    def reserve_numbers(self) -> None:
        """Write down how far session numbers may go, so that the next monitor gives none of them twice."""
        self._reserved += BLOCK
        content = {"secret": self.secret.hex(), "sessions": self._reserved, "released": self.released}
        self._runtime.publish(LEDGER, json.dumps(content) + "\n")
