"""Kernels that want out, in a process that was started with GPUFERRY_SIM_CHECK=1: what each of them could."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from tests.helpers import paths

PRELUDE = """
import ctypes, sys
import numpy as np
from tests.ptx import driver
from tests.ptx.ptx import HEADER, entry, kernel, store, REGISTERS

host = ctypes.create_string_buffer(b"untouched" * 1000)  # of the process, beside which everything else lies
at = ctypes.addressof(host) & ~63
libc = ctypes.cast(ctypes.CDLL(None).system, ctypes.c_void_p).value


def attempt(body, *values, module="", fibers=False, stack=1024, **shape):
    body = ("    bar.sync 0;\\n" if fibers else "") + body
    with driver.own_context():
        driver.call("cuCtxSetLimit", 0, ctypes.c_size_t(stack))  # CU_LIMIT_STACK_SIZE
        try:
            text = body if body.startswith(".version") else kernel(body, pointers=3, module=module)
            out = driver.Buffer(np.zeros(64, np.uint64))
            driver.Module(text).launch("k", out, *[*values, 0, 0][:2], **shape)
        except driver.CudaError as error:
            print(error.status)
        else:
            print("ran", *out.read()[:4])
    assert bytes(host[:9]) == b"untouched"
"""


def process(code: str, check: str = "1", folder: Path | None = None, **settings: str) -> list[str]:
    result = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        cwd=paths.ROOT,
        env=os.environ | {"GPUFERRY_SIM_CHECK": check} | settings,
        timeout=240,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout.splitlines()


ILLEGAL = "700"
