"""What a few functions and types yield, chosen so that every attribute of the spec is seen at work.

After a change that is meant: GPUFERRY_UPDATE_GOLDEN=1 pytest tests/codegen/test_golden.py; read the diff.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from codegen.generate import outputs
from codegen.load import load
from codegen.show import show

GOLDEN = Path(__file__).parent / "golden"
UPDATE = "GPUFERRY_UPDATE_GOLDEN" in os.environ

FUNCTIONS = [
    "cuCtxCreate",  # a base name: alias, a message of its own, others that go by it
    "cuDeviceGetName",  # local
    "cuKernelSetAttribute",  # changes an object for good
    "cuOccupancyAvailableDynamicSMemPerBlock",  # sync, with a reply
    "cuGetProcAddress",  # two interfaces of one name
    "cuGraphInstantiateWithFlags",  # unsupported, found under another name too
    "cuLaunchKernelEx",  # its stream is a member of a struct
    "cuMemAlloc",  # an old interface beside the new one
    "cuMemcpyDtoH_v2",  # no stream argument, but a twin
    "cuStreamCreateWithPriority",  # the guest makes the handle
    "cuStreamSynchronize",  # blocking
    "cuStreamWaitEvent",  # generated on both sides
    "sessionCopyIn",  # ours, with a payload
]

TYPES = [
    "CUmemAccessDesc",  # flat: a struct in a struct, a union, a device
    "CUlaunchConfig",  # an array behind a pointer, of which elements are left out; a handle
    "CUDA_RESOURCE_DESC",  # cases that are structs, addresses with a size
    "CUDA_KERNEL_NODE_PARAMS_v2",  # parameters of a kernel
    "CUjit_option",  # options and their values
]
NAMES = FUNCTIONS + TYPES


# Line numbers in spec files, hashes of emitters, places in the server's table of operations.
OTHERS = re.compile(r"(?<=\.yaml):\d+| \([0-9a-f]{12}\)|(?<=^    register\()\d+, ", re.MULTILINE)


def its_own(text: str) -> str:
    """Without what changes with every edit of something else."""
    return OTHERS.sub("", text) + "\n"


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    return outputs(load())


@pytest.mark.parametrize("name", NAMES)
def test_yield_is_as_reviewed(files: dict[str, str], name: str) -> None:
    text = its_own(show(load(), name, files))
    file = GOLDEN / f"{name}.txt"
    if UPDATE:
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


def test_every_golden_file_is_tested() -> None:
    assert sorted(file.stem for file in GOLDEN.glob("*.txt")) == sorted(NAMES)
