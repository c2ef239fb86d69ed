"""What the hardware has for sharing a GPU: MIG instances, and MPS."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping

from ...devices import choice
from ...pool.mps import PROGRAM
from .check import Check, python

MPS_FROM = (3, 5)  # compute capability
PERCENTAGES_FROM = (7, 0)

# A driver in trouble makes NVML hang or crash: it is asked in a process of its own.
_ASK = """
import json, pynvml
pynvml.nvmlInit()
found = []
for index in range(pynvml.nvmlDeviceGetCount()):
    gpu = pynvml.nvmlDeviceGetHandleByIndex(index)
    try:
        mig = "on" if pynvml.nvmlDeviceGetMigMode(gpu)[0] else "off"
    except pynvml.NVMLError:
        mig = "none"
    found.append([pynvml.nvmlDeviceGetCudaComputeCapability(gpu), mig])
print(json.dumps(found))
"""


def sharing(environment: Mapping[str, str] | None = None) -> Check:
    """Say of each GPU whether it can be divided (MIG), and shared by MPS."""
    name = "sharing by hardware"
    status, output = python(_ASK, dict(environment or choice.server_environment(simulated=False)))
    if status:
        step = "GPUFERRY_SIM_MIG divides simulated ones; MPS is for NVIDIA's alone"
        return Check(name, "note", "no GPU that NVML knows: neither MIG nor MPS", step)
    gpus = [(tuple(capability), mig) for capability, mig in json.loads(output)]
    detail = "; ".join(f"GPU {index}: {_words(*gpu)}" for index, gpu in enumerate(gpus))
    path = shutil.which(PROGRAM)
    if path is None and any(capability >= MPS_FROM for capability, _ in gpus):
        return Check(name, "note", detail, f"for --mps install {PROGRAM}, which is not in PATH")
    return Check(name, "ok", f"{detail}; {path}" if path else detail)


def _words(capability: tuple[int, ...], mig: str) -> str:
    divided = {"on": "MIG is on", "off": "MIG can be switched on", "none": "no MIG"}[mig]
    if capability >= PERCENTAGES_FROM:
        return f"{divided}, MPS with percentages"
    return f"{divided}, MPS without percentages" if capability >= MPS_FROM else f"{divided}, no MPS"
