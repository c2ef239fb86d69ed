"""A process with something of everything on each of two devices, asked by a test what to do, as JSON."""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any

MIB = 1 << 20
WORDS = 4
NON_BLOCKING, DISABLE_TIMING = 1, 2
PINNED, DEVICE, READ_WRITE = 1, 1, 3
UNSIGNED_INT8 = 1
PTX = b"""
.version 6.4
.target sm_70
.address_size 64
.global .align 4 .u32 mark[4];
.visible .entry copy_word(.param .u64 to, .param .u64 from)
{
    .reg .u64 %a, %b;
    .reg .u32 %v;
    ld.param.u64 %a, [to];
    ld.param.u64 %b, [from];
    ld.global.u32 %v, [%b];
    st.global.u32 [%a], %v;
    ret;
}
"""


class Failed(Exception):
    """Of a call; its argument is the CUresult."""


class Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handles", ctypes.c_int),
        ("location", Location),
        ("rest", ctypes.c_ubyte * 24),
    )


class Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("location", Location), ("flags", ctypes.c_int))


class ArrayDescriptor(ctypes.Structure):
    """CUDA_ARRAY_DESCRIPTOR."""

    _fields_ = (
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
        ("format", ctypes.c_int),
        ("channels", ctypes.c_uint),
    )


class Device:
    """What the process has on one device."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.context = ctypes.c_void_p()
        self.memory = self.mapped = self.pooled = 0
        self.stream, self.event, self.module = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self.kernel = ctypes.c_void_p()
        self.array = ctypes.c_void_p()
        self.mark = 0


class Program:
    """The driver's calls, by name."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        count = ctypes.c_int()
        self.call("cuInit", 0)
        self.call("cuDeviceGetCount", ctypes.byref(count))
        self.devices = [Device(number) for number in range(count.value)]

    def call(self, name: str, *arguments: object) -> None:
        if status := getattr(self.library, name)(*arguments):
            raise Failed(status)

    def use(self, device: Device) -> None:
        if not device.context:
            self.call("cuDevicePrimaryCtxRetain", ctypes.byref(device.context), device.number)
        self.call("cuCtxSetCurrent", device.context)

    def write(self, address: int, value: int) -> None:
        data = bytes([value]) * (4 * WORDS)
        self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), data, ctypes.c_size_t(len(data)))

    def read(self, address: int) -> int:
        found = (ctypes.c_ubyte * (4 * WORDS))()
        self.call("cuMemcpyDtoH_v2", found, ctypes.c_uint64(address), ctypes.c_size_t(len(found)))
        return found[0] if len(set(found)) == 1 else -1

    def fill_device(self, device: Device) -> None:
        self.use(device)
        address, size = ctypes.c_uint64(), ctypes.c_size_t()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(16 * MIB))
        device.memory = address.value
        self.write(device.memory, 10 + device.number)
        self.write(device.memory + 15 * MIB, 20 + device.number)
        self.call("cuStreamCreate", ctypes.byref(device.stream), NON_BLOCKING)
        self.call("cuEventCreate", ctypes.byref(device.event), 0)
        self.call("cuEventRecord", device.event, device.stream)
        self.call("cuModuleLoadData", ctypes.byref(device.module), PTX)
        self.call("cuModuleGetFunction", ctypes.byref(device.kernel), device.module, b"copy_word")
        self.call("cuModuleGetGlobal_v2", ctypes.byref(address), ctypes.byref(size), device.module, b"mark")
        device.mark = address.value
        self.write(device.mark, 30 + device.number)
        self.call("cuMemAllocAsync", ctypes.byref(address), ctypes.c_size_t(MIB), device.stream)
        self.call("cuStreamSynchronize", device.stream)
        device.pooled = address.value
        self.write(device.pooled, 40 + device.number)
        self.call(
            "cuArrayCreate_v2",
            ctypes.byref(device.array),
            ctypes.byref(ArrayDescriptor(4 * WORDS, 0, UNSIGNED_INT8, 1)),
        )
        data = bytes([60 + device.number]) * (4 * WORDS)
        self.call("cuMemcpyHtoA_v2", device.array, ctypes.c_size_t(0), data, ctypes.c_size_t(len(data)))
        self.map(device)

    def map(self, device: Device) -> None:
        """Memory of this device, mapped by the program, which both may reach."""
        properties = Properties(PINNED, 0, Location(DEVICE, device.number))
        handle, address = ctypes.c_uint64(), ctypes.c_uint64()
        size = ctypes.c_size_t(2 * MIB)
        self.call("cuMemCreate", ctypes.byref(handle), size, ctypes.byref(properties), ctypes.c_uint64(0))
        self.call(
            "cuMemAddressReserve",
            ctypes.byref(address),
            size,
            ctypes.c_size_t(0),
            ctypes.c_uint64(0),
            ctypes.c_uint64(0),
        )
        self.call("cuMemMap", address, size, ctypes.c_size_t(0), handle, ctypes.c_uint64(0))
        each = [Access(Location(DEVICE, one.number), READ_WRITE) for one in self.devices]
        described = (Access * len(each))(*each)
        self.call("cuMemSetAccess", address, size, described, ctypes.c_size_t(len(each)))
        device.mapped = address.value
        self.write(device.mapped, 50 + device.number)

    def fill(self) -> list[Any]:
        for device in self.devices:
            self.fill_device(device)
        if len(self.devices) == 2:
            self.open_peers()
        return self.check()

    def fill_first(self) -> bool:
        self.fill_device(self.devices[0])
        return True

    def fill_second(self) -> None:
        self.devices[1] = Device(1)
        self.fill_device(self.devices[1])

    def open_peers(self) -> None:
        for device, peer in zip(self.devices, reversed(self.devices), strict=True):
            self.use(device)
            self.call("cuCtxEnablePeerAccess", peer.context, 0)

    def close_peers(self) -> None:
        for device, peer in zip(self.devices, reversed(self.devices), strict=True):
            self.use(device)
            self.call("cuCtxDisablePeerAccess", peer.context)

    def values(self, device: Device) -> list[int]:
        self.use(device)
        places = (device.memory, device.memory + 15 * MIB, device.mark, device.pooled, device.mapped)
        found = (ctypes.c_ubyte * (4 * WORDS))()
        self.call("cuMemcpyAtoH_v2", found, device.array, ctypes.c_size_t(0), ctypes.c_size_t(len(found)))
        return [self.read(place) for place in places] + [found[0] if len(set(found)) == 1 else -1]

    def check(self) -> list[Any]:
        """What everything holds, and where it lies."""
        found: list[Any] = []
        for device in self.devices:
            found += [self.values(device), device.memory, device.mark, device.pooled, device.mapped]
            self.call("cuEventQuery", device.event)
            found.append(self.owner(device.memory))
        return found

    def owner(self, address: int) -> int:
        """The device whose memory it is."""
        number = ctypes.c_int(-1)
        self.call("cuPointerGetAttribute", ctypes.byref(number), 9, ctypes.c_uint64(address))
        return number.value

    def check_first(self) -> bool:
        return self.values(self.devices[0]) == [10, 20, 30, 40, 50, 60]

    def launch(self, device: Device, to: int, source: int) -> None:
        self.use(device)
        numbers = [ctypes.c_uint64(to), ctypes.c_uint64(source)]
        arguments = (ctypes.c_void_p * 2)(*[ctypes.addressof(each) for each in numbers])
        self.call("cuLaunchKernel", device.kernel, 1, 1, 1, 1, 1, 1, 0, device.stream, arguments, None)
        self.call("cuStreamSynchronize", device.stream)

    def work(self) -> None:
        """Each device reads of the other, by kernels and copies, behind the other's events."""
        first, second = self.devices
        for device, peer in ((first, second), (second, first)):
            at = device.memory + 8 * MIB
            for source in (peer.memory, peer.mapped):
                self.launch(device, at, source)
                self.use(peer)
                expected = self.read(source)
                self.use(device)
                word = (ctypes.c_ubyte * 4)()
                self.call("cuMemcpyDtoH_v2", word, ctypes.c_uint64(at), ctypes.c_size_t(4))
                if set(word) != {expected}:
                    raise Failed(999)
            self.call("cuEventRecord", device.event, device.stream)
            self.call("cuStreamWaitEvent", peer.stream, device.event, 0)
            size = ctypes.c_size_t(4 * MIB)
            self.call(
                "cuMemcpyPeerAsync",
                ctypes.c_uint64(peer.memory + 4 * MIB),
                peer.context,
                ctypes.c_uint64(device.memory),
                device.context,
                size,
                peer.stream,
            )
            self.call("cuStreamSynchronize", peer.stream)
            if self.read(peer.memory + 4 * MIB) != 10 + device.number:
                raise Failed(998)

    def reach_fails(self) -> bool:
        """Whether a device may not disable what it does not have: it was taken away before."""
        self.use(self.devices[0])
        return bool(self.library.cuCtxDisablePeerAccess(self.devices[1].context) == 705)

    def reset(self, number: int) -> None:
        self.call("cuDevicePrimaryCtxReset_v2", number)


def main() -> None:
    program = Program()
    print("ready", flush=True)
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        try:
            answer = getattr(program, name)(*arguments)
        except Failed as failed:
            answer = f"failed: {failed.args[0]}"
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
