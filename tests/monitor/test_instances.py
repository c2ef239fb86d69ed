"""GPUs that are divided into MIG instances: each instance is a device of its own, as NVML tells of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from gpuferry.guest import paths
from gpuferry.guest.launch import simulated_environment
from gpuferry.monitor.devices import choice
from gpuferry.monitor.devices.instances import chosen
from gpuferry.monitor.settings.errors import ConfigError
from gpuferry.specs._generated import control_pb2

from tests.helpers.running import guest_environment
from tests.ipc.members import program
from tests.migration.rounds import has_begun
from tests.monitor import harness
from tests.monitor.fake_guest import FakeGuest, Refused

INSTANCES = 3  # of each of two GPUs of 3 GiB
CUDA = """
import ctypes, json
cuda = ctypes.CDLL("libcuda.so.1")
assert cuda.cuInit(0) == 0
def number(ask, *more):
    told = ctypes.c_size_t()
    assert ask(ctypes.byref(told), *more) == 0
    return told.value
name, uuid = ctypes.create_string_buffer(96), (ctypes.c_ubyte * 16)()
assert cuda.cuDeviceGetName(name, 96, 0) == cuda.cuDeviceGetUuid_v2(uuid, 0) == 0
print(json.dumps([number(cuda.cuDeviceGetCount), name.value.decode(), bytes(uuid).hex(),
                  number(cuda.cuDeviceTotalMem_v2, 0) >> 20, number(cuda.cuDeviceGetAttribute, 16, 0)]))
"""
NVML = (
    f"library = {paths.simulated_nvml()!r}"
    + """
import ctypes, json, pynvml
ctypes.CDLL(library)
pynvml.nvmlInit()
gpus = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
def gap(gpu):
    try:
        pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu))
    except pynvml.NVMLError as error:
        return error.value
def instances(gpu):
    return [pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index)
            for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu))]
def told(handle):
    return [pynvml.nvmlDeviceGetUUID(handle), pynvml.nvmlDeviceGetMemoryInfo(handle).total >> 20,
            bool(pynvml.nvmlDeviceIsMigDeviceHandle(handle))]
for gpu in gpus:
    for one in instances(gpu):
        whole = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(one)
        assert pynvml.nvmlDeviceGetUUID(whole) == pynvml.nvmlDeviceGetUUID(gpu)
        again = pynvml.nvmlDeviceGetHandleByUUID(pynvml.nvmlDeviceGetUUID(one))
        assert told(again) == told(one)
print(json.dumps([
    [pynvml.nvmlDeviceGetMigMode(gpu), gap(gpu), told(gpu), [told(one) for one in instances(gpu)]]
    for gpu in gpus
]))
"""
)
NOT_FOUND = 6


def divided(**more: str) -> dict[str, str]:
    return {
        "GPUFERRY_SIM_DEVICES": "2",
        "GPUFERRY_SIM_MIG": str(INSTANCES),
        "GPUFERRY_SIM_MEMORY": "3GiB",
    } | more


def natively(program: str, **more: str) -> Any:
    environment = simulated_environment() | divided(**more)
    return json.loads(subprocess.check_output([sys.executable, "-c", program], env=environment, text=True))


def natively_named() -> list[str]:
    return [one[0] for gpu in natively(NVML) for one in gpu[3]]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    for name, value in divided(GPUFERRY_DEVICE="sim").items():
        monkeypatch.setenv(name, value)
    machine = choice.choose(None)
    assert machine.devices == len(machine.names) == 2 * INSTANCES
    return machine.names


def test_cuda_shows_the_first_one_or_the_one_that_is_named(names: tuple[str, ...]) -> None:
    for at in (0, 4):
        named = {"CUDA_VISIBLE_DEVICES": names[at]} if at else {}
        count, name, uuid, memory, processors = natively(CUDA, **named)
        assert (count, name, memory) == (1, "gpuferry simulated device MIG 2g.1gb", 1024)
        assert names[at].removeprefix("MIG-").replace("-", "") == uuid
        assert processors == 108 // INSTANCES
    several = {"CUDA_VISIBLE_DEVICES": f"{names[1]},{names[2]}"}
    assert natively(CUDA, **several)[0] == 1


def test_nvml_tells_of_gpus_and_instances(names: tuple[str, ...]) -> None:
    found = []
    for gpu in natively(NVML):
        mode, gap, whole, instances = gpu
        assert (mode, gap) == ([1, 1], NOT_FOUND)
        assert whole[0].startswith("GPU-")
        assert whole[1:] == [3072, False]
        assert all(one[1:] == [1024, True] for one in instances)
        found += [one[0] for one in instances]
    assert tuple(found) == names


def test_a_gpu_that_is_whole_has_no_instances() -> None:
    for gpu in natively(
        NVML.replace("nvmlDeviceGetMigMode(gpu)", "nvmlDeviceGetIndex(gpu)"), GPUFERRY_SIM_MIG="0"
    ):
        assert gpu[3] == []


def test_an_operator_offers_some_of_them() -> None:
    found = ["MIG-aa", "MIG-ab", "GPU-c"]
    assert chosen(found, None) == found
    assert chosen(found, "GPU-c, mig-AB") == ["GPU-c", "MIG-ab"]
    assert chosen(found, "MIG-ab,MIG-a,GPU-c") == ["MIG-ab"]  # two are called so: the list ends
    assert chosen(found, "") == []


@pytest.mark.parametrize("value", ["8", "-1", "many"])
def test_what_no_gpu_can_be_divided_into(value: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CUDA],
        env=simulated_environment() | {"GPUFERRY_SIM_MIG": value},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode
    assert "GPUFERRY_SIM_MIG" in done.stderr


@pytest.fixture(scope="module")
def monitor() -> Iterator[harness.Monitor]:
    changes: dict[str, Any] = dict(divided())
    with harness.monitor("--pool", "1", "--sample", "0.2", server=None, **changes) as running:
        running.wait_idle(2 * INSTANCES)
        yield running


@pytest.mark.system
def test_each_is_a_device_of_the_server(monitor: harness.Monitor) -> None:
    devices = monitor.status().devices
    assert [device.memory_total >> 20 for device in devices] == [1024] * 2 * INSTANCES
    assert len({device.uuid for device in devices}) == 2 * INSTANCES
    told = [gpu["uuid"] for gpu in json.loads(monitor.run("smi", "--json").stdout)["gpus"]]
    assert told == natively_named(), "with MIG- in front"
    sampled = monitor.wait_for(
        lambda status: all(device.HasField("memory_used") for device in status.devices), "NVML was asked"
    )
    assert not any(
        device.HasField("utilization") for device in sampled.devices
    )  # NVML tells that of GPUs only


@pytest.mark.system
def test_a_program_has_one(monitor: harness.Monitor) -> None:
    done = monitor.run("run", "--label", "gpu=4", "--", sys.executable, "-c", CUDA)
    assert done.returncode == 0, done.stderr
    count, name, uuid, memory, _ = json.loads(done.stdout)
    assert (count, name) == (1, "gpuferry simulated device MIG 2g.1gb")
    assert bytes.fromhex(uuid) == monitor.status().devices[4].uuid
    assert memory <= 1024


@pytest.mark.some(1)
@pytest.mark.parametrize(("visible", "count"), [("{0}", 1), ("{0:.9}", 1), ("GPU-{1}", 0), ("MIG-x", 0)])
def test_a_program_says_which_it_sees(monitor: harness.Monitor, visible: str, count: int) -> None:
    """By the UUID that its NVML shows, as on a machine that has the instance."""
    code = """
import ctypes, json, os, pynvml
pynvml.nvmlInit()
uuid = pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(0))
assert pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByUUID(uuid)) == 0
os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["VISIBLE"].format(uuid, uuid[4:])
cuda, found = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
cuda.cuInit(0)
cuda.cuDeviceGetCount(ctypes.byref(found))
print(json.dumps([uuid, found.value]))
"""
    monitor.wait_for(lambda status: not status.sessions, "end of others, whose GPUs it would see")
    settings = ("run", "--label", "gpu=0", "--", "env", f"VISIBLE={visible}", sys.executable, "-c", code)
    done = monitor.run(*settings)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [natively_named()[0], count]


def test_a_program_moves_to_another(monitor: harness.Monitor) -> None:
    told = {"GPUFERRY_MONITOR": monitor.address, "GPUFERRY_TOKEN": monitor.token}
    with program(guest_environment(told), 1) as (member,):
        memory = member.allocate(8)
        assert member.write(memory, 7) == 0
        # That of a program before this one may not be over yet.
        (session,) = monitor.wait_for(lambda status: len(status.sessions) == 1, "it is alone").sessions
        has_begun(monitor, session.id)
        there = (session.device + INSTANCES) % (2 * INSTANCES)
        request = control_pb2.MigrateRequest(session=session.id, device=there)
        *_, last = monitor.stub.Migrate(request, metadata=monitor.metadata, timeout=harness.DEADLINE)
        assert last.state == control_pb2.MIGRATION_STATE_DONE, last.reason
        assert member.read(memory) == 7
        assert [one.device for one in monitor.status().sessions] == [there]


def test_no_program_has_two(monitor: harness.Monitor) -> None:
    with pytest.raises(Refused, match="one instance"):
        FakeGuest(monitor.address, monitor.token, devices=2)


@pytest.mark.parametrize("wanted", ["0", "65", "many"])
def test_the_simulated_driver_has_no_such_number_of_devices(
    monkeypatch: pytest.MonkeyPatch, wanted: str
) -> None:
    """Its API servers ended one after another, for ever."""
    monkeypatch.setenv("GPUFERRY_SIM_DEVICES", wanted)
    with pytest.raises(ConfigError, match=f"'{wanted}': a number from 1 to 64 is wanted"):
        choice.simulated_devices()
