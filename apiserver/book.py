"""The book of a lease that several processes of a program share, as one of their API servers has it."""

from __future__ import annotations

import os
import struct
import time

from gpuferry.specs._generated.constants import SEAT_BYTES, SEATS

ACTIVE = struct.Struct("<Q")  # the second half of a seat
_SIZE = SEATS * SEAT_BYTES
_ACTIVE_AT = SEAT_BYTES - ACTIVE.size


class Book:
    """An open file that the monitor gave: a seat for each process. What a seat has claimed the engine writes,
    and this says when its process last made a call.
    """

    def __init__(self, file: int, seat: int) -> None:
        self.file = file
        self.seat = seat

    def note_active(self, moment: float) -> None:
        """The session of this seat last made a call at this time, of time.monotonic()."""
        os.pwrite(self.file, ACTIVE.pack(int(moment * 1e9)), self.seat * SEAT_BYTES + _ACTIVE_AT)

    def last_active(self) -> float:
        """When any process of the lease last made a call, as time.monotonic() has it."""
        page = os.pread(self.file, _SIZE, 0)
        if len(page) < _SIZE:
            return 0.0
        moments: list[int] = [ACTIVE.unpack_from(page, at)[0] for at in range(_ACTIVE_AT, _SIZE, SEAT_BYTES)]
        return min(max(moments) / 1e9, time.monotonic())

    def close(self) -> None:
        """Close the book's descriptor. The seat stays as it is: the monitor empties it."""
        os.close(self.file)
