"""What a few functions yield, chosen so that every attribute of the spec is seen at work.

After a change that is meant: GPUFERRY_UPDATE_GOLDEN=1 pytest tests/codegen/test_golden.py; read the diff.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

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


def without_lines(text: str) -> str:
    """Line numbers in spec files change with every edit above."""
    return re.sub(r"(\.yaml):\d+", r"\1", text) + "\n"


@pytest.mark.parametrize("function", FUNCTIONS)
def test_yield_is_as_reviewed(function: str) -> None:
    text = without_lines(show(load(), function))
    file = GOLDEN / f"{function}.txt"
    if UPDATE:
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


def test_every_golden_file_is_tested() -> None:
    assert sorted(file.stem for file in GOLDEN.glob("*.txt")) == sorted(FUNCTIONS)
