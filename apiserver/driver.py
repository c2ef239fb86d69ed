"""Where cuda.bindings finds the driver, without cuda.pathfinder, whose import takes a third of the time that
an API server needs to be ready, and runs ldconfig.

cuda.bindings asks one question of it: the handle of the driver library, which the dynamic linker answers.
Whatever else anybody asks, the real module does.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
import types
from typing import Any

PATHFINDER = "cuda.pathfinder"
DRIVER = "cuda"  # as pathfinder calls it
LIBRARY = "libcuda.so.1"


class Loaded:
    """What pathfinder says of a library that it loaded."""

    def __init__(self, handle: int) -> None:
        self._handle_uint = handle

    def __getattr__(self, name: str) -> Any:
        return getattr(_real().load_nvidia_dynamic_lib(DRIVER), name)


class Finder(types.ModuleType):
    """Stands in for the module until somebody wants more than the driver."""

    def load_nvidia_dynamic_lib(self, name: str) -> Any:
        """The driver, loaded, and its handle; any other library is loaded by the real module."""
        if name == DRIVER:
            try:
                return Loaded(ctypes.CDLL(LIBRARY, os.RTLD_NOW | os.RTLD_GLOBAL)._handle)
            except OSError:
                pass  # pathfinder says what is missing
        return _real().load_nvidia_dynamic_lib(name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # the import system's own questions
            raise AttributeError(name)
        return getattr(_real(), name)


def stand_in() -> None:
    """To be called before anything imports cuda.bindings."""
    sys.modules.setdefault(PATHFINDER, Finder(PATHFINDER))


def _real() -> types.ModuleType:
    if isinstance(sys.modules[PATHFINDER], Finder):
        del sys.modules[PATHFINDER]
    return importlib.import_module(PATHFINDER)
