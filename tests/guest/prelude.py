"""Runs inside the process under test, before a test's own lines: the driver API by ctypes."""

# ruff: noqa: F401
import ctypes
import os
import struct
import threading
import time

cuda = ctypes.CDLL("libcuda.so.1")
u64, u32, byref = ctypes.c_uint64, ctypes.c_uint32, ctypes.byref


def cu(name, *args):
    """The CUresult of a call; integers go as 64 bits."""
    return getattr(cuda, name)(*[u64(a & (1 << 64) - 1) if isinstance(a, int) else a for a in args])


def ok(name, *args):
    result = cu(name, *args)
    assert result == 0, f"{name} -> {result}"


def made(name, *args):
    """What a call stores behind its first argument."""
    out = u64()
    ok(name, byref(out), *args)
    return out.value


def start():
    ok("cuInit", 0)
    ok("cuCtxSetCurrent", made("cuDevicePrimaryCtxRetain", 0))


STATS = [
    *("local", "async", "sync", "unsupported", "round_trips", "frames_sent", "frames_received", "writes"),
    *("bytes_sent", "bytes_received", "connect_ns", "waiting_ns", "writing_ns"),
]


def stats():
    out = (u64 * len(STATS))()
    cuda.gpuferry_stats(out)
    return dict(zip(STATS, out, strict=True))
