"""C sources of the project as a library for ctypes, to test them by themselves."""

from __future__ import annotations

import atexit
import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache, cached_property
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from codegen import header

from .paths import ROOT
from .toolkits import toolkit


@cache
def _folder() -> Path:
    folder = Path(mkdtemp(prefix="gpuferry-objects-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


class SharedObject:
    """Compiled from sources (paths from the root) in each test process that uses it, when it first does: most
    workers collect its tests and run none. `restypes` are what functions return, where that is no int.
    """

    def __init__(self, sources: Sequence[str], **restypes: Any) -> None:
        self._sources = sources
        self._restypes = restypes

    @cached_property
    def _library(self) -> ctypes.CDLL:
        output = _folder() / ("_".join(Path(source).stem for source in self._sources) + ".so")
        includes = [f"-I{ROOT / folder}" for folder in ("native", "native/_generated", "guest/src")]
        subprocess.run(
            ["gcc", "-std=gnu11", "-g", "-O1", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", "-pthread"]
            + [*includes, *header.folders(toolkit().include)]
            + [str(ROOT / source) for source in self._sources]
            + ["-o", str(output)],
            check=True,
        )
        library = ctypes.CDLL(str(output))
        for name, restype in self._restypes.items():
            getattr(library, name).restype = restype
        return library

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("_", "pytest")):  # pytest asks whatever it collects for marks of its own
            raise AttributeError(name)
        return getattr(self._library, name)
