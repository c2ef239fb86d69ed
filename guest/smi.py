"""`nvidia-smi` for programs that ask it: -L, and --query-gpu or --query-compute-apps as CSV. The data are
NVML's, the guest's or the simulated device's. Run as a file, so standard library only, and nothing of ours.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
from collections.abc import Callable
from typing import Any

NOT_SUPPORTED = "[N/A]"
MIB = 1 << 20


class Failed(Exception):
    """A call of NVML failed; the text is nvmlErrorString's."""


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Rates(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Pci(ctypes.Structure):
    _fields_ = (
        ("legacy", ctypes.c_char * 16),
        ("numbers", ctypes.c_uint * 5),
        ("bus_id", ctypes.c_char * 32),
    )


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class Nvml:
    """libnvidia-ml.so.1, loaded and initialised. Raises OSError without one, Failed if it refuses."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libnvidia-ml.so.1")
        self._library.nvmlErrorString.restype = ctypes.c_char_p
        self.call("nvmlInit_v2")

    def call(self, name: str, *arguments: Any) -> None:
        """Call the function of this name. Raises Failed if it returns anything but NVML_SUCCESS."""
        if status := getattr(self._library, name)(*arguments):
            raise Failed(self._library.nvmlErrorString(status).decode())

    def text(self, name: str, *arguments: Any) -> str:
        """What a function writes into a buffer."""
        buffer = ctypes.create_string_buffer(96)
        self.call(name, *arguments, buffer, ctypes.c_uint(len(buffer)))
        return buffer.value.decode()

    def value(self, name: str, kind: Any, *arguments: Any) -> Any:
        """What a function writes through a pointer."""
        found = kind()
        self.call(name, *arguments, ctypes.byref(found))
        return found

    def devices(self) -> list[ctypes.c_void_p]:
        """The nvmlDevice_t of every device that NVML shows, by index."""
        count = self.value("nvmlDeviceGetCount_v2", ctypes.c_uint).value
        index = "nvmlDeviceGetHandleByIndex_v2"
        return [self.value(index, ctypes.c_void_p, ctypes.c_uint(i)) for i in range(count)]

    def processes(self, device: ctypes.c_void_p) -> list[tuple[int, int]]:
        """Pids, and bytes of device memory."""
        count, found = ctypes.c_uint(256), (_Process * 256)()
        self.call("nvmlDeviceGetComputeRunningProcesses_v3", device, ctypes.byref(count), found)
        return [(process.pid, process.memory) for process in found[: count.value]]


def _number(name: str) -> Callable[[Nvml, ctypes.c_void_p], str]:
    return lambda nvml, device: str(nvml.value(name, ctypes.c_uint, device).value)


def _memory(member: str) -> Callable[[Nvml, ctypes.c_void_p], str]:
    return lambda nvml, device: str(
        getattr(nvml.value("nvmlDeviceGetMemoryInfo", _Memory, device), member) // MIB
    )


def _bus(nvml: Nvml, device: ctypes.c_void_p) -> str:
    return str(nvml.value("nvmlDeviceGetPciInfo_v3", _Pci, device).bus_id.decode())


def _capability(nvml: Nvml, device: ctypes.c_void_p) -> str:
    major, minor = ctypes.c_int(), ctypes.c_int()
    nvml.call("nvmlDeviceGetCudaComputeCapability", device, ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


def _rate(nvml: Nvml, device: ctypes.c_void_p) -> str:
    return str(nvml.value("nvmlDeviceGetUtilizationRates", _Rates, device).gpu)


def _power(nvml: Nvml, device: ctypes.c_void_p) -> str:
    return f"{nvml.value('nvmlDeviceGetPowerUsage', ctypes.c_uint, device).value / 1000:.2f}"


def _temperature(nvml: Nvml, device: ctypes.c_void_p) -> str:
    return str(nvml.value("nvmlDeviceGetTemperature", ctypes.c_uint, device, ctypes.c_int(0)).value)


# Each field with its unit. Those that are NVIDIA's and not here are answered with [N/A].
FIELDS: dict[str, tuple[str, Callable[[Nvml, ctypes.c_void_p], str]]] = {
    "index": ("", _number("nvmlDeviceGetIndex")),
    "name": ("", lambda nvml, device: nvml.text("nvmlDeviceGetName", device)),
    "uuid": ("", lambda nvml, device: nvml.text("nvmlDeviceGetUUID", device)),
    "count": ("", lambda nvml, device: str(len(nvml.devices()))),
    "driver_version": ("", lambda nvml, device: nvml.text("nvmlSystemGetDriverVersion")),
    "pci.bus_id": ("", _bus),
    "compute_cap": ("", _capability),
    "memory.total": ("MiB", _memory("total")),
    "memory.used": ("MiB", _memory("used")),
    "memory.free": ("MiB", _memory("free")),
    "utilization.gpu": ("%", _rate),
    "temperature.gpu": ("", _temperature),
    "power.draw": ("W", _power),
}
ALIASES = {"gpu_name": "name", "gpu_uuid": "uuid", "gpu_bus_id": "pci.bus_id"}


def _field(nvml: Nvml, device: ctypes.c_void_p, name: str, units: bool) -> str:
    unit, read = FIELDS.get(ALIASES.get(name, name), ("", None))
    if read is None:
        return NOT_SUPPORTED
    try:
        return f"{read(nvml, device)} {unit}" if unit and units else read(nvml, device)
    except Failed:
        return NOT_SUPPORTED


def _heading(name: str, units: bool) -> str:
    unit, _ = FIELDS.get(ALIASES.get(name, name), ("", None))
    return f"{name} [{unit}]" if unit and units else name


def _csv(rows: list[list[str]], heading: list[str], form: set[str]) -> None:
    if "noheader" not in form:
        print(", ".join(heading))
    for row in rows:
        print(", ".join(row))


def _process_field(nvml: Nvml, device: ctypes.c_void_p, pid: int, memory: int, name: str, units: bool) -> str:
    if name == "pid":
        return str(pid)
    if name in ("used_memory", "used_gpu_memory"):
        return f"{memory // MIB} MiB" if units else str(memory // MIB)
    if name in ("process_name", "name"):
        try:
            return nvml.text("nvmlSystemGetProcessName", ctypes.c_uint(pid))
        except Failed:
            return NOT_SUPPORTED
    return _field(nvml, device, name, units)


def _chosen(nvml: Nvml, wanted: str | None) -> list[ctypes.c_void_p]:
    devices = nvml.devices()
    if wanted is None:
        return devices
    names = wanted.split(",")
    keys = ("index", "uuid", "pci.bus_id")
    return [d for d in devices if any(_field(nvml, d, key, False) in names for key in keys)]


def main() -> int:
    """Prints what was asked for. Returns the exit status."""
    options = argparse.ArgumentParser(prog="nvidia-smi", description=__doc__, allow_abbrev=False)
    options.add_argument("-L", "--list-gpus", action="store_true")
    options.add_argument("-i", "--id")
    options.add_argument("--query-gpu", metavar="FIELDS")
    options.add_argument("--query-compute-apps", metavar="FIELDS")
    options.add_argument("--format", default="csv")
    chosen = options.parse_args()
    try:
        nvml = Nvml()
        devices = _chosen(nvml, chosen.id)
        form = set(chosen.format.split(","))
        units = "nounits" not in form
        if chosen.list_gpus:
            for device in devices:
                name, uuid = (_field(nvml, device, key, False) for key in ("name", "uuid"))
                print(f"GPU {_field(nvml, device, 'index', False)}: {name} (UUID: {uuid})")
        elif chosen.query_compute_apps:
            names = chosen.query_compute_apps.split(",")
            rows = [
                [_process_field(nvml, device, pid, memory, name, units) for name in names]
                for device in devices
                for pid, memory in nvml.processes(device)
            ]
            _csv(rows, names, form)
        else:
            names = (chosen.query_gpu or "index,name,uuid,memory.used,memory.total,utilization.gpu").split(
                ","
            )
            rows = [[_field(nvml, device, name, units) for name in names] for device in devices]
            _csv(rows, [_heading(name, units) for name in names], form)
    except (OSError, Failed) as error:
        print(f"nvidia-smi (gpuferry): no device: {error}", file=sys.stderr)
        return 9
    return 0


if __name__ == "__main__":
    sys.exit(main())
