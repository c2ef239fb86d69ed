"""What it costs that kernels on the simulated device are held to their own memory."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.helpers.paths import ROOT

from .rows import Row, cost

# y = a * x + y: all that a kernel does is to read and write. And many steps for each element, as others do.
PROGRAM = """
import sys, time
import numpy as np
from tests.ptx import driver
from tests.ptx.ptx import kernel, load, store

COUNT = 1 << 22
saxpy = load("%f1", "%x0", type_="f32") + load("%f2", type_="f32") \
    + "    fma.rn.f32 %f2, %f1, 0f40000000, %f2;\\n" + store("%f2", type_="f32")
steps = "    mov.u32 %r11, 0;\\nagain:\\n    mad.lo.u32 %r10, %r10, 1664525, 1013904223;\\n"
steps += "    add.u32 %r11, %r11, 1;\\n    setp.lt.u32 %p0, %r11, 100;\\n    @%p0 bra again;\\n"
ordinary = load("%r10", "%x0") + steps + store("%r10")
for body, count in ((saxpy, COUNT), (ordinary, COUNT >> 4)):
    x, y = driver.Buffer(np.ones(count, np.float32)), driver.Buffer(np.ones(count, np.float32))
    module = driver.Module(kernel(body))
    times = []
    for _ in range(15):
        began = time.perf_counter()
        module.launch("k", x, y, grid=(count // 256,), block=(256,))
        times.append(time.perf_counter() - began)
    print(min(times))
"""
TURNS = 3  # one after the other, so that what else this machine does meets both


def rows() -> list[Row]:
    """Rows of a kernel that only reads and writes, and of one that computes."""
    turns = [(_times("1"), _times("0")) for _ in range(TURNS)]
    held, free = (map(min, zip(*times, strict=True)) for times in zip(*turns, strict=True))
    (memory, compute), (free_memory, free_compute) = held, free
    return [
        cost("checked_memory", memory * 1e3, free_memory * 1e3, "ms"),
        cost("checked_compute", compute * 1e3, free_compute * 1e3, "ms"),
    ]


def _times(check: str) -> list[float]:
    said = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | {"GPUFERRY_SIM_CHECK": check},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    return [float(line) for line in said.split()]
