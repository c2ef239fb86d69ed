"""The simulated driver through ctypes: as little of it as running a kernel over arrays takes."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from tests.helpers import paths

SUCCESS = 0
INVALID_VALUE = 1
OUT_OF_MEMORY = 2
INVALID_IMAGE = 200
NO_BINARY_FOR_GPU = 209
INVALID_PTX = 218
JIT_COMPILER_NOT_FOUND = 221
UNSUPPORTED_PTX_VERSION = 222
ILLEGAL_ADDRESS = 700
ASSERT = 710
STACK_ERROR = 714
MISALIGNED_ADDRESS = 716
LAUNCH_FAILED = 719
NOT_SUPPORTED = 801

_ERROR_LOG_BUFFER, _ERROR_LOG_SIZE = 5, 6


CLUSTER_DIMENSION = 4  # CUlaunchAttributeID


class _Attribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_uint), ("pad", ctypes.c_uint), ("value", ctypes.c_uint * 16))


class _Config(ctypes.Structure):
    _fields_ = (
        ("shape", ctypes.c_uint * 7),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


class CudaError(Exception):
    def __init__(self, status: int, log: str = "") -> None:
        super().__init__(f"CUDA error {status}: {log}")
        self.status = status
        self.log = log


@functools.cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(str(paths.SIM_LIBRARY))


def call(name: str, *arguments: object) -> None:
    status = getattr(_library(), name)(*arguments)
    if status != SUCCESS:
        raise CudaError(status)


@functools.cache
def use_device() -> None:
    """Makes the primary context of device 0 current. There is another device, for what a test may ruin."""
    context = ctypes.c_void_p()
    c, name = ctypes.CDLL(None), b"GPUFERRY_SIM_DEVICES"
    before = os.environb.get(name)
    c.setenv(name, b"2", 1)  # for the driver, which reads it once, and not for processes of other tests
    call("cuInit", 0)
    c.setenv(name, before, 1) if before else c.unsetenv(name)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)


class _Lifetime:
    """Of a context: its memory is freed with it, and the address may be another buffer's from then on."""

    def __init__(self) -> None:
        self.over = False


_lifetimes = [_Lifetime()]  # of the current context and of those that it took the place of


@contextmanager
def own_context() -> Iterator[None]:
    """A context that a test may ruin, and with it all others of its device."""
    use_device()
    before, context = ctypes.c_void_p(), ctypes.c_void_p()
    call("cuCtxGetCurrent", ctypes.byref(before))
    call("cuCtxCreate_v2", ctypes.byref(context), 0, 1)
    _lifetimes.append(_Lifetime())
    try:
        yield
    finally:
        call("cuCtxDestroy_v2", context)
        _lifetimes.pop().over = True
        call("cuCtxSetCurrent", before)


class Buffer:
    """Device memory that holds a copy of an array."""

    def __init__(self, array: np.ndarray) -> None:
        use_device()
        self._like = np.ascontiguousarray(array)
        self._lifetime = _lifetimes[-1]
        self.address = ctypes.c_uint64()
        call("cuMemAlloc_v2", ctypes.byref(self.address), ctypes.c_size_t(max(self._like.nbytes, 1)))
        self.write(self._like)

    def write(self, array: np.ndarray) -> None:
        source = ctypes.c_void_p(array.ctypes.data)
        call("cuMemcpyHtoD_v2", self.address, source, ctypes.c_size_t(array.nbytes))

    def read(self) -> np.ndarray:
        array = np.empty_like(self._like)
        call(
            "cuMemcpyDtoH_v2", ctypes.c_void_p(array.ctypes.data), self.address, ctypes.c_size_t(array.nbytes)
        )
        return array

    def __del__(self) -> None:
        if not self._lifetime.over:
            _library().cuMemFree_v2(self.address)


class Module:
    def __init__(self, image: str | bytes) -> None:
        use_device()
        data = image.encode() + b"\0" if isinstance(image, str) else image
        # An image without a size may be read a little past its end while its kind is found out.
        self._data = ctypes.create_string_buffer(data, len(data) + 16)
        self._handle = ctypes.c_void_p()
        log = ctypes.create_string_buffer(4096)
        options = (ctypes.c_uint * 2)(_ERROR_LOG_BUFFER, _ERROR_LOG_SIZE)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), len(log))
        try:
            call("cuModuleLoadDataEx", ctypes.byref(self._handle), self._data, 2, options, values)
        except CudaError as error:
            raise CudaError(error.status, log.value.decode()) from None

    def function(self, name: str) -> ctypes.c_void_p:
        function = ctypes.c_void_p()
        call("cuModuleGetFunction", ctypes.byref(function), self._handle, name.encode())
        return function

    def variable(self, name: str) -> tuple[int, int]:
        address, size = ctypes.c_uint64(), ctypes.c_size_t()
        call("cuModuleGetGlobal_v2", ctypes.byref(address), ctypes.byref(size), self._handle, name.encode())
        return address.value, size.value

    def launch(
        self,
        name: str,
        *arguments: Buffer | np.generic | int,
        grid: Sequence[int] = (1,),
        block: Sequence[int] = (1,),
        shared: int = 0,
        stream: ctypes.c_void_p | None = None,
        cooperative: bool = False,
        cluster: Sequence[int] = (),
    ) -> None:
        """Runs to the end. An int is an address or other 64-bit value."""
        values = [_parameter(each) for each in arguments]
        pointers = (ctypes.c_void_p * max(len(values), 1))(*(ctypes.addressof(each) for each in values))
        shape = [*grid, 1, 1][:3] + [*block, 1, 1][:3]
        function = self.function(name)
        if cluster:
            value = (ctypes.c_uint * 16)(*cluster, *[1] * (3 - len(cluster)))
            attribute = _Attribute(CLUSTER_DIMENSION, 0, value)
            config = _Config((ctypes.c_uint * 7)(*shape, shared), stream, ctypes.pointer(attribute), 1)
            call("cuLaunchKernelEx", ctypes.byref(config), function, pointers, None)
        elif cooperative:
            call("cuLaunchCooperativeKernel", function, *shape, shared, stream, pointers)
        else:
            call("cuLaunchKernel", function, *shape, shared, stream, pointers, None)
        call("cuStreamSynchronize", stream)


def _parameter(value: Buffer | np.generic | int) -> ctypes.Array[ctypes.c_char]:
    if isinstance(value, Buffer):
        data = value.address.value.to_bytes(8, "little")
    elif isinstance(value, int):
        data = (value & (1 << 64) - 1).to_bytes(8, "little")
    else:
        data = value.tobytes()
    return ctypes.create_string_buffer(data, len(data))


def run(ptx: str, kernel: str, *arrays: np.ndarray, **shape: object) -> list[np.ndarray]:
    """One kernel over arrays: what they hold afterwards."""
    module = Module(ptx)
    buffers = [Buffer(array) for array in arrays]
    module.launch(kernel, *buffers, **shape)  # type: ignore[arg-type]
    return [buffer.read() for buffer in buffers]
