"""What one request may cost. The image is somebody else's, and may be made to take for ever.

The system ends the process, whatever it does then: no code of ours has to come to its turn. The other side
(exec/service.c) sees the connection end, says why, and starts another process for the next request.
"""

from __future__ import annotations

import os
import resource
import signal

SECONDS = "GPUFERRY_SIM_COMPILE_SECONDS"
BYTES = "GPUFERRY_SIM_COMPILE_BYTES"
DEFAULT_SECONDS = 120  # of the processor, so that a busy machine fails nobody
DEFAULT_BYTES = 4 << 30


def set_memory() -> None:
    """Bound the address space of this process, once."""
    most = _setting(BYTES, DEFAULT_BYTES)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def begin() -> None:
    """Count the processor's time from here on; SIGPROF, which nobody handles, ends the process."""
    signal.setitimer(signal.ITIMER_PROF, _setting(SECONDS, DEFAULT_SECONDS))


def end() -> None:
    """Stop counting the processor's time."""
    signal.setitimer(signal.ITIMER_PROF, 0)


def _setting(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() and int(text) > 0 else default
