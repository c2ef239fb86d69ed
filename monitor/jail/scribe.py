"""Where processes in jails write to: pipes, not the monitor's standard error, which they could spoil."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO

CLERK = Path(__file__).with_name("clerk.py")


class Scribe:
    """Keeps a clerk: a process that reads the pipes, and outlives us as long as somebody speaks.

    Who has our standard error itself can make it non-blocking for all who share it, shut it down where it is
    journald's socket, cut it off or write over it where it is a file, and fill the disk.
    """

    def __init__(self, output: IO[bytes] | None = None) -> None:
        """`output`: where the clerk writes; none: our standard error."""
        self._output = output
        self._clerk: subprocess.Popen[bytes] | None = None
        self._end: socket.socket | None = None

    def voice(self) -> int:
        """A new pipe's writing end, to be given to one process and closed. Raises OSError."""
        reading, writing = os.pipe()
        try:
            self._hand(reading)
        except BaseException:
            os.close(writing)
            raise
        finally:
            os.close(reading)
        return writing

    def _hand(self, reading: int) -> None:
        """To the clerk, or to another one if that is gone."""
        if self._end:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                socket.send_fds(self._end, [b"v"], [reading])
                return
            self.close()
        self._end = self._employ()
        socket.send_fds(self._end, [b"v"], [reading])

    def _employ(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        with theirs:
            self._clerk = subprocess.Popen(
                [sys.executable, "-IS", str(CLERK)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=self._output,
                env={},
                start_new_session=True,
            )
        return ours

    def close(self) -> None:
        """Hand the clerk no more pipes. It goes on until the last process that writes into one has ended."""
        if self._end:
            self._end.close()
            self._end = None
        if self._clerk:
            self._clerk.poll()
