"""Prints, as a JSON list, what CUDA_VISIBLE_DEVICES calls the devices of a machine on which a GPU is divided
into MIG instances: each instance, and each GPU that is whole. The list is empty where no GPU is divided.

A process of its own, as the sampler is: a driver in trouble makes NVML hang or crash.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import sys
from typing import Any

import pynvml


def _is_divided(gpu: Any) -> bool:
    with contextlib.suppress(pynvml.NVMLError):  # most models cannot be, and say so by an error
        current, _ = pynvml.nvmlDeviceGetMigMode(gpu)
        return bool(current == pynvml.NVML_DEVICE_MIG_ENABLE)
    return False


def _instances(gpu: Any) -> list[str]:
    found = []
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        with contextlib.suppress(pynvml.NVMLError_NotFound):  # numbers may have gaps
            instance = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index)
            found.append(pynvml.nvmlDeviceGetUUID(instance))
    return found


def names() -> list[str]:
    """All of them, in NVML's order. Raises pynvml.NVMLError."""
    gpus = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    if not any(map(_is_divided, gpus)):
        return []
    found: list[str] = []
    for gpu in gpus:
        found += _instances(gpu) if _is_divided(gpu) else [pynvml.nvmlDeviceGetUUID(gpu)]
    return found


def chosen(found: list[str], wanted: str | None) -> list[str]:
    """Those that `wanted` names, as CUDA_VISIBLE_DEVICES does: UUIDs or beginnings of them, up to the first
    that names none or several. None: all.
    """
    if wanted is None:
        return found
    kept = []
    for entry in wanted.split(","):
        named = [name for name in found if entry.strip() and name.lower().startswith(entry.strip().lower())]
        if len(named) != 1:
            break
        kept += named
    return kept


def main() -> int:
    """Print the names that may be used, as JSON. Return the exit status: 1 if NVML does not answer."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--library", help="the libnvidia-ml.so.1 to use; default: the driver's")
    library = options.parse_args().library
    try:
        if library:
            ctypes.CDLL(library)
        pynvml.nvmlInit()
        found = names()
    except (OSError, pynvml.NVMLError) as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(chosen(found, os.environ.get("CUDA_VISIBLE_DEVICES")) if found else found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
