# mypy: ignore-errors
"""A compiler of kernels that an image took over: runs what an attacker would, and answers with what it got.

`python compiler.py FREE PID`: its socket is standard input. FREE: 1, it gave nothing up. PID: somebody's.
"""

import ctypes
import json
import mmap
import os
import socket
import sys

from gpuferry.native.simdevice.compiler import confinement, service

LIBC = ctypes.CDLL(None, use_errno=True)
PTRACE_SEIZE, PR_SET_DUMPABLE = 0x4206, 4
FREE, OTHER = sys.argv[1] == "1", int(sys.argv[2])


def ask(call, *arguments):
    if call(*arguments) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return "through"


def child():
    if (pid := os.fork()) == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return pid


TRIES = {
    "read a file": lambda: len(os.read(os.open("/proc/self/status", os.O_RDONLY), 10)),
    "list a folder": lambda: len(os.listdir("/")),
    "write a file": lambda: os.open("/tmp", os.O_TMPFILE | os.O_RDWR),
    "reach its client's memory": lambda: os.open(f"/proc/{OTHER}/mem", os.O_RDWR),
    "signal its client": lambda: os.kill(OTHER, 0) or "through",
    "trace its client": lambda: ask(LIBC.ptrace, PTRACE_SEIZE, OTHER, None, None),
    "a socket": lambda: socket.socket(socket.AF_UNIX).fileno(),
    "a pair of sockets": lambda: socket.socketpair()[0].fileno(),
    "a file in memory": lambda: os.memfd_create("x"),
    "a process": child,
    "a program": lambda: os.spawnv(os.P_WAIT, "/bin/true", ["true"]),
    "code": lambda: len(mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)),
    "its own settings": lambda: ask(LIBC.prctl, PR_SET_DUMPABLE, 1, 0, 0, 0),
    "more memory": lambda: ask(LIBC.prlimit64, 0, 9, None, ctypes.create_string_buffer(16)),
    "write to its socket as a file": lambda: os.write(0, b""),
}


def attack(self, op, cc, key, payload):
    found = {}
    for name, attempt in TRIES.items():
        try:
            found[name] = f"got {attempt()}"
        except OSError as error:
            found[name] = f"denied {error.strerror}"
    return 0, json.dumps(found).encode()


if FREE:
    confinement.confine = lambda: None
service.Service._answer = attack
with socket.socket(fileno=0) as connection:
    service.Service(connection).run()
