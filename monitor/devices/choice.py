"""Which device this machine offers: a real GPU if the driver finds one, else the simulated device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import NamedTuple

from gpuferry.guest import paths
from gpuferry.guest.launch import clean_environment, simulated_environment, without_driver
from gpuferry.guest.units import parse_size

from ..settings.errors import ConfigError

CHOICES = ("auto", "gpu", "sim")
SIMULATED_MOST = 64  # devices, as the simulated driver has at most
INSTANCE_PREFIX = "MIG-"  # of the UUID of an instance of a GPU
MEMORY_LEAST, MEMORY_MOST = 1 << 20, 16 << 40  # bytes of a simulated device, as its driver takes them
# Where it does not like these it has no device, and API servers would be started again and again.
_JUDGED_BY_DRIVER = tuple(
    f"GPUFERRY_SIM_{name}" for name in ("CC", "CODE", "LOADS", "LOG", "TURNS", "VARIABLES")
)
CHECKED = {"GPUFERRY_SIM_CHECK": "1"}  # kernels on the simulated device are held to their own memory

# In a process of its own: a driver that was initialised cannot be unloaded, and may not survive a fork.
_PROBE = """
import ctypes
driver = ctypes.CDLL("libcuda.so.1")
count = ctypes.c_int()
status = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
print(status, count.value)
"""


def server_environment(simulated: bool, check_kernels: bool = False) -> dict[str, str]:
    """The environment of an API server. It never sees a secret, and never the guest library. `check_kernels`:
    kernels on the simulated device are held to their own memory.
    """
    environment = simulated_environment() if simulated else without_driver(clean_environment())
    for secret in (
        "GPUFERRY_TOKEN",
        "GPUFERRY_TOKEN_FILE",
        "GPUFERRY_CLUSTER_KEY",
        "GPUFERRY_CLUSTER_KEY_FILE",
    ):
        environment.pop(secret, None)
    if check_kernels:
        environment |= CHECKED
    return environment


def probe(simulated: bool, limit: float = 60.0) -> tuple[int, str]:
    """How many devices the driver reports within `limit` seconds, and why there are none."""
    try:
        answer = subprocess.run(
            [sys.executable, "-c", _PROBE],
            env=server_environment(simulated),
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 0, f"the driver did not answer within {limit:g} s"
    if answer.returncode:
        return 0, (answer.stderr.strip().splitlines() or [f"the probe ended with {answer.returncode}"])[-1]
    status, count = map(int, answer.stdout.split())
    if status:  # the simulated one says why
        return 0, (answer.stderr.strip().splitlines() or [f"the driver answered with error {status}"])[-1]
    return count, "" if count else "no device"


class Machine(NamedTuple):
    """The devices that this machine offers."""

    simulated: bool
    devices: int
    names: tuple[str, ...] = ()  # in CUDA_VISIBLE_DEVICES, where GPUs are divided (MIG); else numbers will do


def choose(wanted: str | None) -> Machine:
    """What is offered here. `wanted`: auto, gpu, sim. Raises ConfigError."""
    wanted = wanted or os.environ.get("GPUFERRY_DEVICE") or "auto"
    if wanted not in CHOICES:
        raise ConfigError(f"device {wanted!r}: choose one of {', '.join(CHOICES)}")
    if wanted != "sim":
        count, reason = probe(simulated=False)
        if count:
            names = instances(simulated=False)
            return Machine(False, len(names) or count, names)
        if wanted == "gpu":
            raise ConfigError(f"no GPU: {reason}; see `nvidia-smi`, or use --device sim")
    count = simulated_devices()
    simulated_memory()
    if any(os.environ.get(name) for name in _JUDGED_BY_DRIVER):
        found, reason = probe(simulated=True)
        if not found:
            raise ConfigError(f"no simulated device: {reason}", "unset it, or give it such a value")
    names = instances(simulated=True) if os.environ.get("GPUFERRY_SIM_MIG", "0") != "0" else ()
    return Machine(True, len(names) or count, names)


def instances(simulated: bool, limit: float = 60.0) -> tuple[str, ...]:
    """What CUDA_VISIBLE_DEVICES calls the devices, if a GPU is divided into instances (MIG); else nothing, as
    where NVML does not answer within `limit` seconds. CUDA shows a program one instance, whatever there is.
    """
    library = ("--library", paths.simulated_nvml()) if simulated else ()
    try:
        answer = subprocess.run(
            [sys.executable, "-m", f"{__package__}.instances", *library],
            env=server_environment(simulated),
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return ()
    return () if answer.returncode else tuple(json.loads(answer.stdout))


def simulated_devices() -> int:
    """How many devices GPUFERRY_SIM_DEVICES wants; 1 by default. Raises ConfigError."""
    text = os.environ.get("GPUFERRY_SIM_DEVICES", "1")
    if not (text.isdecimal() and 0 < int(text) <= SIMULATED_MOST):
        raise ConfigError(f"GPUFERRY_SIM_DEVICES={text!r}: a number from 1 to {SIMULATED_MOST} is wanted")
    return int(text)


def simulated_memory() -> int:
    """Bytes of each simulated device, which are host memory of who uses it. Raises ConfigError."""
    text = os.environ.get("GPUFERRY_SIM_MEMORY") or "8GiB"
    try:
        size = parse_size(text)
    except ValueError as error:
        raise ConfigError(f"GPUFERRY_SIM_MEMORY={text!r}: {error}") from None
    if not MEMORY_LEAST <= size <= MEMORY_MOST:
        raise ConfigError(f"GPUFERRY_SIM_MEMORY={text!r}: a size from 1MiB to 16TiB is wanted")
    return size
