"""NVML in the guest, as nvidia-ml-py asks it: the program's own devices and processes, without a lease."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile
from gpuferry.guest import launch, paths

from codegen import local_library
from tests.helpers.monitor import Monitor, monitor
from tests.helpers.tokens import token_of
from tests.monitor.harness import wait_until

UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND, DRIVER_NOT_LOADED = 1, 2, 3, 6, 9

BEGIN = """
import ctypes, json, os, pynvml
def failure(function, *arguments):
    try:
        function(*arguments)
    except pynvml.NVMLError as error:
        return error.value
    return 0
def seen():
    device = pynvml.nvmlDeviceGetHandleByIndex(0)
    memory = pynvml.nvmlDeviceGetMemoryInfo(device)
    processes = pynvml.nvmlDeviceGetComputeRunningProcesses(device)
    return {"count": pynvml.nvmlDeviceGetCount(), "name": pynvml.nvmlDeviceGetName(device),
            "uuid": pynvml.nvmlDeviceGetUUID(device), "total": memory.total, "used": memory.used,
            "processes": [[one.pid, one.usedGpuMemory] for one in processes], "pid": os.getpid()}
"""
ALLOCATE = """
cuda, context, address = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(64 << 20)) == 0
assert cuda.cuCtxSynchronize() == 0
"""
LOOK = "pynvml.nvmlInit(); print(json.dumps(seen()))\n"
# Its figures are as old as those of the monitor, so it waits for what must come.
UNTIL_USED = """
pynvml.nvmlInit()
while seen()["used"] < 64 << 20:
    pass
print(json.dumps(seen()), flush=True)
"""


# Of each device: NVML's UUID, CUDA's, which index NVML finds by that, memory, and the processes.
EACH = """
cuda, one = ctypes.CDLL("libcuda.so.1"), ctypes.c_ubyte * 16
assert cuda.cuInit(0) == 0
pynvml.nvmlInit()  # what it is told now is old once there is memory
for number, size in enumerate((64, 128)):
    context, address = ctypes.c_void_p(), ctypes.c_uint64()
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), number) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size << 20)) == 0
    assert cuda.cuCtxSynchronize() == 0
def each():
    found = []
    for number in range(pynvml.nvmlDeviceGetCount()):
        device, uuid = pynvml.nvmlDeviceGetHandleByIndex(number), one()
        assert cuda.cuDeviceGetUuid_v2(uuid, number) == 0
        memory = pynvml.nvmlDeviceGetMemoryInfo(device)
        digits = bytes(uuid).hex()
        said = pynvml.nvmlDeviceGetUUID(device)
        found.append({
            "cuda": "GPU-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])),
            "uuid": said,
            "index": pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByUUID(said)),
            "total": memory.total, "used": memory.used >> 20,
            "processes": [[p.pid, p.usedGpuMemory >> 20]
                          for p in pynvml.nvmlDeviceGetComputeRunningProcesses(device)]})
    return found
print(json.dumps({"pid": os.getpid(), "each": each(), "beyond": failure(
    pynvml.nvmlDeviceGetHandleByIndex, 2)}))
"""


# What is asked of a driver, clocks, links and peers, also by programs older than a struct's last members.
FIGURES = """
pynvml.nvmlInit()
library = ctypes.CDLL("libnvidia-ml.so.1")
def older(function):
    info = ctypes.create_string_buffer(bytes([255]) * 68)
    assert function(pynvml.nvmlDeviceGetHandleByIndex(0), info) == 0
    return info.raw[:68].hex()
while failure(pynvml.nvmlSystemGetDriverVersion):
    pass
one, other = (pynvml.nvmlDeviceGetHandleByIndex(number) for number in range(2))
clocks = (pynvml.NVML_CLOCK_GRAPHICS, pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM)
print(json.dumps({
    "driver": pynvml.nvmlSystemGetDriverVersion(), "library": pynvml.nvmlSystemGetNVMLVersion(),
    "clocks": [pynvml.nvmlDeviceGetClockInfo(one, kind) for kind in clocks],
    "most": [pynvml.nvmlDeviceGetMaxClockInfo(one, kind) for kind in clocks],
    "video": failure(pynvml.nvmlDeviceGetClockInfo, one, pynvml.NVML_CLOCK_VIDEO),
    "link": [getattr(pynvml, f"nvmlDeviceGet{when}PcieLink{what}")(one)
             for when in ("Curr", "Max") for what in ("Generation", "Width")],
    "peers": [pynvml.nvmlDeviceGetP2PStatus(one, other, index) for index in range(5)],
    "itself": [pynvml.nvmlDeviceGetP2PStatus(one, one, index) for index in range(5)],
    "older": [older(library.nvmlDeviceGetPciInfo), older(library.nvmlDeviceGetPciInfo_v2)]}))
"""


@pytest.fixture(scope="module")
def running() -> Iterator[Monitor]:
    options = ("--pool", "2", "--sample", "0.5", "--log-level", "warning")
    with monitor(*options, environment={"GPUFERRY_SIM_DEVICES": "2"}) as one:
        yield one


@pytest.fixture
def server(running: Monitor) -> Iterator[Monitor]:
    """Whoever looks sees the sessions of its machine: those of a test are over before the next."""
    yield running
    wait_until(lambda: not running.status()["sessions"], "the end of all sessions")


def environment(settings: dict[str, str]) -> dict[str, str]:
    return launch.inject(launch.clean_environment() | settings, paths.guest_library())


def python(code: str, settings: dict[str, str]) -> Any:
    command = [sys.executable, "-c", BEGIN + code]
    done = subprocess.run(
        command, env=environment(settings), capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@contextmanager
def holding(settings: dict[str, str]) -> Iterator[dict[str, Any]]:
    """A program with 64 MiB of device memory, and what it sees of itself."""
    code = BEGIN + ALLOCATE + UNTIL_USED + "input()"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment(settings),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdin
        assert program.stdout
        try:
            yield json.loads(program.stdout.readline())
        finally:
            program.stdin.close()


@pytest.mark.parametrize("driver", [paths.guest_library, paths.simulated_driver])
def test_every_function_of_the_header_is_there(driver: Callable[[], str]) -> None:
    """hashcat, for one, ends if any that it knows is missing."""
    (library,) = local_library.load_all()
    with open(os.path.join(os.path.dirname(driver()), "libnvidia-ml.so.1"), "rb") as file:
        symbols = ELFFile(file).get_section_by_name(".dynsym").iter_symbols()
        exported = {symbol.name for symbol in symbols if symbol["st_shndx"] != "SHN_UNDEF"}
    assert {function.symbol for function in library.functions} <= exported
    assert len(library.functions) > 400


@pytest.mark.system
def test_driver_clocks_links_and_peers(server: Monitor) -> None:
    """The same as the driver itself says, which programs compare with versions of NVIDIA's."""
    native = launch.inject(
        launch.clean_environment() | {"GPUFERRY_SIM_DEVICES": "2"}, paths.simulated_driver()
    )
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + FIGURES], env=native, capture_output=True, text=True, check=True
    )
    here, there = json.loads(done.stdout), python(FIGURES, server.settings() | {"GPUFERRY_GPUS": "2"})
    assert there == here
    assert here["driver"].startswith("580.")
    assert here["library"] == f"13.{here['driver']}"
    assert here["peers"] == [0, 0, 5, 5, 5], "memory is reached, NVLink is not there"
    assert here["itself"] == here["peers"], "NCCL asks of a device and itself too"
    assert here["video"] == NOT_SUPPORTED
    assert all(clock > 0 for clock in (*here["clocks"], *here["link"]))
    first, second = here["older"]
    assert first[:64] == second[:64]
    assert (set(first[64:]), set(second[72:])) == ({"f"}, {"f"}), "more than an older program has room for"


@pytest.mark.system
def test_what_a_program_sees_of_itself(server: Monitor) -> None:
    with holding(server.settings()) as seen:
        assert seen["count"] == 1
        assert seen["name"] == "gpuferry simulated device"
        assert seen["processes"] == [[seen["pid"], seen["used"]]]
        assert seen["used"] >= 64 << 20
        device = next(d for d in server.status()["devices"] if d["default_quota"])
        assert seen["total"] == device["default_quota"], "not its quota"


@pytest.mark.some(1)
@pytest.mark.parametrize("visible", ["", "1,0"])
def test_several_devices(visible: str) -> None:
    """In NVML's order, which CUDA_VISIBLE_DEVICES does not change; each with its own memory and process."""
    devices = {"GPUFERRY_SIM_DEVICES": "3"}
    settings = {"GPUFERRY_GPUS": "2"} | ({"CUDA_VISIBLE_DEVICES": visible} if visible else {})
    with monitor("--pool", "1", "--log-level", "warning", environment=devices) as server:
        seen = python(EACH, server.settings() | settings)
    each, pid = seen["each"], seen["pid"]
    assert [device["index"] for device in each] == [0, 1]
    assert len({device["uuid"] for device in each}) == 2
    in_order = [device["cuda"] for device in each]
    assert [device["uuid"] for device in each] == (in_order[::-1] if visible else in_order)
    used = [128, 64] if visible else [64, 128]
    assert [device["used"] for device in each] == used
    assert [device["processes"] for device in each] == [[[pid, mib]] for mib in used]
    assert each[0]["total"] == each[1]["total"]
    assert seen["beyond"] == INVALID_ARGUMENT


def test_two_programs_do_not_see_each_other(server: Monitor) -> None:
    with holding(server.settings()) as one, holding(server.settings()) as other:
        assert one["pid"] != other["pid"]
        assert [pid for pid, _ in one["processes"]] == [one["pid"]]
        assert [pid for pid, _ in other["processes"]] == [other["pid"]]
        tool = python(LOOK, server.settings())
        assert tool["processes"]
        assert {pid for pid, _ in tool["processes"]} <= {one["pid"], other["pid"]}


def test_a_look_takes_no_lease_and_no_place(server: Monitor) -> None:
    before = server.status()["monitor"]
    seen = python(LOOK, server.settings() | {"GPUFERRY_MEMORY": "256MiB", "CUDA_VISIBLE_DEVICES": ""})
    assert (seen["count"], seen["total"], seen["used"]) == (1, 256 << 20, 0)
    after = server.status()["monitor"]
    assert after["sessions_granted"] == before["sessions_granted"]
    assert after["sessions_refused"] == before["sessions_refused"]


def test_a_look_does_not_wait_for_a_place() -> None:
    """The only place is taken: a program would stand in the queue."""
    with monitor("--pool", "1", "--log-level", "warning") as full, holding(full.settings()) as one:
        assert [pid for pid, _ in python(LOOK, full.settings())["processes"]] == [one["pid"]]


def test_handles_and_errors(server: Monitor) -> None:
    code = """
before = failure(pynvml.nvmlDeviceGetCount)
pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByIndex(0)
pci, extended = pynvml.nvmlDeviceGetPciInfo(device), pynvml.nvmlPciInfoExt_v1_t()
extended.version = pynvml.nvmlPciInfoExt_v1
pynvml.nvmlDeviceGetPciInfoExt(device, ctypes.byref(extended))
uuid = pynvml.nvmlDeviceGetUUID(device)
same = [*map(pynvml.nvmlDeviceGetHandleByUUID, (uuid, uuid.removeprefix("GPU-"))),
        *map(pynvml.nvmlDeviceGetHandleByPciBusId, (pci.busId, pci.busIdLegacy, extended.busId)),
        pynvml.nvmlDeviceGetHandleByPciBusId(f"{pci.bus:x}:{pci.device:x}.0")]
get_extended = pynvml._nvmlGetFunctionPointer("nvmlDeviceGetPciInfoExt")
told = {
    "before": before,
    "same": [ctypes.addressof(one.contents) == ctypes.addressof(device.contents) for one in same],
    "index": failure(pynvml.nvmlDeviceGetHandleByIndex, 1),
    "uuid": failure(pynvml.nvmlDeviceGetHandleByUUID, "GPU-00000000-0000-0000-0000-000000000000"),
    "half a uuid": failure(pynvml.nvmlDeviceGetHandleByUUID, uuid[12:]),
    "pci": failure(pynvml.nvmlDeviceGetHandleByPciBusId, "00000000:7F:00.0"),
    "half a place": failure(pynvml.nvmlDeviceGetHandleByPciBusId, pci.busId[-4:]),
    "not a handle": failure(pynvml.nvmlDeviceGetName, ctypes.c_void_p(16)),
    "temperature": failure(pynvml.nvmlDeviceGetTemperature, device, 0),
    "fan": failure(pynvml.nvmlDeviceGetFanSpeed, device),
    "short": pynvml._nvmlGetFunctionPointer("nvmlDeviceGetName")(device, ctypes.create_string_buffer(4), 4),
    "null": pynvml._nvmlGetFunctionPointer("nvmlDeviceGetMemoryInfo")(device, None),
    "extended": [extended.domain == pci.domain, extended.bus == pci.bus, extended.device == pci.device,
                 extended.baseClass, extended.subClass],
    "version": [get_extended(device, ctypes.byref(pynvml.nvmlPciInfoExt_v1_t())), get_extended(device, None)],
    "graphics": len(pynvml.nvmlDeviceGetGraphicsRunningProcesses(device)),
}
pynvml.nvmlShutdown()
told["after"] = failure(pynvml.nvmlDeviceGetCount)
print(json.dumps(told))
"""
    assert python(code, server.settings()) == {
        "before": UNINITIALIZED,
        "same": [True] * 6,
        "index": INVALID_ARGUMENT,
        "uuid": NOT_FOUND,
        "half a uuid": INVALID_ARGUMENT,
        "pci": NOT_FOUND,
        "half a place": NOT_FOUND,
        "not a handle": INVALID_ARGUMENT,
        "temperature": NOT_SUPPORTED,
        "fan": NOT_SUPPORTED,
        "short": 7,
        "null": INVALID_ARGUMENT,
        "extended": [True, True, True, 3, 2],
        "version": [25, INVALID_ARGUMENT],
        "graphics": 0,
        "after": UNINITIALIZED,
    }


@pytest.mark.parametrize(
    "settings", [{}, {"GPUFERRY_MONITOR": "127.0.0.1:9"}, {"GPUFERRY_TOKEN": token_of("somebody else")}]
)
def test_nobody_who_would_tell(server: Monitor, settings: dict[str, str]) -> None:
    told = python("print(failure(pynvml.nvmlInit))", (server.settings() | settings) if settings else settings)
    assert told == DRIVER_NOT_LOADED


def smi(server: Monitor, *words: str) -> list[str]:
    command = ["nvidia-smi", *words]
    found = subprocess.run(
        command, env=environment(server.settings()), capture_output=True, text=True, check=True, timeout=60
    )
    return found.stdout.splitlines()


def test_nvidia_smi(server: Monitor) -> None:
    with holding(server.settings()) as one:
        assert smi(server, "-L") == [f"GPU 0: {one['name']} (UUID: {one['uuid']})"]
        query = "--query-gpu=index,gpu_uuid,memory.total,utilization.gpu,temperature.gpu,fan.speed"
        heading, row = smi(server, query, "--format=csv")
        assert heading.startswith("index, gpu_uuid, memory.total [MiB], utilization.gpu [%], temperature.gpu")
        assert row.split(", ")[:3] == ["0", one["uuid"], f"{one['total'] >> 20} MiB"]
        assert row.split(", ")[4:] == ["[N/A]", "[N/A]"]
        (row,) = smi(server, "--query-gpu=memory.used", "--format=csv,noheader,nounits")
        assert int(row) == one["used"] >> 20
        (row,) = smi(server, "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits")
        assert row.split(", ")[0] == str(one["pid"])


def test_nvidia_smi_on_the_simulated_device() -> None:
    found = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,compute_cap", "--format=csv,noheader"],
        env=launch.simulating_environment(2),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert found.stdout == "gpuferry simulated device, 8.0\n" * 2
