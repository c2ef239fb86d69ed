"""What becomes of an API server that has no memory left."""

from __future__ import annotations

import signal
import subprocess
import sys

# By its mangled name: what each container of the engine calls when it grows.
OPERATOR_NEW = """
import ctypes
from gpuferry.apiserver import _core
new = ctypes.CDLL("libstdc++.so.6")._Znwm
new.argtypes, new.restype = [ctypes.c_size_t], ctypes.c_void_p
new(1 << 62)
"""


def test_it_ends_and_says_why() -> None:
    """An exception of Python needs the GIL. Whoever wanted to raise one held a session's lock, for which a
    thread waited that had the GIL: neither ended, nor did the session.
    """
    done = subprocess.run([sys.executable, "-c", OPERATOR_NEW], capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGABRT
    assert done.stderr == "gpuferry: this API server has no memory left, and ends\n"
