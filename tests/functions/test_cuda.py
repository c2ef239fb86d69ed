"""A function that uses CUDA, natively and through a monitor; one that does not has no session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.monitor import Monitor, monitor
from tests.helpers.running import real_gpu

from .serving import serving

# Holds its bytes on the device between invocations: the context and the memory stay.
CUDA = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context, address = ctypes.c_void_p(), ctypes.c_uint64()

def check(status):
    if status: raise RuntimeError(f"error {status}")

def load():
    check(cuda.cuInit(0))
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    check(cuda.cuCtxSetCurrent(context))
    check(cuda.cuMemAlloc_v2(ctypes.byref(address), 1 << 20))
    check(cuda.cuMemsetD8_v2(address, 1, 1 << 20))

def handle(request):
    if not address.value: load()
    back = ctypes.create_string_buffer(1 << 20)
    check(cuda.cuMemcpyDtoH_v2(back, address, 1 << 20))
    check(cuda.cuMemsetD8_v2(address, (back.raw[0] + 1) % 256, 1 << 20))
    return str(back.raw[0]) if len(set(back.raw)) == 1 else "different"
"""


@pytest.mark.skipif(real_gpu(), reason="on the simulated device")
def test_natively_on_the_simulated_device() -> None:
    with serving("--driver", "sim") as server:
        server.deploy("cuda", CUDA, most=1)
        assert [server.invoke("cuda").body for _ in range(3)] == [b"1", b"2", b"3"]


@pytest.fixture(scope="module")
def gpu_server() -> Iterator[Monitor]:
    with monitor("--pool", "1") as running:
        yield running


@pytest.mark.system
def test_remotely_with_a_session_that_stays(gpu_server: Monitor) -> None:
    with serving(environment=gpu_server.settings()) as server:
        server.deploy("cuda", CUDA, most=1, gpu_memory=64 << 20)
        server.deploy("plain", most=1)
        assert server.invoke("plain", body="x").body == b"x"
        assert server.invoke("plain", "raise").error == "raised"  # no reason to ask a GPU server how it is
        assert gpu_server.status()["sessions"] == []
        assert [server.invoke("cuda").body for _ in range(3)] == [b"1", b"2", b"3"]
        assert server.invoke("plain", body="x").body == b"x"
        [session] = gpu_server.status()["sessions"]
        assert session["guest_pid"] == server.show("cuda")["replicas"][0]["pid"]
        assert session["function"] == "cuda"
        assert session["memory_quota"] == 64 << 20
