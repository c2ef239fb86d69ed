"""A process that does with CUDA what it is asked on its standard input, and answers on its standard output.

Each line is a call of a method of `Member` below as JSON; so is its answer: the result, or less than 0, the
CUresult.
"""

from __future__ import annotations

import ctypes
import json
import sys

LAZY_ENABLE_PEER_ACCESS = 1


class Handle(ctypes.Structure):
    """CUipcMemHandle, and CUipcEventHandle."""

    _fields_ = (("bytes", ctypes.c_ubyte * 64),)


class Failed(Exception):
    """Of a call; its argument is the CUresult."""


class Member:
    """The driver's calls that tests need."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)

    def call(self, name: str, *arguments: object) -> None:
        """Raises Failed."""
        if status := getattr(self.library, name)(*arguments):
            raise Failed(status)

    def allocate(self, mib: int) -> int:
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(mib << 20))
        return address.value

    def free(self, address: int) -> int:
        self.call("cuMemFree_v2", ctypes.c_uint64(address))
        self.call("cuCtxSynchronize")
        return 0

    def write(self, address: int, value: int) -> int:
        self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), bytes([value]) * 4, ctypes.c_size_t(4))
        return 0

    def read(self, address: int) -> int:
        found = (ctypes.c_ubyte * 4)()
        self.call("cuMemcpyDtoH_v2", found, ctypes.c_uint64(address), ctypes.c_size_t(4))
        return found[0] if len(set(found)) == 1 else -1

    def left(self) -> int:
        """MiB that are free."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value >> 20

    def handle(self, address: int) -> str:
        handle = Handle()
        self.call("cuIpcGetMemHandle", ctypes.byref(handle), ctypes.c_uint64(address))
        return bytes(handle).hex()

    def open(self, handle: str) -> int:
        address = ctypes.c_uint64()
        told = Handle.from_buffer_copy(bytes.fromhex(handle))
        self.call("cuIpcOpenMemHandle_v2", ctypes.byref(address), told, LAZY_ENABLE_PEER_ACCESS)
        return address.value

    def close(self, address: int) -> int:
        self.call("cuIpcCloseMemHandle", ctypes.c_uint64(address))
        self.call("cuCtxSynchronize")
        return 0


def main() -> None:
    member = Member()
    print("ready", flush=True)
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        try:
            answer = getattr(member, name)(*arguments)
        except Failed as failed:
            answer = -failed.args[0]
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
