"""Loads machine code and PTX where no kernel runs, and checks what the driver says of them."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.fuzz import images
from tests.helpers import cubin

NO_BINARY_FOR_GPU, INVALID_VALUE, OUT_OF_RESOURCES, INVALID_IMAGE = 209, 1, 701, 200
cu = ctypes.CDLL(sys.argv[1])


def status(function: str, *arguments: Any) -> int:
    wide = [ctypes.c_uint64(each & (2**64 - 1)) if isinstance(each, int) else each for each in arguments]
    return int(getattr(cu, function)(*wide))


def ok(function: str, *arguments: Any) -> None:
    result = status(function, *arguments)
    assert result == 0, f"{function}: {result}"


def out(function: str, *arguments: Any) -> int:
    value = ctypes.c_uint64()
    ok(function, ctypes.byref(value), *arguments)
    return value.value


def attribute(function: int, which: int) -> int:
    value = ctypes.c_int()
    ok("cuFuncGetAttribute", ctypes.byref(value), which, function)
    return value.value


def launch(function: int, threads: int, sizes: tuple[int, ...], shared: int = 0) -> int:
    values = [ctypes.create_string_buffer(size) for size in sizes]
    pointers = (ctypes.c_void_p * max(1, len(values)))(*map(ctypes.addressof, values))
    return status("cuLaunchKernel", function, 4, 1, 1, threads, 1, 1, shared, 0, pointers, None)


def variable(module: int, name: bytes) -> tuple[int, int]:
    address, size = ctypes.c_uint64(), ctypes.c_uint64()
    ok("cuModuleGetGlobal_v2", ctypes.byref(address), ctypes.byref(size), module, name)
    return address.value, size.value


def contents(address: int, size: int) -> bytes:
    data = ctypes.create_string_buffer(size)
    ok("cuMemcpyDtoH_v2", data, address, size)
    return data.raw


def check_kernels(module: int) -> None:
    scale, big = (out("cuModuleGetFunction", module, name) for name in (b"scale", b"big"))
    told = {0: 256, 1: 400, 2: 64, 3: 0, 4: 40, 5: 80, 6: 80}
    assert {which: attribute(scale, which) for which in told} == told
    assert attribute(big, 3) == 800
    offset, size = ctypes.c_size_t(), ctypes.c_size_t()
    ok("cuFuncGetParamInfo", scale, 3, ctypes.byref(offset), ctypes.byref(size))
    assert (offset.value, size.value) == (16, 8)
    ok("cuFuncGetParamCount", big, ctypes.byref(size))
    assert size.value == 2
    blocks = ctypes.c_int()
    ok("cuOccupancyMaxActiveBlocksPerMultiprocessor", ctypes.byref(blocks), scale, 256, 0)
    assert blocks.value == 65536 // 4 // (40 * 32) * 4 // 8
    assert launch(scale, 256, (8, 4, 1, 8)) == 0
    assert launch(scale, 257, (8, 4, 1, 8)) == INVALID_VALUE
    assert launch(scale, 32, (8, 4, 1, 8), 50_000) == INVALID_VALUE
    assert status("cuLaunchKernel", scale, 1, 1, 1, 1, 1, 1, 0, 0, None, None) == INVALID_VALUE
    assert launch(big, 1024, (20000, 8)) == OUT_OF_RESOURCES
    assert launch(big, 64, (20000, 8)) == 0
    ok("cuCtxSynchronize")


def check_variables(module: int) -> None:
    words, size = variable(module, b"words")
    assert (size, contents(words, 16)) == (16, cubin.SAMPLE_VARIABLES[1].initial)
    pointer, _ = variable(module, b"pointer")
    assert int.from_bytes(contents(pointer, 8), "little") == words + 8
    plain, size = variable(module, b"plain")
    assert (size, contents(plain, 40)) == (40, bytes(40))
    assert contents(variable(module, b"table")[0], 4) == b"\0\0\xc0\x3f"
    managed, _ = variable(module, b"shared_word")
    assert ctypes.c_uint32.from_address(managed).value == 5
    assert out("cuModuleGetTexRef", module, b"picture")
    assert out("cuModuleGetSurfRef", module, b"canvas")


def check_ptx() -> None:
    """It is loaded, and not run either: what it would read, other kernels have not written."""
    module = out("cuModuleLoadData", images.TEXT)
    scale = out("cuModuleGetFunction", module, b"scale")
    assert launch(scale, 32, (8, 4)) == 0  # its pointer is NULL
    ok("cuCtxSynchronize")
    assert contents(variable(module, b"variable")[0], 4) == b"\7\0\0\0"


def main(form: str) -> None:
    if form == "setting":
        assert status("cuInit", 0) == INVALID_VALUE
        return
    ok("cuInit", 0)
    context = out("cuCtxCreate_v2", 0, 0)
    image = cubin.sample()
    if form == "refused":
        assert status("cuModuleLoadData", ctypes.byref(ctypes.c_uint64()), image) == NO_BINARY_FOR_GPU
        return
    if form == "fatbin":
        image = images.container([images.entry(image, images.ZSTD, images.ELF), images.entry(images.TEXT)])
    if form == "library":
        preserved = (ctypes.c_int * 1)(1)  # CU_LIBRARY_BINARY_IS_PRESERVED, which has no value
        library = out("cuLibraryLoadData", image, None, None, 0, preserved, None, 1)
        module = out("cuLibraryGetModule", library)
    else:
        module = out("cuModuleLoadData", image)
    check_kernels(module)
    check_variables(module)
    check_ptx()
    damaged = image[:200] + bytes(200)
    if form == "cubin":
        assert status("cuModuleLoadData", ctypes.byref(ctypes.c_uint64()), damaged) == INVALID_IMAGE
    ok("cuCtxDestroy_v2", context)


main(sys.argv[2])
print("ok")
