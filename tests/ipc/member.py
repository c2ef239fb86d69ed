"""A process that does with CUDA what it is asked on its standard input, and answers on its standard output.

Each line is a call of a method of `Member` below as JSON; so is its answer: the result, or less than 0, the
CUresult.
"""

from __future__ import annotations

import ctypes
import json
import sys

LAZY_ENABLE_PEER_ACCESS = 1
DISABLE_TIMING, INTERPROCESS = 2, 4
NON_BLOCKING, EQUAL = 1, 1
LINEAR, BYTES = 2, 1
SPARE = 512  # MiB
SAMPLER = (ctypes.c_ubyte * 104)()  # points
SAMPLER[16] = 1  # CU_TRSF_READ_AS_INTEGER
FETCH = b""".version 7.0
.target sm_70
.address_size 64
.visible .entry fetch(.param .u64 target, .param .u64 texture)
{
    .reg .u64 %target, %texture, %offset;
    .reg .u32 %place, %red, %green, %blue, %alpha;
    ld.param.u64 %target, [target];
    ld.param.u64 %texture, [texture];
    mov.u32 %place, %tid.x;
    cvt.u64.u32 %offset, %place;
    add.u64 %target, %target, %offset;
    tex.1d.v4.u32.s32 {%red, %green, %blue, %alpha}, [%texture, {%place}];
    st.global.u8 [%target], %red;
    ret;
}
\0"""


class Handle(ctypes.Structure):
    """CUipcMemHandle, and CUipcEventHandle."""

    _fields_ = (("bytes", ctypes.c_ubyte * 64),)


class Fill(ctypes.Structure):
    """CUDA_MEMSET_NODE_PARAMS."""

    _fields_ = (
        ("address", ctypes.c_uint64),
        ("pitch", ctypes.c_size_t),
        ("value", ctypes.c_uint),
        ("element", ctypes.c_uint),
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
    )


class Resource(ctypes.Structure):
    """CUDA_RESOURCE_DESC of memory."""

    _fields_ = (
        ("kind", ctypes.c_int),
        ("address", ctypes.c_uint64),
        ("format", ctypes.c_int),
        ("channels", ctypes.c_uint),
        ("size", ctypes.c_size_t),
        ("rest", ctypes.c_ubyte * 112),
    )


class Failed(Exception):
    """Of a call; its argument is the CUresult."""


class Member:
    """The driver's calls that tests need."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        self.spare = 0
        self.call("cuInit", 0)
        self.use(0)

    def call(self, name: str, *arguments: object) -> None:
        """Raises Failed."""
        if status := getattr(self.library, name)(*arguments):
            raise Failed(status)

    def use(self, device: int) -> int:
        """What comes is done on this device."""
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        return 0

    def allocate(self, mib: int) -> int:
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(mib << 20))
        return address.value

    def free(self, address: int) -> int:
        self.call("cuMemFree_v2", ctypes.c_uint64(address))
        self.call("cuCtxSynchronize")
        return 0

    def free_behind(self, address: int, fills: int) -> int:
        """Without a call after it. Before it so many fills of other memory stand in a stream."""
        if fills and not self.spare:
            self.spare = self.allocate(SPARE)
        stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(stream), NON_BLOCKING)
        for value in range(fills):
            spare, size = ctypes.c_uint64(self.spare), ctypes.c_size_t(SPARE << 20)
            self.call("cuMemsetD8Async", spare, value, size, stream)
        self.call("cuMemFree_v2", ctypes.c_uint64(address))
        return 0

    def use_in_stream(self, mib: int, fills: int) -> int:
        """Memory of the device's pool, with so many fills between; then the stream is waited for."""
        stream, address = ctypes.c_void_p(), ctypes.c_uint64()
        size = ctypes.c_size_t(mib << 20)
        self.call("cuStreamCreate", ctypes.byref(stream), NON_BLOCKING)
        self.call("cuMemAllocAsync", ctypes.byref(address), size, stream)
        for value in range(fills):
            self.call("cuMemsetD8Async", address, value, size, stream)
        self.call("cuMemFreeAsync", address, stream)
        self.call("cuStreamSynchronize", stream)
        return 0

    def use_in_context(self, mib: int, fills: int) -> int:
        """Memory of a context of its own, which ends with so many fills under way."""
        before, own, address = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
        size = ctypes.c_size_t(mib << 20)
        self.call("cuCtxGetCurrent", ctypes.byref(before))
        self.call("cuCtxCreate_v2", ctypes.byref(own), 0, 0)
        self.call("cuMemAlloc_v2", ctypes.byref(address), size)
        for value in range(fills):
            self.call("cuMemsetD8Async", address, value, size, None)
        self.call("cuCtxDestroy_v2", own)
        self.call("cuCtxSetCurrent", before)
        return 0

    def trim(self) -> int:
        """The device's pool gives back what it keeps."""
        pool = ctypes.c_void_p()
        self.call("cuDeviceGetDefaultMemPool", ctypes.byref(pool), 0)
        self.call("cuMemPoolTrimTo", pool, ctypes.c_size_t(0))
        return 0

    def drop_spare(self) -> int:
        """What `free_behind` filled goes too."""
        if self.spare:
            self.free(self.spare)
        self.spare = 0
        return 0

    def write(self, address: int, value: int) -> int:
        self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), bytes([value]) * 4, ctypes.c_size_t(4))
        return 0

    def set_word(self, address: int, value: int) -> int:
        """By a stream of its own, so that nothing that waits is waited for."""
        stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(stream), NON_BLOCKING)
        self.call("cuStreamWriteValue32_v2", stream, ctypes.c_uint64(address), value, 0)
        self.call("cuStreamSynchronize", stream)
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

    def graph(self, address: int, value: int) -> int:
        """An executable one that writes the value to the address."""
        context, graph, node, made = (ctypes.c_void_p() for _ in range(4))
        fill = Fill(address, 0, value, 1, 4, 1)
        none = ctypes.c_size_t(0)
        self.call("cuCtxGetCurrent", ctypes.byref(context))
        self.call("cuGraphCreate", ctypes.byref(graph), 0)
        self.call("cuGraphAddMemsetNode", ctypes.byref(node), graph, None, none, ctypes.byref(fill), context)
        self.call("cuGraphInstantiateWithFlags", ctypes.byref(made), graph, ctypes.c_uint64(0))
        return made.value or 0

    def launch(self, graph: int) -> int:
        self.call("cuGraphLaunch", ctypes.c_void_p(graph), None)
        self.call("cuCtxSynchronize")
        return 0

    def texture(self, address: int) -> int:
        """An object of 4096 bytes."""
        made = ctypes.c_uint64()
        resource = Resource(kind=LINEAR, address=address, format=BYTES, channels=1, size=4096)
        self.call(
            "cuTexObjectCreate", ctypes.byref(made), ctypes.byref(resource), ctypes.byref(SAMPLER), None
        )
        return made.value

    def fetch(self, texture: int, target: int) -> int:
        """The first of its bytes, by a kernel, into four."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), FETCH)
        self.call("cuModuleGetFunction", ctypes.byref(function), module, b"fetch")
        given = (ctypes.c_uint64 * 2)(target, texture)
        places = (ctypes.c_void_p * 2)(ctypes.addressof(given), ctypes.addressof(given) + 8)
        self.call("cuLaunchKernel", function, 1, 1, 1, 4, 1, 1, 0, None, places, None)
        self.call("cuModuleUnload", module)
        return self.read(target)

    def event(self) -> int:
        """One that other processes may open."""
        made = ctypes.c_void_p()
        self.call("cuEventCreate", ctypes.byref(made), INTERPROCESS | DISABLE_TIMING)
        return made.value or 0

    def event_handle(self, event: int) -> str:
        handle = Handle()
        self.call("cuIpcGetEventHandle", ctypes.byref(handle), ctypes.c_void_p(event))
        return bytes(handle).hex()

    def open_event(self, handle: str) -> int:
        made = ctypes.c_void_p()
        told = Handle.from_buffer_copy(bytes.fromhex(handle))
        self.call("cuIpcOpenEventHandle", ctypes.byref(made), told)
        return made.value or 0

    def record_behind(self, event: int, gate: int) -> int:
        """In a stream that waits until the word at this address is 1. When this returns it does wait: nothing
        is still on its way to the device.
        """
        stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(stream), NON_BLOCKING)
        self.call("cuStreamWaitValue32_v2", stream, ctypes.c_uint64(gate), 1, EQUAL)
        self.record(event, stream.value)
        self.read(gate)  # is answered after them
        return 0

    def record(self, event: int, stream: int | None = None) -> int:
        self.call("cuEventRecord", ctypes.c_void_p(event), ctypes.c_void_p(stream))
        return 0

    def await_and_write(self, event: int, address: int, value: int) -> int:
        """A new stream waits for the event, and then writes the value to the address."""
        stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(stream), NON_BLOCKING)
        self.call("cuStreamWaitEvent", stream, ctypes.c_void_p(event), 0)
        self.call("cuMemsetD8Async", ctypes.c_uint64(address), value, ctypes.c_size_t(4), stream)
        return 0

    def query(self, event: int) -> int:
        self.call("cuEventQuery", ctypes.c_void_p(event))
        return 0

    def synchronize(self, event: int) -> int:
        self.call("cuEventSynchronize", ctypes.c_void_p(event))
        return 0

    def destroy(self, event: int) -> int:
        self.call("cuEventDestroy_v2", ctypes.c_void_p(event))
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
