"""Which system calls are let through in a jail: libseccomp makes a program for the kernel of this list."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import socket
import tempfile

from gpuferry.native.seccomp import FLAG_TSYNC, SET_MODE_FILTER

LIBRARY = "libseccomp.so.2"
ALLOW, ERROR = 0x7FFF0000, 0x00050000
OPTIMIZE = 8  # SCMP_FLTATR_CTL_OPTIMIZE
BY_TREE = 2  # the kernel finds a call in a binary tree, not in a list

# What is not here fails with EPERM, as for a program without the right to it: libraries try something else
# then, or say what they could not do. To kill would turn every new call of a C library into a dead session.
CALLS = {
    "memory": "brk mmap munmap mremap mprotect madvise mlock munlock mlock2 msync mincore membarrier"
    " memfd_create pkey_alloc pkey_free pkey_mprotect get_mempolicy",
    "threads": "futex futex_waitv set_robust_list get_robust_list rseq set_tid_address gettid arch_prctl"
    " sched_yield sched_getaffinity sched_setaffinity sched_getparam sched_getscheduler getcpu"
    " restart_syscall exit exit_group",
    "signals of its own": "rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait"
    " rt_sigsuspend sigaltstack kill tkill tgkill pause setitimer getitimer alarm",
    "files": "open openat openat2 creat close close_range read write readv writev pread64 pwrite64 preadv"
    " pwritev preadv2 pwritev2 lseek stat fstat lstat newfstatat statx statfs fstatfs access faccessat"
    " faccessat2 readlink readlinkat getdents getdents64 getcwd chdir fchdir mkdir mkdirat rmdir unlink"
    " unlinkat rename renameat renameat2 link linkat symlink symlinkat chmod fchmod fchmodat umask"
    " utimensat utime utimes futimesat truncate ftruncate fallocate fsync fdatasync sync_file_range fadvise64"
    " flock dup dup2 dup3 copy_file_range sendfile splice tee",
    "descriptors": "pipe pipe2 eventfd eventfd2 poll ppoll select pselect6 epoll_create epoll_create1"
    " epoll_ctl epoll_wait epoll_pwait epoll_pwait2 timerfd_create timerfd_settime timerfd_gettime"
    " signalfd4",
    "sockets that it was given": "sendto recvfrom sendmsg recvmsg sendmmsg recvmmsg shutdown getsockname"
    " getpeername getsockopt accept accept4",
    "time": "clock_gettime clock_getres clock_nanosleep nanosleep gettimeofday time times",
    "what it is": "getpid getppid getuid geteuid getgid getegid getresuid getresgid getgroups getpgrp getpgid"
    " getsid getrlimit setrlimit prlimit64 getrusage getpriority sysinfo uname getrandom capget",
    "a compiler": "fork vfork execve execveat wait4 waitid setsid setpgid",
}
NEW_NAMESPACES = 0x7E020000  # CLONE_NEW*: user, mount, pid, network, ipc, uts, cgroup
# FIOCLEX, FIONCLEX, FIONBIO, FIOASYNC, FIONREAD, TCGETS: what Python asks of descriptors.
DESCRIPTOR_REQUESTS = (0x5451, 0x5450, 0x5421, 0x5452, 0x541B, 0x5401)
# F_*: DUPFD, GETFD, SETFD, GETFL, SETFL, GETLK, SETLK, SETLKW, these three of open files (OFD),
# DUPFD_CLOEXEC, ADD_SEALS, GET_SEALS. Not SETLEASE, for which others wait, nor SETOWN, which sends signals.
DESCRIPTOR_COMMANDS = (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030, 1033, 1034)
# PR_*: SET_PDEATHSIG, GET_DUMPABLE, SET_NAME, GET_NAME, SET_TIMERSLACK, SET_NO_NEW_PRIVS, GET_NO_NEW_PRIVS,
# CAPBSET_READ, SET_VMA (names of mappings).
PROCESS_SETTINGS = (1, 3, 15, 16, 29, 38, 39, 23, 0x53564D41)
MASKED, EQUAL = 7, 4  # SCMP_CMP_MASKED_EQ, SCMP_CMP_EQ


class Comparison(ctypes.Structure):
    """struct scmp_arg_cmp."""

    _fields_ = (
        ("argument", ctypes.c_uint),
        ("operator", ctypes.c_int),
        ("one", ctypes.c_uint64),
        ("other", ctypes.c_uint64),
    )


class NoFilter(Exception):
    """libseccomp is not there, or cannot make the filter."""


class _Filter:
    """A filter under construction."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL(LIBRARY)
        except OSError:
            raise NoFilter(f"{LIBRARY} is not installed (Debian's package libseccomp2)") from None
        self._library.seccomp_init.restype = ctypes.c_void_p
        self._context = ctypes.c_void_p(self._library.seccomp_init(ERROR | errno.EPERM))
        self._library.seccomp_attr_set(self._context, OPTIMIZE, BY_TREE)

    def add(self, action: int, call: str, *comparisons: Comparison) -> None:
        """Do this with the call if all comparisons hold. One that this machine does not have is left out."""
        number = self._library.seccomp_syscall_resolve_name(call.encode())
        if number < 0:
            return
        array = (Comparison * len(comparisons))(*comparisons)
        status = self._library.seccomp_rule_add_array(
            self._context, ctypes.c_uint32(action), number, len(comparisons), array
        )
        if status and status != -errno.EACCES:  # the same as the default
            raise NoFilter(f"libseccomp refuses {call}: {os.strerror(-status)}")

    def program(self) -> bytes:
        """The filter in the kernel's language."""
        with tempfile.TemporaryFile() as file:
            status = self._library.seccomp_export_bpf(self._context, file.fileno())
            self._library.seccomp_release(self._context)
            if status:
                raise NoFilter(f"libseccomp: {os.strerror(-status)}")
            file.seek(0)
            return file.read()


@functools.cache
def program(gpu: bool) -> bytes:
    """The filter of a jail, with what NVIDIA's driver needs if `gpu`. Raises NoFilter."""
    made = _Filter()
    for calls in CALLS.values():
        for call in calls.split():
            made.add(ALLOW, call)
    # glibc asks by clone3, whose flags a filter cannot see, and takes clone if there is none.
    made.add(ERROR | errno.ENOSYS, "clone3")
    made.add(ALLOW, "clone", Comparison(0, MASKED, NEW_NAMESPACES, 0))
    # To give up more, as compilers of kernels do.
    made.add(ALLOW, "seccomp", Comparison(0, EQUAL, SET_MODE_FILTER), Comparison(1, EQUAL, FLAG_TSYNC))
    made.add(ALLOW, "socketpair", Comparison(0, EQUAL, socket.AF_UNIX))
    for request in DESCRIPTOR_REQUESTS:
        made.add(ALLOW, "ioctl", Comparison(1, MASKED, 0xFFFFFFFF, request))
    for command in DESCRIPTOR_COMMANDS:
        made.add(ALLOW, "fcntl", Comparison(1, MASKED, 0xFFFFFFFF, command))
    for setting in PROCESS_SETTINGS:
        made.add(ALLOW, "prctl", Comparison(0, EQUAL, setting))
    if gpu:
        from . import nvidia

        for call in nvidia.CALLS:
            made.add(ALLOW, call)
        for mask, request in nvidia.REQUESTS:
            made.add(ALLOW, "ioctl", Comparison(1, MASKED, mask, request))
        level = Comparison(1, MASKED, 0xFFFFFFFF, socket.SOL_SOCKET)
        for option in nvidia.SOCKET_OPTIONS:
            made.add(ALLOW, "setsockopt", level, Comparison(2, MASKED, 0xFFFFFFFF, option))
    return made.program()
