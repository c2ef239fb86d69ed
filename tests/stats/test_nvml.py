"""The simulated libnvidia-ml.so.1 under nvidia-ml-py: identity, live figures, what dies, what is absent."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from gpuferry.guest import paths

from .simulated import SIZE, User, environment, lose, sampler

MIB = 1 << 20
PRELUDE = f"""
import ctypes
ctypes.CDLL({paths.simulated_nvml()!r})
from pynvml import *
def error(call, *arguments):
    try:
        return call(*arguments)
    except NVMLError as failure:
        return failure.value
"""


@pytest.fixture
def figures(tmp_path: Path) -> Path:
    return tmp_path / "figures"


def nvml(figures: Path, code: str, **settings: str) -> list[str]:
    result = subprocess.run(
        [sys.executable, "-c", PRELUDE + code],
        env=environment(figures, **settings),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def until(samples: Any, condition: Any, most: int = 1000) -> Any:
    """A sample taken when the condition held for all devices: the one after the first that shows it."""
    for sample in islice(samples, most):
        if condition(sample["gpus"]):
            return next(samples)["gpus"]
    raise AssertionError(f"not within {most} samples; the last was {sample}")


def test_identity_is_the_drivers(figures: Path) -> None:
    code = f"""
nvmlInit()
cu = ctypes.CDLL({paths.simulated_driver()!r})
assert cu.cuInit(0) == 0
version = ctypes.c_int(); cu.cuDriverGetVersion(ctypes.byref(version))
assert version.value == nvmlSystemGetCudaDriverVersion()
assert nvmlDeviceGetCount() == 3
for ordinal in range(3):
    handle = nvmlDeviceGetHandleByIndex(ordinal)
    uuid = ctypes.create_string_buffer(16); cu.cuDeviceGetUuid_v2(uuid, ordinal)
    text = nvmlDeviceGetUUID(handle)
    assert text.removeprefix("GPU-").replace("-", "") == uuid.raw.hex()
    name = ctypes.create_string_buffer(100); cu.cuDeviceGetName(name, 100, ordinal)
    assert name.value.decode() == nvmlDeviceGetName(handle)
    pci = ctypes.create_string_buffer(32); cu.cuDeviceGetPCIBusId(pci, 32, ordinal)
    assert nvmlDeviceGetPciInfo(handle).busId.lower() == "0000" + pci.value.decode().lower()
    total = ctypes.c_size_t(); cu.cuDeviceTotalMem_v2(ctypes.byref(total), ordinal)
    assert nvmlDeviceGetMemoryInfo(handle).total == total.value
    assert nvmlDeviceGetMemoryInfo(handle, nvmlMemory_v2).total == total.value
    major, minor = ctypes.c_int(), ctypes.c_int()
    cu.cuDeviceComputeCapability(ctypes.byref(major), ctypes.byref(minor), ordinal)
    assert nvmlDeviceGetCudaComputeCapability(handle) == (major.value, minor.value)
    for again in (nvmlDeviceGetHandleByUUID(text), nvmlDeviceGetHandleByPciBusId(pci.value.decode())):
        assert nvmlDeviceGetIndex(again) == ordinal
print("same")
"""
    assert nvml(figures, code, GPUFERRY_SIM_DEVICES="3", GPUFERRY_SIM_MEMORY="3GiB") == ["same"]


def test_visible_devices_do_not_concern_it(figures: Path) -> None:
    settings = {"GPUFERRY_SIM_DEVICES": "2", "CUDA_VISIBLE_DEVICES": "1"}
    assert nvml(figures, "nvmlInit(); print(nvmlDeviceGetCount())", **settings) == ["2"]


def test_errors(figures: Path) -> None:
    code = """
print(error(nvmlDeviceGetCount))
nvmlInit(); nvmlInit()
handle = nvmlDeviceGetHandleByIndex(0)
print(error(nvmlDeviceGetHandleByIndex, 1), error(nvmlDeviceGetHandleByUUID, "GPU-0"))
absent = (nvmlDeviceGetPowerUsage, nvmlDeviceGetFanSpeed, nvmlDeviceGetSerial)
print([error(call, handle) for call in absent])
print(error(nvmlDeviceGetTemperature, handle, 0), error(nvmlDeviceGetClockInfo, handle, NVML_CLOCK_VIDEO))
print(*map(nvmlErrorString, (NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_GPU_IS_LOST, 12345)))
print(error(nvmlDeviceGetMemoryInfo, handle, 7))
nvmlShutdown(); print(nvmlDeviceGetCount())
nvmlShutdown(); print(error(nvmlDeviceGetCount), error(nvmlShutdown))
"""
    assert nvml(figures, code) == [
        "1",
        "2 6",
        "[3, 3, 3]",
        "3 3",
        "Not Supported GPU is lost Unknown Error",
        "25",
        "1",
        "1 1",
    ]


def test_no_device_is_no_driver(figures: Path) -> None:
    assert nvml(figures, "print(error(nvmlInit))", GPUFERRY_SIM_DEVICES="0") == ["9"]


def test_memory_of_all_processes(figures: Path) -> None:
    settings = {"GPUFERRY_SIM_DEVICES": "2"}
    with (
        User(figures, 0, **settings) as one,
        User(figures, 0, **settings) as two,
        User(figures, 1, **settings) as three,
        sampler(figures, GPUFERRY_SIM_DEVICES="2") as samples,
    ):
        empty = next(samples)["gpus"]
        one.tell(f"map {64 * MIB}")
        two.tell(f"map {32 * MIB}")
        three.tell(f"map {16 * MIB}")
        first, second = until(samples, lambda gpus: gpus[1]["memory_used"] > empty[1]["memory_used"])
        assert first["memory_used"] - empty[0]["memory_used"] == 96 * MIB
        assert second["memory_used"] - empty[1]["memory_used"] == 16 * MIB
        held = {process["pid"]: process["memory"] for process in first["processes"]}
        assert held.keys() == {one.process.pid, two.process.pid}
        assert held[one.process.pid] - held[two.process.pid] == 32 * MIB
        # Killed: nothing cleans up, and yet its figures are gone.
        one.process.kill()
        one.process.wait()
        first, _ = until(samples, lambda gpus: len(gpus[0]["processes"]) == 1)
        assert first["memory_used"] == held[two.process.pid]


def test_a_dead_process_makes_room_for_the_next(figures: Path) -> None:
    size = set()
    for _ in range(20):
        with User(figures) as user:
            user.tell(f"map {MIB}")
            size.add(figures.stat().st_blocks)
    assert len(size) == 1  # the same entry each time
    assert nvml(
        figures, "nvmlInit(); print(nvmlDeviceGetMemoryInfo(nvmlDeviceGetHandleByIndex(0)).used)"
    ) == ["0"]


def test_utilization_while_a_kernel_runs(figures: Path) -> None:
    with User(figures) as user, sampler(figures) as samples:
        assert next(samples)["gpus"][0]["utilization"] == 0
        user.tell("spin")
        until(samples, lambda gpus: gpus[0]["utilization"] == 1)
        user.tell("stop")
        until(samples, lambda gpus: gpus[0]["utilization"] == 0)
        # One that is killed in its kernel does not keep the device busy.
        user.tell("spin")
        until(samples, lambda gpus: gpus[0]["utilization"] == 1)
        user.process.kill()
        user.process.wait()
        until(samples, lambda gpus: gpus[0]["utilization"] == 0)


def test_a_forked_child_does_not_count(figures: Path) -> None:
    code = f"""
import os
cu = ctypes.CDLL({paths.simulated_driver()!r})
cu.cuInit(0)
context, memory = ctypes.c_void_p(), ctypes.c_void_p()
cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0); cu.cuCtxSetCurrent(context)
cu.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(8 << 20))
nvmlInit()
handle = nvmlDeviceGetHandleByIndex(0)
before = nvmlDeviceGetMemoryInfo(handle).used
child = os.fork()
if child == 0:
    cu.cuMemFree_v2(memory)
    os._exit(0)
os.waitpid(child, 0)
used = nvmlDeviceGetMemoryInfo(handle).used
print(used == before >= 8 << 20, len(nvmlDeviceGetComputeRunningProcesses(handle)))
"""
    assert nvml(figures, code) == ["True 1"]


def test_a_lost_device_and_its_return(figures: Path) -> None:
    with sampler(figures, GPUFERRY_SIM_DEVICES="2") as samples:
        uuid = next(samples)["gpus"][1]["uuid"]
        lose(figures, 1)
        first, second = until(samples, lambda gpus: gpus[1]["lost"])
        assert not first["lost"]
        assert second["uuid"] == uuid
        assert "lost" in second["error"]
        lose(figures, 1, False)
        _, second = until(samples, lambda gpus: not gpus[1]["lost"])
        assert second["memory_total"]


@pytest.mark.parametrize("obstacle", ["link", "folder", "foreign"])
def test_the_driver_runs_without_the_file(figures: Path, obstacle: str) -> None:
    if obstacle == "link":
        figures.symlink_to(figures.parent / "elsewhere")
    elif obstacle == "folder":
        figures.mkdir()
    else:
        figures.write_bytes(b"not ours" * 512)
    with User(figures) as user:
        user.tell(f"map {MIB}")
        user.tell("spin")
        user.tell("stop")
    assert not (figures.parent / "elsewhere").exists()
    if obstacle == "foreign":
        assert figures.read_bytes() == b"not ours" * 512


@pytest.mark.parametrize("before", [b"", b"not ours" * 512, b"not ours" + bytes(SIZE - 8)])
def test_in_the_runtime_folder_it_is_made_anew_and_only_this_user_reads_it(
    tmp_path: Path, before: bytes
) -> None:
    """One that was damaged, or of another release, kept all figures back for good, and nobody said so."""
    folder = tmp_path / "run"
    if before:
        folder.mkdir(mode=0o700)
        (folder / "simdevice").write_bytes(before)
        (folder / "simdevice").chmod(0o600)
    settings = environment(tmp_path, GPUFERRY_RUNTIME_DIR=str(folder))
    del settings["GPUFERRY_SIM_STATS"]
    code = f"import ctypes; print(ctypes.CDLL({paths.simulated_driver()!r}).cuInit(0))"
    subprocess.run([sys.executable, "-c", code], env=settings, check=True, timeout=240)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "simdevice").stat().st_mode & 0o777 == 0o600
    assert (folder / "simdevice").stat().st_uid == os.getuid()
    assert (folder / "simdevice").read_bytes()[:8] == b"SIMLIVE1"
