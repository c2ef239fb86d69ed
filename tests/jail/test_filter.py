"""What the filter of system calls lets through of a call depends on what it asks for."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

# Each, in a process that the filter judges: what came of it, by name.
TRIES = """
import fcntl, json, os, socket, struct, sys, tempfile
from gpuferry.monitor.jail.filter import program
from gpuferry.native.seccomp import install
F_SETOWN_EX, F_SETSIG = 15, 10
file = tempfile.NamedTemporaryFile()
held = os.open(file.name, os.O_RDONLY)
file.close()
ours, theirs = socket.socketpair()
memory = os.memfd_create("x", os.MFD_ALLOW_SEALING)
sockopt = lambda level, option, value: ours.setsockopt(level, option, value)
tries = {
    "linger": lambda: sockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 1000000)),
    "buffer": lambda: sockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20),
    "lease": lambda: fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_RDLCK),
    "notify": lambda: fcntl.fcntl(os.open("/", os.O_RDONLY), fcntl.F_NOTIFY, fcntl.DN_CREATE),
    "owner": lambda: fcntl.fcntl(ours, fcntl.F_SETOWN, os.getpid()),
    "other owner": lambda: fcntl.fcntl(ours, F_SETOWN_EX, struct.pack("ii", 1, os.getpid())),
    "signal": lambda: fcntl.fcntl(ours, F_SETSIG, 10),
    "copy": lambda: os.close(os.dup(held)),
    "copy by fcntl": lambda: os.close(fcntl.fcntl(held, fcntl.F_DUPFD_CLOEXEC, 0)),
    "flags": lambda: ours.setblocking(False),
    "lock": lambda: fcntl.lockf(held, fcntl.LOCK_SH),
    "seal": lambda: fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW),
}
install(program(sys.argv[1] == "gpu"))
found = {}
for name, attempt in tries.items():
    try:
        attempt()
        found[name] = "through"
    except OSError as error:
        found[name] = error.strerror
print(json.dumps(found))
"""
DENIED = "Operation not permitted"


@pytest.mark.parametrize("device", ["simulated", "gpu"])
def test_nothing_that_makes_others_wait_or_signals_them(device: str) -> None:
    """A close() that lingers, and a lease that must be broken, hold whoever has the file or the socket. With
    the filter of before (setsockopt, and all of fcntl) all of these were through.
    """
    done = subprocess.run(
        [sys.executable, "-c", TRIES, device], capture_output=True, text=True, timeout=60, check=True
    )
    found = json.loads(done.stdout)
    kept = {"copy", "copy by fcntl", "flags", "lock", "seal"} | ({"buffer"} if device == "gpu" else set())
    assert {name for name, what in found.items() if what == "through"} == kept
    assert {what for name, what in found.items() if name not in kept} == {DENIED}
