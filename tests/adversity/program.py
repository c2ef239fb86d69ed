"""A CUDA program that does what it is told, line by line: `VERB [ARGUMENT …]` in, `STATUS [RESULT]` out.

It uses the driver API by ctypes, so it runs on any libcuda.so.1: natively, or through gpuferry.
"""

from __future__ import annotations

import ctypes
import hashlib
import random
import sys

SPIN = b"""
.version 7.5
.target sm_75
.address_size 64
.visible .entry spin(.param .u64 flag)
{
    .reg .pred %p<2>;
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [flag];
again:
    ld.volatile.global.u32 %r1, [%rd1];
    setp.eq.u32 %p1, %r1, 0;
    @%p1 bra again;
    ret;
}
"""


def pattern(seed: int, size: int) -> bytes:
    """Bytes that both sides can make."""
    return random.Random(seed).randbytes(size)


class Program:
    def __init__(self) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")

    def start(self) -> tuple[int, object]:
        context = ctypes.c_void_p()
        status = (
            self.cuda.cuInit(0)
            or self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
            or self.cuda.cuCtxSetCurrent(context)
        )
        return status, ""

    def alloc(self, size: int) -> tuple[int, object]:
        address = ctypes.c_uint64()
        status = self.cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size))
        return status, address.value

    def free(self, address: int) -> tuple[int, object]:
        return self.cuda.cuMemFree_v2(ctypes.c_uint64(address)), ""

    def fill(self, address: int, size: int, value: int) -> tuple[int, object]:
        status = self.cuda.cuMemsetD8_v2(
            ctypes.c_uint64(address), ctypes.c_ubyte(value), ctypes.c_size_t(size)
        )
        return status, ""

    def write(self, address: int, size: int, seed: int) -> tuple[int, object]:
        data = pattern(seed, size)
        return self.cuda.cuMemcpyHtoD_v2(ctypes.c_uint64(address), data, ctypes.c_size_t(size)), ""

    def read(self, address: int, size: int) -> tuple[int, object]:
        data = ctypes.create_string_buffer(size)
        status = self.cuda.cuMemcpyDtoH_v2(data, ctypes.c_uint64(address), ctypes.c_size_t(size))
        return status, hashlib.sha256(data.raw).hexdigest()

    def sync(self) -> tuple[int, object]:
        return self.cuda.cuCtxSynchronize(), ""

    def copy_forever(self, address: int, size: int) -> tuple[int, object]:
        """Answers before the first copy, and never again."""
        data = pattern(0, size)
        print(0, flush=True)
        while True:
            self.cuda.cuMemcpyHtoD_v2(ctypes.c_uint64(address), data, ctypes.c_size_t(size))

    def spin(self, flag: int) -> tuple[int, object]:
        """Launches a kernel that runs until somebody writes to `flag`."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        status = self.cuda.cuModuleLoadData(ctypes.byref(module), SPIN) or self.cuda.cuModuleGetFunction(
            ctypes.byref(function), module, b"spin"
        )
        if status:
            return status, ""
        argument = ctypes.c_uint64(flag)
        parameters = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(argument), ctypes.c_void_p))
        ones = [ctypes.c_uint(1)] * 6
        return self.cuda.cuLaunchKernel(function, *ones, ctypes.c_uint(0), None, parameters, None), ""


def main() -> None:
    program = Program()
    for line in sys.stdin:
        verb, *arguments = line.split()
        status, result = getattr(program, verb)(*map(int, arguments))
        print(status, result, flush=True)


if __name__ == "__main__":
    main()
