"""What NVML tells of the machine around a device, and what it lets nobody change."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from gpuferry.guest import launch, paths

from tests.nvml.test_nvml import BEGIN

NO_PERMISSION, NOT_FOUND, ARGUMENT_VERSION_MISMATCH = 4, 6, 25

MACHINE = """
import uuid
class Uuid(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint), ("type", ctypes.c_uint), ("value", ctypes.c_char * 44)]
VERSION = 52 | 1 << 24
def named(type, value, version=VERSION):
    found, asked = ctypes.c_void_p(), Uuid(version, type)
    ctypes.memmove(ctypes.addressof(asked) + 8, value, len(value))
    return library.nvmlDeviceGetHandleByUUIDV(ctypes.byref(asked), ctypes.byref(found)), found.value
pynvml.nvmlInit()
one, library = pynvml.nvmlDeviceGetHandleByIndex(0), pynvml.nvmlLib
itself, text = ctypes.cast(one, ctypes.c_void_p).value, pynvml.nvmlDeviceGetUUID(one)
os.sched_setaffinity(0, {0})
narrow = len(os.sched_getaffinity(0))
pynvml.nvmlDeviceSetCpuAffinity(one)
node = pynvml.NVML_AFFINITY_SCOPE_NODE
print(json.dumps({
    "processors": list(pynvml.nvmlDeviceGetCpuAffinity(one, 16)),
    "in the node": list(pynvml.nvmlDeviceGetCpuAffinityWithinScope(one, 16, node)),
    "memory": list(pynvml.nvmlDeviceGetMemoryAffinity(one, 4, node)),
    "runs on": [narrow, len(os.sched_getaffinity(0))],
    "no such scope": failure(pynvml.nvmlDeviceGetMemoryAffinity, one, 4, 2),
    "named": [named(1, text.encode()) == (0, itself), named(2, uuid.UUID(text[4:]).bytes) == (0, itself)],
    "not named": [named(2, bytes(16))[0], named(3, b"")[0], named(1, text.encode(), 1)[0]],
    "denied": [failure(pynvml.nvmlDeviceSetComputeMode, one, 0),
               failure(pynvml.nvmlDeviceSetPersistenceMode, one, 1),
               failure(pynvml.nvmlDeviceSetGpuLockedClocks, one, 100, 200),
               failure(pynvml.nvmlDeviceSetPowerManagementLimit, one, 100000)]}))
"""


def test_processors_uuids_and_what_is_denied() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + MACHINE],
        env=launch.inject(launch.clean_environment(), paths.simulated_driver()),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    everywhere = sum(word.bit_count() for word in said["processors"])
    assert everywhere == os.sysconf("SC_NPROCESSORS_CONF")
    assert said["in the node"] == said["processors"]
    assert said["memory"][0] & 1
    assert said["no such scope"] == 2
    narrow, free = said["runs on"]
    assert (narrow, free) == (1, len(os.sched_getaffinity(0)))
    assert said["named"] == [True, True]
    assert said["not named"] == [NOT_FOUND, 2, ARGUMENT_VERSION_MISMATCH]
    assert said["denied"] == [NO_PERMISSION] * 4
