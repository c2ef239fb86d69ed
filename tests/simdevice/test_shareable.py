"""Physical memory that travels between processes and devices as a file descriptor."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from gpuferry.native.descriptors import receive

from tests.helpers.paths import SIM_LIBRARY

from .driver import INVALID_DEVICE, INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY, UNKNOWN, Driver
from .test_vmm import MIB2, OUT, Location, Properties, allow, create, reserved

POSIX_FD = 1
ALLOWED_HANDLE_TYPES = 14
DEVICE_ORDINAL = 9
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


def shareable(cu: Driver, size: int = MIB2, device: int = 0) -> int:
    properties = Properties(type=1, handle_types=POSIX_FD, location=Location(1, device))
    return int(cu.out("cuMemCreate", size, ctypes.byref(properties), 0))


def exported(cu: Driver, handle: int) -> int:
    return int(cu.out("cuMemExportToShareableHandle", handle, POSIX_FD, 0, type=ctypes.c_int))


def imported(cu: Driver, fd: int) -> int:
    return int(cu.out("cuMemImportFromShareableHandle", fd, POSIX_FD))


@contextmanager
def mapped(cu: Driver, handle: int, size: int = MIB2, device: int = 0) -> Iterator[int]:
    with reserved(cu, size) as pointer:
        cu.ok("cuMemMap", pointer, size, 0, handle, 0)
        allow(cu, pointer, size, device=device)
        yield pointer
        cu.ok("cuMemUnmap", pointer, size)


def test_an_import_is_the_same_memory_and_outlives_the_original(cu: Driver, context: int) -> None:
    before = cu.used()
    original = shareable(cu)
    assert cu.used() == before + MIB2
    fd = exported(cu, original)
    assert fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    again = imported(cu, fd)
    os.close(fd)
    assert cu.used() == before + MIB2
    with mapped(cu, original) as one, mapped(cu, again) as other:
        cu.write(one + 12345, b"one")
        assert cu.read(other + 12345, 3) == b"one"
        cu.write(other + 12345, b"two")
        assert cu.read(one + 12345, 3) == b"two"
    cu.ok("cuMemRelease", original)
    assert cu.used() == before
    with mapped(cu, again) as other:
        assert cu.read(other + 12345, 3) == b"two"
        third = exported(cu, again)  # an import can be exported
    cu.ok("cuMemRelease", again)
    with mapped(cu, last := imported(cu, third)) as pointer:
        assert cu.read(pointer + 12345, 3) == b"two"
    os.close(third)
    cu.ok("cuMemRelease", last)
    assert cu.used() == before


def test_one_memory_at_two_addresses(cu: Driver, context: int) -> None:
    handle = shareable(cu, 2 * MIB2)
    with mapped(cu, handle, 2 * MIB2) as one, mapped(cu, handle, 2 * MIB2) as other:
        cu.write(one + MIB2 - 1, b"ab")
        assert cu.read(other + MIB2 - 1, 2) == b"ab"
    cu.ok("cuMemRelease", handle)


def test_new_shareable_memory_is_zero(cu: Driver, context: int) -> None:
    for _ in range(2):
        handle = shareable(cu)
        with mapped(cu, handle) as pointer:
            assert cu.read(pointer, MIB2) == bytes(MIB2)
            cu.ok("cuMemsetD8_v2", pointer, 255, MIB2)
        cu.ok("cuMemRelease", handle)


def test_what_pointers_and_handles_say(cu: Driver, context: int) -> None:
    fd = exported(cu, original := shareable(cu, device=1))
    again = imported(cu, fd)
    os.close(fd)
    found = Properties()
    cu.ok("cuMemGetAllocationPropertiesFromHandle", ctypes.byref(found), again)
    assert (found.type, found.handle_types, found.location.type, found.location.id) == (1, POSIX_FD, 1, 1)
    with mapped(cu, again, device=0) as pointer:  # the other device is let in
        assert cu.out("cuPointerGetAttribute", ALLOWED_HANDLE_TYPES, pointer) == POSIX_FD
        assert cu.out("cuPointerGetAttribute", DEVICE_ORDINAL, pointer, type=ctypes.c_int) == 1
        for device, rights in ((0, 3), (1, 0)):
            assert cu.out("cuMemGetAccess", ctypes.byref(Location(1, device)), pointer) == rights
        retained = cu.out("cuMemRetainAllocationHandle", pointer)
        cu.ok("cuMemRelease", retained)
    plain = create(cu, MIB2)
    with mapped(cu, plain) as pointer:
        assert cu.out("cuPointerGetAttribute", ALLOWED_HANDLE_TYPES, pointer) == 0
    for handle in (plain, again, original):
        cu.ok("cuMemRelease", handle)


def test_what_cannot_be_exported(cu: Driver) -> None:
    plain, good = create(cu, MIB2), shareable(cu)
    export = "cuMemExportToShareableHandle"
    assert cu.status(export, OUT, plain, POSIX_FD, 0) == INVALID_VALUE
    assert cu.status(export, OUT, good + 16, POSIX_FD, 0) == INVALID_VALUE
    assert cu.status(export, OUT, good, POSIX_FD, 1) == INVALID_VALUE
    assert cu.status(export, None, good, POSIX_FD, 0) == INVALID_VALUE
    assert cu.status(export, OUT, good, 8, 0) == NOT_SUPPORTED
    cu.ok("cuMemRelease", plain)
    cu.ok("cuMemRelease", good)
    assert cu.status(export, OUT, good, POSIX_FD, 0) == INVALID_VALUE
    fabric = Properties(type=1, handle_types=8, location=Location(1, 0))
    assert cu.status("cuMemCreate", OUT, MIB2, ctypes.byref(fabric), 0) == NOT_SUPPORTED


def file_of(name: str, size: int, seals: int) -> int:
    fd = os.memfd_create(name, os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def test_only_sealed_files_of_ours_are_taken(cu: Driver) -> None:
    real = exported(cu, handle := shareable(cu))
    name = os.readlink(f"/proc/self/fd/{real}").removeprefix("/memfd:").removesuffix(" (deleted)")
    like_it = file_of(name, MIB2, SEALS)
    cu.ok("cuMemRelease", imported(cu, like_it))
    refused = {
        "shrinks": file_of(name, MIB2, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL),
        "seals may be added": file_of(name, MIB2, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW),
        "cannot be written": file_of(name, MIB2, SEALS | fcntl.F_SEAL_WRITE),
        "half a page": file_of(name, MIB2 // 2, SEALS),
        "empty": file_of(name, 0, SEALS),
        "somebody else's": file_of("else", MIB2, SEALS),
        "for reading": os.open(f"/proc/self/fd/{real}", os.O_RDONLY),
        "a device": os.open("/dev/null", os.O_RDWR),
    }
    closed = os.dup(real)
    os.close(closed)
    for what, fd in {**refused, "closed": closed, "none": -1}.items():
        assert cu.status("cuMemImportFromShareableHandle", OUT, fd, POSIX_FD) == UNKNOWN, what
    assert cu.status("cuMemImportFromShareableHandle", OUT, real, 8) == NOT_SUPPORTED
    assert cu.status("cuMemImportFromShareableHandle", None, real, POSIX_FD) == INVALID_VALUE
    for fd in (real, like_it, *refused.values()):
        os.close(fd)
    cu.ok("cuMemRelease", handle)


EXPORTER = f"""
import ctypes, os, socket, sys
cu, word = ctypes.CDLL({str(SIM_LIBRARY)!r}), ctypes.c_uint64
device, link = int(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))
context, at, handle, fd, size = ctypes.c_void_p(), word(), word(), ctypes.c_int(), word(4 << 20)
def ok(function, *arguments):
    assert getattr(cu, function)(*arguments) == 0, function
ok("cuInit", 0)
ok("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
ok("cuCtxSetCurrent", context)
ok("cuMemCreate", ctypes.byref(handle), size, (ctypes.c_int * 8)(1, 1, 1, device), word(0))
ok("cuMemAddressReserve", ctypes.byref(at), size, size, word(0), word(0))
ok("cuMemMap", at, size, word(0), handle, word(0))
ok("cuMemSetAccess", at, size, (ctypes.c_int * 3)(1, device, 3), word(1))
ok("cuMemcpyHtoD_v2", word(at.value + 3000000), b"from elsewhere", word(14))
ok("cuMemExportToShareableHandle", ctypes.byref(fd), handle, 1, word(0))
socket.send_fds(link, [b"x"], [fd.value])
assert link.recv(1) == b"x"
"""


@contextmanager
def exporter(device: int) -> Iterator[int]:
    """The descriptor of 4 MiB that a process exported, which has ended."""
    ours, theirs = socket.socketpair()
    arguments = [sys.executable, "-c", EXPORTER, str(device), str(theirs.fileno())]
    environment = {**os.environ, "GPUFERRY_SIM_DEVICES": "3"}
    with ours, subprocess.Popen(arguments, pass_fds=[theirs.fileno()], env=environment) as process:
        theirs.close()
        _, descriptors = receive(ours, 1, 1)
        assert descriptors, process.wait(30)
        ours.send(b"x")
        assert process.wait(30) == 0
        yield descriptors[0]
        os.close(descriptors[0])


def test_between_processes_and_after_the_exporters_death(cu: Driver, context: int) -> None:
    with exporter(device=1) as fd:
        before = cu.used()
        handle = imported(cu, fd)
        assert cu.used() == before
    found = Properties()
    cu.ok("cuMemGetAllocationPropertiesFromHandle", ctypes.byref(found), handle)
    assert found.location.id == 1
    own = shareable(cu, 2 * MIB2)
    with mapped(cu, handle, 2 * MIB2) as theirs, mapped(cu, own, 2 * MIB2) as ours:
        assert cu.read(theirs + 3000000, 14) == b"from elsewhere"
        cu.ok("cuMemcpyDtoD_v2", ours, theirs, 2 * MIB2)
        assert cu.read(ours + 3000000, 14) == b"from elsewhere"
    for each in (handle, own):
        cu.ok("cuMemRelease", each)


def test_memory_of_a_device_that_is_not_visible(cu: Driver) -> None:
    with exporter(device=2) as fd:
        assert cu.status("cuMemImportFromShareableHandle", OUT, fd, POSIX_FD) == INVALID_DEVICE


MANY = f"""
import ctypes, resource
cu, word = ctypes.CDLL({str(SIM_LIBRARY)!r}), ctypes.c_uint64
resource.setrlimit(resource.RLIMIT_NOFILE, (20, 100))
def create(kind):
    handle = word()
    result = cu.cuMemCreate(ctypes.byref(handle), word(2 << 20), (ctypes.c_int * 8)(1, kind, 1, 0), word(0))
    return result, handle
def available():
    free, total = word(), word()
    assert cu.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    return free.value >> 21
context = ctypes.c_void_p()
assert cu.cuInit(0) == 0 and cu.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
before = available()
assert create(0)[0] == 0 and resource.getrlimit(resource.RLIMIT_NOFILE) == (20, 100)
handles = []
while (made := create(1))[0] == 0: handles.append(made[1])
print(made[0], before - available() - 1 == len(handles), 80 < len(handles) < 100)
assert cu.cuMemExportToShareableHandle(ctypes.byref(ctypes.c_int()), handles[0], 1, word(0)) == 2
assert cu.cuMemRelease(handles.pop()) == 0
print(create(1)[0], resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_one_open_file_each_up_to_the_hard_limit() -> None:
    done = subprocess.run(
        [sys.executable, "-c", MANY],
        env={**os.environ, "GPUFERRY_SIM_LOG": "info"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.stdout == f"{OUT_OF_MEMORY} True True\n0 (100, 100)\n", done.stderr
    assert "no shareable memory: Too many open files" in done.stderr


@pytest.mark.parametrize("size", [MIB2, 64 * MIB2])
def test_sizes(cu: Driver, context: int, size: int) -> None:
    handle = shareable(cu, size)
    fd = exported(cu, handle)
    assert os.fstat(fd).st_size == size
    os.close(fd)
    with mapped(cu, handle, size) as pointer:
        cu.write(pointer + size - 4, b"last")
        assert cu.read(pointer + size - 4, 4) == b"last"
    cu.ok("cuMemRelease", handle)
