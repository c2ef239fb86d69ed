"""Times the kernels of kernels.cu on the driver at hand, and their twins in C: a line `name seconds twin`
each.

Its arguments are the PTX of kernels.cu and the library made of twin.c.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.ptx import driver

ROUNDS = 40  # of a millisecond or two: what else the machine does takes longer than seven of them
BLOCK = 256


def shortest(run: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    """The least of the times that a call takes, in seconds."""
    run()
    times = []
    for _ in range(ROUNDS):
        began = clock()
        run()
        times.append(clock() - began)
    return min(times)


class Workload:
    """One kernel and its twin over the same arrays: `inputs`, then `outputs`, then numbers."""

    def __init__(
        self, name: str, inputs: list[np.ndarray], outputs: list[np.ndarray], grid: tuple[int, ...]
    ) -> None:
        self.name, self.inputs, self.outputs, self.grid = name, inputs, outputs, grid
        self.block: tuple[int, ...] = (BLOCK,)
        self.numbers: list[int] = []
        self.twin_numbers: list[int] = []

    def measure(self, module: driver.Module, twin: ctypes.CDLL) -> str:
        """Run the workload and its C twin, compare their results, and return the row of the table."""
        buffers = [driver.Buffer(array) for array in (*self.inputs, *self.outputs)]
        numbers = [np.int32(number) for number in self.numbers]
        seconds = shortest(
            lambda: module.launch(self.name, *buffers, *numbers, grid=self.grid, block=self.block)
        )
        ours = [buffer.read() for buffer in buffers[len(self.inputs) :]]
        theirs = [output.copy() for output in self.outputs]
        pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (*self.inputs, *theirs)]
        function = getattr(twin, self.name)
        floor = shortest(lambda: function(*pointers, *self.twin_numbers))
        for mine, other in zip(ours, theirs, strict=True):
            if self.name == "reduce":
                mine, other = mine.sum(keepdims=True), other[:1]
            assert np.allclose(mine, other, rtol=1e-3), self.name
        return f"{self.name} {seconds} {floor}"


def workloads() -> list[Workload]:
    """The textbook kernels, at sizes that take some milliseconds."""
    random = np.random.default_rng(7)

    def floats(*shape: int) -> np.ndarray:
        return random.random(shape, np.float32)

    side, many = 384, 1 << 20
    found = []
    matmul = Workload(
        "matmul", [floats(side, side), floats(side, side)], [floats(side, side)], (side // 16,) * 2
    )
    matmul.block, matmul.numbers, matmul.twin_numbers = (16, 16), [side], [side]
    found.append(matmul)
    reduction = Workload("reduce", [floats(4 * many)], [np.zeros(64, np.float32)], (64,))
    reduction.numbers = reduction.twin_numbers = [4 * many]
    found.append(reduction)
    ints = random.integers(0, 99, many, dtype=np.int32)
    scan = Workload("scan", [ints], [np.zeros_like(ints)], (many // BLOCK,))
    scan.twin_numbers = [many]
    found.append(scan)
    stencil = Workload("stencil", [floats(many + 8)], [np.zeros(many, np.float32)], (many // BLOCK,))
    stencil.numbers = stencil.twin_numbers = [many]
    found.append(stencil)
    points = many // 4
    kmeans = Workload(
        "kmeans", [floats(points), floats(points), floats(32)], [np.zeros(points, np.int32)], (64,)
    )
    kmeans.inputs.append(kmeans.outputs[0])
    kmeans.outputs = [np.zeros(48, np.float32)]
    kmeans.numbers = kmeans.twin_numbers = [points]
    found.append(kmeans)
    return found


def grid_sync(module: driver.Module) -> list[str]:
    """A grid of 108 blocks of 1024 threads that waits for itself once; and one of sixteen times as many
    blocks, which are small, since a device has room for so many threads at once."""
    blocks, many = 108, 16 * 108
    out = driver.Buffer(np.zeros(many, np.int32))

    def seconds(blocks: int, threads: int, name: str = "grid_sync") -> float:
        def run() -> None:
            module.launch(name, out, grid=(blocks,), block=(threads,), cooperative=name == "grid_sync")

        return shortest(run, time.perf_counter)

    found = {
        "grid_sync": (seconds(blocks, 1024), seconds(blocks, 1024, "grid_alone")),
        "grid_sync_many": (seconds(many, 64), 16 * seconds(blocks, 64)),
    }
    assert out.read().all()
    return [f"{name} {own} {floor}" for name, (own, floor) in found.items()]


def main() -> None:
    module = driver.Module(Path(sys.argv[1]).read_bytes() + b"\0")
    twin = ctypes.CDLL(sys.argv[2])
    for workload in workloads():
        print(workload.measure(module, twin), flush=True)
    print(*grid_sync(module), sep="\n")


if __name__ == "__main__":
    main()
