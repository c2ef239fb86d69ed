"""Uses the simulated device as it is told on stdin: `map BYTES`, `spin`, `stop`; answers `ok`."""

from __future__ import annotations

import ctypes
import sys

PTX = b"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry spin(.param .u64 flag) {
    .reg .u64 %rd<2>;
    .reg .u32 %r<2>;
    .reg .pred %p<2>;
    ld.param.u64 %rd1, [flag];
AGAIN:
    ld.volatile.global.u32 %r1, [%rd1];
    setp.eq.u32 %p1, %r1, 0;
    @%p1 bra AGAIN;
    ret;
}
"""
ATTACH_GLOBAL = 1


def main() -> None:
    cu = ctypes.CDLL(sys.argv[1])
    ordinal = int(sys.argv[2])

    def call(name: str, *arguments: object) -> None:
        status = getattr(cu, name)(*arguments)
        assert status == 0, f"{name}: {status}"

    context, module, kernel = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    flag = ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), ordinal)
    call("cuCtxSetCurrent", context)
    print("ok", flush=True)
    for line in sys.stdin:
        verb, *words = line.split()
        if verb == "map":
            call("cuMemAlloc_v2", ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(int(words[0])))
        elif verb == "spin":
            call("cuModuleLoadData", ctypes.byref(module), PTX)
            call("cuModuleGetFunction", ctypes.byref(kernel), module, b"spin")
            call("cuMemAllocManaged", ctypes.byref(flag), ctypes.c_size_t(4), ATTACH_GLOBAL)
            ctypes.c_uint.from_address(flag.value or 0).value = 0
            parameters = (ctypes.c_void_p * 1)(ctypes.addressof(flag))
            call("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, None, parameters, None)
        elif verb == "stop":
            ctypes.c_uint.from_address(flag.value or 0).value = 1
            call("cuCtxSynchronize")
        print("ok", flush=True)


main()
