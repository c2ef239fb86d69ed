"""Asks NVML about every device, again and again, and prints each answer as a line of JSON.

A process of its own, because a driver in trouble makes NVML hang or crash, and the monitor must do neither.
Which NVML it asks is decided by the library it is given: pynvml opens `libnvidia-ml.so.1`, and a library of
that name that is loaded already satisfies it.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

import pynvml

from .instances import names

T = TypeVar("T")

_UNAVAILABLE = (
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_NO_PERMISSION,
)
P2P_READ = 0  # NVML_P2P_CAPS_INDEX_READ, of which pynvml makes a tuple
_GONE = (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED)


def _maybe(ask: Callable[..., T], *arguments: Any) -> T | None:
    """None where this device has no such thing."""
    try:
        return ask(*arguments)
    except pynvml.NVMLError as error:
        if error.value in _UNAVAILABLE:
            return None
        raise


def _name_of(pid: int) -> str:
    try:
        return os.path.basename(_maybe(pynvml.nvmlSystemGetProcessName, pid) or "")
    except pynvml.NVMLError:  # it ended meanwhile
        return ""


def _clocks(ask: Callable[..., int], handle: Any) -> list[int | None]:
    """MHz of the multiprocessors and of the memory."""
    return [_maybe(ask, handle, kind) for kind in (pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM)]


def _link(handle: Any, when: str) -> list[int | None]:
    """Generation and width of its PCIe link, now ("Curr") or at most ("Max")."""
    asked = (f"nvmlDeviceGet{when}PcieLinkGeneration", f"nvmlDeviceGet{when}PcieLinkWidth")
    return [_maybe(getattr(pynvml, name), handle) for name in asked]


def _reaches(handle: Any, index: int) -> bool:
    """Whether a device reaches the memory of the one with this index; not if that is lost, say."""
    try:
        other = pynvml.nvmlDeviceGetHandleByIndex(index)
        status = pynvml.nvmlDeviceGetP2PStatus(handle, other, P2P_READ)
    except pynvml.NVMLError:
        return False
    return bool(status == pynvml.NVML_P2P_STATUS_OK)


class Gpu:
    """One device as NVML knows it. What never changes is asked once. `uuid`: of an instance of a divided GPU
    (MIG); else it is the GPU that has this index.
    """

    def __init__(self, index: int, uuid: str = "") -> None:
        self._index = index
        self._uuid = uuid
        self._handle: Any = None
        self._fixed: dict[str, Any] = {}

    def _open(self) -> None:
        if self._uuid:
            handle = pynvml.nvmlDeviceGetHandleByUUID(self._uuid)
        else:
            handle = pynvml.nvmlDeviceGetHandleByIndex(self._index)
        self._fixed = {
            "uuid": pynvml.nvmlDeviceGetUUID(handle),
            "name": pynvml.nvmlDeviceGetName(handle),
            "pci": pynvml.nvmlDeviceGetPciInfo(handle).busId,
            "peers": [] if self._uuid else self._peers(handle),
            "most": [*_clocks(pynvml.nvmlDeviceGetMaxClockInfo, handle), *_link(handle, "Max")],
        }
        self._handle = handle

    def _peers(self, handle: Any) -> list[int]:
        """The indices of the GPUs whose memory it reaches."""
        others = [index for index in range(pynvml.nvmlDeviceGetCount()) if index != self._index]
        return [index for index in others if _reaches(handle, index)]

    def sample(self) -> dict[str, Any]:
        """The figures of this moment; `lost` says whether the device is."""
        try:
            if self._handle is None:
                self._open()
            return {"index": self._index, "lost": False, **self._fixed, **self._figures()}
        except pynvml.NVMLError as error:
            lost = error.value in _GONE
            return {"index": self._index, "lost": lost, "error": str(error), **self._fixed}

    def _figures(self) -> dict[str, Any]:
        handle = self._handle
        memory = _maybe(pynvml.nvmlDeviceGetMemoryInfo, handle)  # none of its own where it has the host's
        rates = _maybe(pynvml.nvmlDeviceGetUtilizationRates, handle)
        power = _maybe(pynvml.nvmlDeviceGetPowerUsage, handle)
        processes = _maybe(pynvml.nvmlDeviceGetComputeRunningProcesses, handle) or []
        return {
            "memory_total": memory and memory.total,
            "memory_used": memory and memory.used,
            "utilization": None if rates is None else rates.gpu / 100,
            "temperature": _maybe(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
            "power": None if power is None else power / 1000,
            "now": [*_clocks(pynvml.nvmlDeviceGetClockInfo, handle), *_link(handle, "Curr")],
            "processes": [
                {"pid": p.pid, "memory": p.usedGpuMemory or 0, "name": _name_of(p.pid)} for p in processes
            ],
        }


def main() -> int:
    """Print a line each interval, until nobody reads them any more. Returns the exit status."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--interval", type=float, required=True, help="seconds")
    options.add_argument("--library", help="the libnvidia-ml.so.1 to use; default: the driver's")
    chosen = options.parse_args()
    try:
        if chosen.library:
            ctypes.CDLL(chosen.library)
        pynvml.nvmlInit()
        driver = _maybe(pynvml.nvmlSystemGetDriverVersion) or ""
        gpus = [Gpu(index) for index in range(pynvml.nvmlDeviceGetCount())]
        gpus += [
            Gpu(len(gpus) + number, name)
            for number, name in enumerate(name for name in names() if name.startswith("MIG-"))
        ]
    except (OSError, pynvml.NVMLError) as error:
        print(json.dumps({"problem": str(error)}), flush=True)
        return 1
    due = time.monotonic()
    try:
        while True:
            print(json.dumps({"driver": driver, "gpus": [gpu.sample() for gpu in gpus]}), flush=True)
            # Late is late: no burst to catch up after a stall.
            due = max(due + chosen.interval, time.monotonic())
            time.sleep(max(due - time.monotonic(), 0))
    except (BrokenPipeError, KeyboardInterrupt):
        os._exit(0)  # not by way of flushing into the broken pipe


if __name__ == "__main__":
    sys.exit(main())
