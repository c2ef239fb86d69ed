"""GPUFERRY_SIM_VARIANCE: which choices a seed makes, and that they stay within what CUDA promises."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.differential.test_variance import FEW_SEEDS

from .test_process import output

# What a program can see of a seed's choices, in one process.
LOOK = """
import json
def number(call, kind, *arguments):
    found = kind(); assert call(ctypes.byref(found), *arguments) == 0; return found.value
cu.cuInit(0); c = ctypes.c_void_p(); cu.cuDevicePrimaryCtxRetain(ctypes.byref(c), 0); cu.cuCtxSetCurrent(c)
free, total = ctypes.c_size_t(), ctypes.c_size_t()
cu.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
at, byte = ctypes.c_uint64(), ctypes.c_ubyte()
assert cu.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(4096)) == 0
assert cu.cuMemcpyDtoH_v2(ctypes.byref(byte), at, ctypes.c_size_t(1)) == 0
ptx = b".version 7.0\\n.target sm_80\\n.address_size 64\\n.visible .global .u32 word;"
module, variable = ctypes.c_void_p(), ctypes.c_uint64()
assert cu.cuModuleLoadData(ctypes.byref(module), ptx) == 0
assert cu.cuModuleGetGlobal_v2(ctypes.byref(variable), None, module, b"word") == 0
def value():
    graph, made = ctypes.c_void_p(), ctypes.c_uint64()
    assert cu.cuGraphCreate(ctypes.byref(graph), 0) == 0
    assert cu.cuGraphConditionalHandleCreate(ctypes.byref(made), graph, None, 0, 0) == 0
    assert cu.cuGraphDestroy(graph) == 0
    return made.value
print(json.dumps({
    "condition": value() == value(),
    "multiprocessors": number(cu.cuDeviceGetAttribute, ctypes.c_int, 16, 0),
    "threads": number(cu.cuDeviceGetAttribute, ctypes.c_int, 39, 0),
    "peers": number(cu.cuDeviceCanAccessPeer, ctypes.c_int, 0, 1),
    "reserved": total.value - free.value,
    "allocated": at.value,
    "content": byte.value,
    "variable": variable.value,
    "loading": number(cu.cuModuleGetLoadingMode, ctypes.c_int),
}))
"""


def look(seed: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        output(LOOK, GPUFERRY_SIM_DEVICES="2", GPUFERRY_SIM_VARIANCE=str(seed))
    )
    return found


def test_no_seed_is_the_plain_device() -> None:
    plain = look(0)
    assert (plain["multiprocessors"], plain["threads"], plain["peers"]) == (108, 2048, 1)
    assert (plain["content"], plain["loading"], plain["reserved"]) == (0, 2, 0)


def test_a_seed_is_the_same_in_each_process() -> None:
    assert look(5) == look(5)


def test_the_few_seeds_choose_otherwise_in_everything() -> None:
    plain, first, second = (look(seed) for seed in (0, *FEW_SEEDS))
    same = [name for name in plain if first[name] == plain[name] and second[name] == plain[name]]
    assert not same


@pytest.mark.parametrize("seed", FEW_SEEDS)
def test_attributes_fit_together(seed: int) -> None:
    """Whatever is chosen is what a card may have."""
    found = look(seed)
    assert found["threads"] % 32 == 0
    assert found["reserved"] < (8 << 30) / 16
    assert found["allocated"] % 256 == 0
