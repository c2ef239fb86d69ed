"""The simulated driver in this process, through ctypes: results are checked, integers are 64 bits wide."""

from __future__ import annotations

import ctypes
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from tests.helpers.paths import SIM_LIBRARY

SUCCESS = 0
INVALID_VALUE = 1
OUT_OF_MEMORY = 2
NOT_INITIALIZED = 3
NO_DEVICE = 100
INVALID_DEVICE = 101
INVALID_IMAGE = 200
INVALID_CONTEXT = 201
UNSUPPORTED_LIMIT = 215
PEER_ACCESS_UNSUPPORTED = 217
INVALID_PTX = 218
INVALID_SOURCE = 300
FILE_NOT_FOUND = 301
INVALID_HANDLE = 400
NOT_FOUND = 500
NOT_READY = 600
ILLEGAL_ADDRESS = 700
PEER_ACCESS_ALREADY_ENABLED = 704
PEER_ACCESS_NOT_ENABLED = 705
CONTEXT_IS_DESTROYED = 709
HOST_MEMORY_ALREADY_REGISTERED = 712
HOST_MEMORY_NOT_REGISTERED = 713
NOT_PERMITTED = 800
NOT_SUPPORTED = 801
NOT_LOADED = 913
UNKNOWN = 999

LEGACY = 1
PER_THREAD = 2
NON_BLOCKING = 1

HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

ENVIRONMENT = {"GPUFERRY_SIM_DEVICES": "2", "GPUFERRY_SIM_MEMORY": "1GiB"}


class CudaError(Exception):
    """A call did not succeed."""

    def __init__(self, function: str, result: int) -> None:
        super().__init__(f"{function} -> {result}")
        self.result = result


class Driver:
    """`status` gives the result of a call, `ok` insists on success, `out` returns what the call wrote through
    its first argument (a 64-bit integer, unless told otherwise)."""

    def __init__(self) -> None:
        # To the loader a copy is another library: the original may be in use here with other settings.
        with tempfile.TemporaryDirectory() as folder:
            self.library = ctypes.CDLL(shutil.copy(SIM_LIBRARY, folder))

    def status(self, function: str, *arguments: Any) -> int:
        wide = [ctypes.c_uint64(a & (2**64 - 1)) if isinstance(a, int) else a for a in arguments]
        return int(getattr(self.library, function)(*wide))

    def ok(self, function: str, *arguments: Any) -> None:
        result = self.status(function, *arguments)
        if result != SUCCESS:
            raise CudaError(function, result)

    def out(self, function: str, *arguments: Any, type: Any = ctypes.c_uint64) -> Any:
        value = type()
        self.ok(function, ctypes.byref(value), *arguments)
        return value.value

    def alloc(self, size: int) -> int:
        return int(self.out("cuMemAlloc_v2", size))

    def free(self, pointer: int) -> None:
        self.ok("cuMemFree_v2", pointer)

    def write(self, pointer: int, data: bytes) -> None:
        self.ok("cuMemcpyHtoD_v2", pointer, data, len(data))

    def read(self, pointer: int, size: int) -> bytes:
        buffer = ctypes.create_string_buffer(size)
        self.ok("cuMemcpyDtoH_v2", buffer, pointer, size)
        return buffer.raw

    def stream(self, flags: int = NON_BLOCKING) -> int:
        return int(self.out("cuStreamCreate", flags))

    def used(self) -> int:
        free, total = ctypes.c_uint64(), ctypes.c_uint64()
        self.ok("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return total.value - free.value

    @contextmanager
    def context(self, device: int = 0) -> Iterator[int]:
        """A fresh context, current in this thread."""
        context = int(self.out("cuCtxCreate_v2", 0, device))
        try:
            yield context
        finally:
            self.ok("cuCtxDestroy_v2", context)


@cache
def driver() -> Driver:
    """The driver with two devices; the settings are read once, so all tests of a process share it."""
    before = {name: os.environ.get(name) for name in ENVIRONMENT}
    os.environ.update(ENVIRONMENT)
    try:
        cu = Driver()
        cu.ok("cuInit", 0)
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
    return cu


class Gate:
    """Holds a stream back: what is submitted behind it waits until `open`."""

    def __init__(self, cu: Driver, stream: int) -> None:
        self._cu = cu
        self._word = ctypes.c_void_p()
        cu.ok("cuMemHostAlloc", ctypes.byref(self._word), 4, 0)
        self._flag = ctypes.c_uint32.from_address(self._word.value or 0)
        self._flag.value = 0
        cu.ok("cuStreamWaitValue32_v2", stream, self._word.value, 1, 0)

    def open(self) -> None:
        self._flag.value = 1
