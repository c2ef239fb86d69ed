"""What a compiler gives up before it reads the first image: all but computing, and talking on its socket.

An image is somebody else's, and LLVM is large. Whoever takes the compiler over can open no file, so reaches
no process by /proc either, makes no socket, no process and no code, and signals nobody. Its answers are
believed no more than its client's own kernels are.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator

from gpuferry.native.seccomp import install
from gpuferry.native.simdevice.ptx.compiler import DUMP

LOAD, EQUAL, ANY_BIT, RETURN = 0x20, 0x15, 0x45, 0x06  # BPF
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16  # places in struct seccomp_data
X86_64 = 0xC000003E
PROT_EXEC, STDERR = 4, 2

# By number on x86-64. The interpreter and LLVM, once all is imported, need little.
ALLOWED = {
    "recvfrom": 45,
    "sendto": 44,
    "close": 3,
    "poll": 7,
    "select": 23,
    "pselect6": 270,
    "ppoll": 271,
    "futex": 202,
    "brk": 12,
    "munmap": 11,
    "mremap": 25,
    "madvise": 28,
    "setitimer": 38,
    "clock_gettime": 228,
    "clock_nanosleep": 230,
    "sched_yield": 24,
    "getrandom": 318,
    "rt_sigprocmask": 14,
    "rt_sigreturn": 15,
    "restart_syscall": 219,
    "gettid": 186,
    "getpid": 39,
    "exit": 60,
    "exit_group": 231,
}
# Only where the argument of this place holds none of the bits, or is the number.
WITHOUT = {"mmap": (9, 2, PROT_EXEC), "mprotect": (10, 2, PROT_EXEC)}
ONLY = {"write": (1, 0, STDERR)}


def _step(code: int, value: int, if_so: int = 0, if_not: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_so, if_not, value)


def _steps() -> Iterator[bytes]:
    yield _step(LOAD, ARCHITECTURE)
    yield _step(EQUAL, X86_64, 1, 0)
    yield _step(RETURN, REFUSE)
    yield _step(LOAD, NUMBER)
    for number in ALLOWED.values():
        yield _step(EQUAL, number, 0, 1)
        yield _step(RETURN, ALLOW)
    for rules, code, wrong in ((WITHOUT, ANY_BIT, (1, 0)), (ONLY, EQUAL, (0, 1))):
        for number, argument, value in rules.values():
            yield _step(EQUAL, number, 0, 4)
            yield _step(LOAD, ARGUMENTS + 8 * argument)
            yield _step(code, value, *wrong)
            yield _step(RETURN, ALLOW)
            yield _step(RETURN, REFUSE)
    yield _step(RETURN, REFUSE)


def confine() -> None:
    """Give it up, all threads of this process, for ever. Where the kernel has no filters it goes on without
    one: there are no jails either. Raises OSError.
    """
    if os.environ.get(DUMP):  # somebody wants files
        return
    try:
        install(b"".join(_steps()))
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EINVAL):
            raise
