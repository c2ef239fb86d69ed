"""Devices: what they say about themselves."""

from __future__ import annotations

import ctypes
import json
import os
import sys

from tests.helpers.paths import ROOT, SIM_LIBRARY
from tests.helpers.running import loading, run

from .driver import INVALID_DEVICE, INVALID_VALUE, Driver


def attribute(cu: Driver, number: int, device: int = 0) -> int:
    return int(cu.out("cuDeviceGetAttribute", number, device, type=ctypes.c_int))


def test_count_and_ordinals(cu: Driver) -> None:
    assert cu.out("cuDeviceGetCount", type=ctypes.c_int) == 2
    assert [cu.out("cuDeviceGet", i, type=ctypes.c_int) for i in range(2)] == [0, 1]
    assert cu.status("cuDeviceGet", ctypes.byref(ctypes.c_int()), 2) == INVALID_DEVICE
    assert cu.status("cuDeviceGet", ctypes.byref(ctypes.c_int()), -1) == INVALID_DEVICE
    assert cu.status("cuDeviceGet", None, 0) == INVALID_VALUE


def test_attributes_describe_compute_capability_8_0(cu: Driver) -> None:
    expected = {
        1: 1024,
        5: 2**31 - 1,
        6: 65535,
        8: 49152,
        10: 32,
        12: 65536,
        16: 108,
        39: 2048,
        75: 8,
        76: 0,
        81: 167936,
        97: 166912,
    }
    assert {number: attribute(cu, number) for number in expected} == expected


def test_every_attribute_has_a_value_and_unknown_ones_are_refused(cu: Driver) -> None:
    for number in range(1, 160):
        attribute(cu, number)
    for number in (0, -1, 100000):
        assert cu.status("cuDeviceGetAttribute", ctypes.byref(ctypes.c_int()), number, 0) == INVALID_VALUE
    assert cu.status("cuDeviceGetAttribute", ctypes.byref(ctypes.c_int()), 1, 7) == INVALID_DEVICE


def test_identity_is_unique_and_pci_ids_agree(cu: Driver) -> None:
    seen = set()
    for device in range(2):
        uuid = ctypes.create_string_buffer(16)
        cu.ok("cuDeviceGetUuid_v2", uuid, device)
        text = ctypes.create_string_buffer(32)
        cu.ok("cuDeviceGetPCIBusId", text, 32, device)
        bus = attribute(cu, 33, device)
        assert (
            text.value.decode()
            == f"{attribute(cu, 50, device):04X}:{bus:02X}:{attribute(cu, 34, device):02X}.0"
        )
        assert cu.out("cuDeviceGetByPCIBusId", text.value, type=ctypes.c_int) == device
        seen.add((uuid.raw, bus))
    assert len(seen) == 2
    assert cu.status("cuDeviceGetByPCIBusId", ctypes.byref(ctypes.c_int()), b"0000:77:00.0") == INVALID_DEVICE


def test_name_is_cut_to_the_buffer(cu: Driver) -> None:
    name = ctypes.create_string_buffer(9)
    cu.ok("cuDeviceGetName", name, 9, 0)
    assert name.value == b"gpuferry"
    assert cu.status("cuDeviceGetName", None, 9, 0) == INVALID_VALUE


def test_total_memory_is_the_setting(cu: Driver) -> None:
    assert cu.out("cuDeviceTotalMem_v2", 0) == 1 << 30


def test_properties_repeat_the_attributes(cu: Driver) -> None:
    properties = (ctypes.c_int * 14)()
    cu.ok("cuDeviceGetProperties", properties, 0)
    assert list(properties) == [attribute(cu, number) for number in range(1, 15)]


# Of these the recorded H200 says something else: the simulated device has no such thing, or lies elsewhere.
OTHERWISE = {32, 33, 34, 44, 86, 92, 93, 94, 96, 107, 110, 112, 114, 116, 117, 118, 119, 121, 124, 126, 128}
OTHERWISE |= {129, 134, 139, 140, 142, 144}
SAYS_ALL = """
import ctypes, json
cuda, value, found = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), {}
assert cuda.cuInit(0) == 0
for number in range(1, 148):
    assert cuda.cuDeviceGetAttribute(ctypes.byref(value), number, 0) == 0
    found[number] = value.value
print(json.dumps(found))
"""


def test_attributes_of_compute_capability_9_0_are_those_of_a_recorded_h200() -> None:
    recorded = json.loads((ROOT / "bench/results/gpu/2026-11-27-H200/driver.json").read_text())
    environment = loading(SIM_LIBRARY) | {"GPUFERRY_SIM_CC": "9.0", "PATH": os.environ["PATH"]}
    said = run([sys.executable, "-c", SAYS_ALL], environment)
    found, there = json.loads(said.stdout), recorded["device"]["attributes"]
    assert {int(number) for number in found if found[number] != there[number]} == OTHERWISE
