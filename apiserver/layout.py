"""Where things lie in this process: as in every other API server, instead of at random.

A driver chooses the addresses of module variables by what is free in the process. Where API servers are
alike, so are these addresses, and programs that know them can be moved.
"""

from __future__ import annotations

import ctypes
import os
import sys

ADDR_NO_RANDOMIZE = 0x0040000
WANTED, DONE = "--fixed-addresses", "--addresses-fixed"  # options: to begin again, and that this is done


def fix() -> None:
    """Begin again, once, without a randomised address space. Where that is not allowed, say so and go on."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.personality(ADDR_NO_RANDOMIZE) == -1:
        why = os.strerror(ctypes.get_errno())
        print(f"gpuferry: variables may lie elsewhere than in other API servers: {why}", file=sys.stderr)
        return
    os.execv(sys.executable, [DONE if word == WANTED else word for word in sys.orig_argv])


def leave() -> None:
    """What is started from here on has a randomised address space again."""
    ctypes.CDLL(None).personality(0)
