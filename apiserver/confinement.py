"""The inner half of a jail: what a process gives up by itself, once it is in (monitor/jail/DESIGN.md).

`enter` comes first of all, `seal` before anything of a guest can arrive. Neither can be undone.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gpuferry.native.seccomp import install

CLONE_NEWUSER = 0x10000000
PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_CAP_AMBIENT = 4, 24, 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
CAPABILITIES = 64  # the kernel knows fewer, and says EINVAL for the others
CAPABILITY_VERSION = 0x20080522
LIMITS = {
    "processes": resource.RLIMIT_NPROC,
    "descriptors": resource.RLIMIT_NOFILE,
    "file_bytes": resource.RLIMIT_FSIZE,
}


class Confinement(NamedTuple):
    """What the monitor decided for one process."""

    uid: int = 0  # that it takes on, as user and group; 0: it stays who it is
    groups: Sequence[int] = ()
    limits: Mapping[str, int] = {}
    data_bytes: int = 0  # of private memory beyond what it has when it is sealed
    nice: int = 0  # by how much it stands back from others
    filter: str = ""  # of system calls: a BPF program, in hexadecimal

    @classmethod
    def read(cls, descriptor: int) -> Confinement:
        """What this file says, as JSON."""
        os.lseek(descriptor, 0, os.SEEK_SET)
        with open(descriptor, encoding="utf-8", closefd=False) as file:
            return cls(**json.load(file))

    def enter(self, *kept: int) -> None:
        """Close all descriptors but the standard ones and those named, and become somebody else in a user
        namespace of one's own, without capabilities. Raises OSError.
        """
        for entry in os.listdir("/proc/self/fd"):
            if int(entry) not in (0, 1, 2, *kept):
                with contextlib.suppress(OSError):  # that of the folder, closed by now
                    os.close(int(entry))
        os.nice(self.nice)  # threads that come have it too
        libc = ctypes.CDLL(None, use_errno=True)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the first process of its namespace: nobody else reaps
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if not self.uid:
            return
        os.setgroups(self.groups)
        os.setresgid(self.uid, self.uid, self.uid)
        os.setresuid(self.uid, self.uid, self.uid)
        _call(libc.prctl, PR_SET_DUMPABLE, 1, 0, 0, 0)  # or its own files in /proc are root's
        _call(libc.unshare, CLONE_NEWUSER)
        for name, line in (
            ("setgroups", "deny"),
            ("uid_map", f"{self.uid} {self.uid} 1"),
            ("gid_map", f"{self.uid} {self.uid} 1"),
        ):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(line)
        _drop_capabilities(libc)

    def seal(self) -> None:
        """Limit what may be had, and the system calls of all threads, from here on. Raises OSError."""
        limits = {LIMITS[name]: value for name, value in self.limits.items()}
        if self.data_bytes:
            limits[resource.RLIMIT_DATA] = _data_bytes() + self.data_bytes
        for kind, wanted in limits.items():
            hard = resource.getrlimit(kind)[1]
            least = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(kind, (least, least))
        code = bytes.fromhex(self.filter)
        if code:
            install(code)


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    for capability in range(CAPABILITIES):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    _call(libc.prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    _call(libc.capset, header, (ctypes.c_uint32 * 6)())


def _call(function: object, *arguments: object) -> None:
    if function(*arguments):  # type: ignore[operator]
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _data_bytes() -> int:
    """What RLIMIT_DATA counts of this process now."""
    with open("/proc/self/status", encoding="ascii") as status:
        fields = dict(line.split(":", 1) for line in status)
    return int(fields["VmData"].split()[0]) << 10
