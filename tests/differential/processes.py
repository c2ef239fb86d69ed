"""A program of several processes that share the memory of its lease, in the ways in which Python starts them.

It is run by test_processes.py with 512 MiB of each device, of which the second argument names one; each line
says what a process found.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

MIB = 1 << 20
OUT_OF_MEMORY = 2


class Cuda:
    """The driver's calls that this needs, in this process."""

    def __init__(self, device: int) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        for status in (
            self.library.cuInit(0),
            self.library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device),
            self.library.cuCtxSetCurrent(context),
        ):
            assert status == 0, status

    def allocate(self, size: int) -> int:
        """The address; or less than 0, the CUresult."""
        address = ctypes.c_uint64()
        status = self.library.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size))
        return -status if status else address.value

    def free(self, address: int) -> None:
        assert self.library.cuMemFree_v2(ctypes.c_uint64(address)) == 0
        assert self.library.cuCtxSynchronize() == 0

    def left(self) -> int:
        """MiB that are free."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        assert self.library.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
        assert total.value == 512 * MIB
        return free.value // MIB


def in_turn(device: int, commands: Any, answers: Any) -> None:
    """A child: allocates, frees and looks as it is told."""
    cuda = Cuda(device)
    held: list[int] = []
    for command, size in iter(commands.get, None):
        if command == "allocate":
            address = cuda.allocate(size * MIB)
            if address > 0:
                held.append(address)
            answers.put(min(address, 0))
        elif command == "free":
            cuda.free(held.pop())
            answers.put(0)
        else:
            answers.put(cuda.left())


def start(method: str, device: int) -> tuple[Any, Callable[..., int]]:
    """A child, and what asks it."""
    context: Any = multiprocessing.get_context(method)
    commands, answers = context.Queue(), context.Queue()
    child = context.Process(target=in_turn, args=(device, commands, answers), daemon=True)
    child.start()

    def ask(command: str, size: int = 0) -> int:
        commands.put((command, size))
        answer: int = answers.get(timeout=100)
        return answer

    def end() -> None:
        commands.put(None)
        child.join(100)
        assert child.exitcode == 0

    return end, ask


def main() -> None:
    device = int(sys.argv[2])
    cuda = Cuda(device)
    kept = cuda.allocate(256 * MIB)
    assert kept > 0
    end, ask = start(sys.argv[1], device)
    assert ask("left") == 256, "what the parent has is not the child's"
    assert ask("allocate", 192) == 0
    assert cuda.left() == 64, "what the child has is not the parent's"
    assert cuda.allocate(128 * MIB) == -OUT_OF_MEMORY
    assert ask("allocate", 128) == -OUT_OF_MEMORY
    cuda.free(kept)
    assert ask("allocate", 224) == 0, "what the parent gave back is for all"
    assert ask("free") == 0
    assert ask("free") == 0
    address = cuda.allocate(384 * MIB)
    assert address > 0, "what the child gave back is for all"
    end()
    cuda.free(address)
    assert cuda.allocate(480 * MIB) > 0, "what an ended process had is for all"
    # A program that clears its environment has no driver there; one that keeps it, belongs to its parent.
    folder = os.path.dirname(os.path.abspath(__file__))
    script = (
        f"import sys; sys.path[:0] = [{folder!r}]; import processes; print(processes.Cuda({device}).left())"
    )
    command, environment = [sys.executable, "-c", script], dict(os.environ)
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert found.stdout == "32\n", found
    print("as it should be")


if __name__ == "__main__":
    main()
