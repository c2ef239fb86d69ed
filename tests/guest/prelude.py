"""Runs inside the process under test, before a test's own lines: the driver API by ctypes."""

# ruff: noqa: F401
import ctypes
import os
import struct
import threading
import time
from typing import Any

cuda = ctypes.CDLL("libcuda.so.1")
u64, u32, byref = ctypes.c_uint64, ctypes.c_uint32, ctypes.byref


def cu(name: str, *args: Any) -> int:
    """The CUresult of a call; integers go as 64 bits."""
    words = [u64(a & (1 << 64) - 1) if isinstance(a, int) else a for a in args]
    return int(getattr(cuda, name)(*words))


def ok(name: str, *args: Any) -> None:
    result = cu(name, *args)
    assert result == 0, f"{name} -> {result}"


def made(name: str, *args: Any) -> int:
    """What a call stores behind its first argument."""
    out = u64()
    ok(name, byref(out), *args)
    return out.value


def start() -> None:
    ok("cuInit", 0)
    ok("cuCtxSetCurrent", made("cuDevicePrimaryCtxRetain", 0))


STATS = [
    *("local", "async", "sync", "unsupported", "round_trips", "frames_sent", "frames_received", "writes"),
    *("bytes_sent", "bytes_received", "connect_ns", "waiting_ns", "writing_ns"),
]


def stats() -> dict[str, int]:
    out = (u64 * len(STATS))()
    cuda.gpuferry_stats(out)
    return dict(zip(STATS, out, strict=True))
