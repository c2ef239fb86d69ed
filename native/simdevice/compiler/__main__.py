"""Serves one program: its socket is standard input."""

from __future__ import annotations

import contextlib
import signal
import socket

from . import limits
from .service import Service


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the program's affair
    limits.set_memory()
    # A program may end before it is answered.
    gone = contextlib.suppress(BrokenPipeError, ConnectionResetError)
    with gone, socket.socket(fileno=0) as connection:
        Service(connection).run()


if __name__ == "__main__":
    main()
