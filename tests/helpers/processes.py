"""Processes of a test, and where their threads stand."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

GDB = ("-batch", "-nx", "-ex", "set pagination off", "-ex", "thread apply all backtrace 14")
SECONDS = 30
WIDE = 160


def descendants(pid: int) -> set[int]:
    """Processes below `pid`, itself included, that are not zombies."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                state, parent = (entry / "stat").read_bytes().rpartition(b")")[2].split()[:2]
                if state != b"Z":
                    parents[int(entry.name)] = int(parent)
    found = {pid} & parents.keys()
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def told_of(pid: int, what: str) -> str:
    """What /proc says of a process: `cmdline`, or `environ`. Nothing, once it has ended."""
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def where_they_stand() -> str:
    """All threads of the processes below this one; "" where gdb is not installed. For the message of a wait
    that was in vain: what keeps a test waiting once in a hundred runs leaves nothing else behind.
    """
    gdb = shutil.which("gdb")
    if gdb is None:
        return ""
    below = descendants(os.getpid()) - {os.getpid()}
    return "\n".join(line for pid in sorted(below) for line in _of(gdb, pid))


def _of(gdb: str, pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        told = subprocess.run(
            [gdb, "-p", str(pid), *GDB],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=SECONDS,
            check=False,
        )
        yield f"-- {pid} {command[:WIDE]}"
        yield from (line[:WIDE] for line in told.stdout.splitlines() if line.startswith(("Thread", "#")))
