"""Results that end a context: whoever hears one hears it again from every later call."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from codegen.load import load
from tests.guest.conftest import Guest
from tests.guest.fake_server import Answer, FakeServer, Frame

ENDING = {result.name for result in load().results if result.destroys}
ENDS = {
    "CUDA_ERROR_NVLINK_UNCORRECTABLE": 220,
    "CUDA_ERROR_CONTAINED": 226,
    "CUDA_ERROR_ILLEGAL_ADDRESS": 700,
    "CUDA_ERROR_TENSOR_MEMORY_LEAK": 721,
    "CUDA_ERROR_EXTERNAL_DEVICE": 911,
}
PASSING = {"CUDA_ERROR_OUT_OF_MEMORY": 2, "CUDA_ERROR_NOT_PERMITTED": 800}

LATER = """
start()
first, again = cu("cuCtxSynchronize"), cu("cuCtxSynchronize")
print(first, again, cu("cuEventCreate", byref(u64()), 0), cu("cuStreamQuery", 0))
"""


def once(result: int) -> Callable[[Frame], Answer]:
    """Says it to the first call that waits, and success to all others."""
    left = [result]
    return lambda frame: Answer(left.pop() if left and frame.name == "cuCtxSynchronize" else 0)


@pytest.mark.parametrize("name", ENDS)
def test_every_later_call_says_so(server: FakeServer, guest: Guest, name: str) -> None:
    assert name in ENDING
    server.answer = once(ENDS[name])
    assert guest(LATER).stdout == f"{ENDS[name]} {ENDS[name]} {ENDS[name]} {ENDS[name]}\n"


@pytest.mark.parametrize("name", PASSING)
def test_others_are_said_once(server: FakeServer, guest: Guest, name: str) -> None:
    assert name not in ENDING
    server.answer = once(PASSING[name])
    assert guest(LATER).stdout == f"{PASSING[name]} 0 0 0\n"
