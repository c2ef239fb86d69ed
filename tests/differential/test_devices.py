"""Programs on two devices: natively, through gpuferry with `--gpus 2`, and on a driver that does no work."""

from __future__ import annotations

import functools
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import programs, toolchain
from tests.helpers.monitor import Monitor, monitor
from tests.helpers.programs import Program
from tests.helpers.running import Outcome, native_environment, run, skip_environment
from tests.helpers.warm import CLI

pytestmark = pytest.mark.timeout(240)

TWO = {"GPUFERRY_SIM_DEVICES": "2"}
DEADLINE = 120.0
PROGRAMS = [pytest.param(program, id=program.name) for program in programs.programs("devices")]


@pytest.fixture(scope="module")
def two_devices() -> Iterator[Monitor]:
    with monitor("--pool", "1", "--device", "sim", "--log-level", "warning", environment=TWO) as running:
        yield running


@functools.cache
def built(program: Program) -> Path:
    return toolchain.program(program.source, program.flags)


@functools.cache
def native(program: Program) -> Outcome:
    return run([built(program)], {**native_environment(), **TWO})


@pytest.mark.some(3)
@pytest.mark.parametrize("program", PROGRAMS)
def test_remote_equals_native(program: Program, two_devices: Monitor) -> None:
    """A program that is given two devices finds on them what it finds natively."""
    assert native(program).status == 0, native(program)
    remote = two_devices.run([built(program)], "tcp", {"GPUFERRY_GPUS": "2"})
    assert remote.stdout == native(program).stdout, remote.stderr
    assert remote.status == native(program).status, remote.stderr


@pytest.mark.system
def test_memory_of_a_device_that_is_not_reached_is_not_opened() -> None:
    apart = {**TWO, "GPUFERRY_SIM_PEERS": "0"}
    executable = built(programs.program("ipc_across_devices"))
    here = run([executable], {**native_environment(), **apart})
    with monitor("--pool", "1", "--device", "sim", "--log-level", "warning", environment=apart) as server:
        there = server.run([executable], "tcp", {"GPUFERRY_GPUS": "2"})
    assert here.status == 0, here
    assert (there.status, there.stdout) == (0, here.stdout), there.stderr
    assert "PEER_ACCESS_UNSUPPORTED" in here.stdout


@pytest.mark.system
@pytest.mark.parametrize("program", PROGRAMS)
def test_without_work_it_fails(program: Program) -> None:
    """No program passes if launches and copies are accepted and not done."""
    outcome = run([built(program)], {**skip_environment(), **TWO})
    assert outcome.status != 0, f"{program.name} proves nothing:\n{outcome.stdout}"


UUIDS = """
import ctypes, uuid
cuda, found = ctypes.CDLL("libcuda.so.1"), ctypes.create_string_buffer(16)
assert cuda.cuInit(0) == 0
for device in range(2):
    assert cuda.cuDeviceGetUuid_v2(found, device) == 0
    print(f"GPU-{uuid.UUID(bytes=found.raw)}")
"""


@pytest.fixture(scope="module")
def uuids() -> list[str]:
    """Of the machine's two devices."""
    outcome = run([sys.executable, "-c", UUIDS], {**native_environment(), **TWO})
    assert outcome.status == 0, outcome.stderr
    return outcome.stdout.split()


SEEN = {
    "": [],
    "0": [0],
    "1": [1],
    "0,1": [0, 1],
    "1,0": [1, 0],
    " 1 , 0 ": [1, 0],
    "1,2,0": [1],
    "2,1": [],
    "0,-1,1": [0],
    "-1,0": [],
    "none": [],
    "1,x": [1],
    "0,0": [],
    "0,1,0": [],
    "0,9,0": [0],
    "MIG-0": [],
    "0,MIG-GPU-x/0/0": [0],
    "{0},{1}": [0, 1],
    "{1}": [1],
    "{1:.9}": [1],
    "GPU-": [],
    "{1},GPU-0123": [1],
    "{0}x": [],
    "{1},0": [1, 0],
}


def environment_of(value: str, uuids: list[str]) -> dict[str, str]:
    """The environment in which the list is this one, in which `{0:.9}` is the beginning of the first UUID."""
    return {"CUDA_VISIBLE_DEVICES": value.format(*uuids)}


def test_textures_that_each_device_numbers_from_1() -> None:
    """Two textures of one number, which the device with seed 1 gives, are each its own context's."""
    program, varied = programs.program("multi_device_textures"), {**TWO, "GPUFERRY_SIM_VARIANCE": "1"}
    here = run([built(program)], {**native_environment(), **varied})
    assert "the same number: 1" in here.stdout
    with monitor("--pool", "1", "--device", "sim", "--log-level", "warning", environment=varied) as running:
        there = running.run([built(program)], "tcp", {"GPUFERRY_GPUS": "2"})
    assert (there.stdout, there.status) == (here.stdout, 0), there.stderr


@pytest.mark.some(4)
@pytest.mark.parametrize("value", SEEN)
def test_visible_devices(value: str, uuids: list[str], two_devices: Monitor) -> None:
    """CUDA_VISIBLE_DEVICES means the same natively and remotely, and what CUDA's manual says."""
    program, extra = programs.program("visible_devices"), environment_of(value, uuids)
    here = run([built(program)], {**native_environment(), **TWO, **extra})
    there = two_devices.run([built(program)], "tcp", {"GPUFERRY_GPUS": "2", **extra})
    assert (here.status, there.status) == (0, 0), here.stdout + there.stderr
    assert here.stdout == there.stdout
    everything = run([built(program)], {**native_environment(), **TWO}).stdout
    known = [line for line in everything.splitlines() if line.startswith("uuid")]
    seen = [known.index(line) for line in here.stdout.splitlines() if line.startswith("uuid")]
    assert seen == SEEN[value]


@pytest.mark.parametrize("order", ["PCI_BUS_ID", "FASTEST_FIRST", "nonsense"])
def test_order_of_devices(order: str, two_devices: Monitor) -> None:
    """Devices that are alike are in the order of the bus, whatever CUDA_DEVICE_ORDER says."""
    program, extra = programs.program("visible_devices"), {"CUDA_DEVICE_ORDER": order}
    here = run([built(program)], {**native_environment(), **TWO})
    there = two_devices.run([built(program)], "tcp", {"GPUFERRY_GPUS": "2", **extra})
    assert there.stdout == here.stdout
    assert there.status == 0


def test_one_command_gives_two_devices() -> None:
    """`gpuferry run --local --device sim --gpus 2`, on a machine that was told of no simulated devices."""
    environment = {name: value for name, value in os.environ.items() if name != "GPUFERRY_SIM_DEVICES"}
    program = programs.program("visible_devices")
    command = [*CLI, "run", "--local", "--device", "sim", "--gpus", "2", "--", str(built(program))]
    outcome = run(command, environment)
    assert outcome.status == 0, outcome.stderr
    assert "\n2 devices\n" in outcome.stdout


@pytest.mark.system
@pytest.mark.some(1)
@pytest.mark.parametrize("visible", ["1", "1,0", "-1"])
def test_a_private_monitor_leaves_the_choice_to_the_program(visible: str) -> None:
    """It offers all devices that were asked for, whichever the program will see, and in which order."""
    program = programs.program("visible_devices")
    chosen = {"CUDA_VISIBLE_DEVICES": visible}
    command = (*CLI, "run", "--local", "--device", "sim", "--gpus", "2", "--", str(built(program)))
    there = run(command, {**os.environ, **chosen})
    here = run([built(program)], {**native_environment(), **TWO, **chosen})
    assert (there.status, there.stdout) == (here.status, here.stdout), there.stderr


def test_more_devices_than_there_are(two_devices: Monitor) -> None:
    """Who asks for more than the machine has is told so at once, and does not wait."""
    program = programs.program("visible_devices")
    refused = two_devices.run([built(program)], "tcp", {"GPUFERRY_GPUS": "3"})
    assert refused.status == 1
    assert "3 GPUs asked for, there are 2" in refused.stderr
    nonsense = two_devices.run([built(program)], "tcp", {"GPUFERRY_GPUS": "two"})
    assert "GPUFERRY_GPUS=two is not a number of GPUs" in nonsense.stderr


def test_everything_is_free_after_a_kill(two_devices: Monitor) -> None:
    """A program that is killed has no memory on either device any more, and the next one finds all of it."""
    program = programs.program("multi_device")
    killed = KILLED.format(devices=2)
    dead = two_devices.run([sys.executable, "-c", killed], "tcp", {"GPUFERRY_GPUS": "2"})
    assert dead.status == -signal.SIGKILL, dead.stderr
    again = two_devices.run([built(program)], "tcp", {"GPUFERRY_GPUS": "2"})
    assert again.stdout == native(program).stdout, again.stderr
    deadline = time.monotonic() + DEADLINE
    while any(device["memory_granted"] for device in two_devices.status()["devices"]):
        assert time.monotonic() < deadline, two_devices.status()


KILLED = """
import ctypes, os, signal
cuda, size = ctypes.CDLL("libcuda.so.1"), ctypes.c_size_t(256 << 20)
context, address = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
for device in range({devices}):
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    assert cuda.cuMemAlloc_v2(ctypes.byref(address), size) == 0
assert cuda.cuCtxSynchronize() == 0
os.kill(os.getpid(), signal.SIGKILL)
"""
