"""C sources of the project as a library for ctypes, to test them by themselves."""

from __future__ import annotations

import atexit
import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from codegen import header

from .paths import ROOT
from .toolkits import toolkit


@cache
def _folder() -> Path:
    folder = Path(mkdtemp(prefix="gpuferry-objects-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def shared_object(sources: Sequence[str]) -> ctypes.CDLL:
    """Compiled once per test process; paths are relative to the root."""
    output = _folder() / ("_".join(Path(source).stem for source in sources) + ".so")
    includes = [f"-I{ROOT / folder}" for folder in ("native", "native/_generated", "guest/src")]
    subprocess.run(
        ["gcc", "-std=gnu11", "-g", "-O1", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", "-pthread"]
        + [*includes, *header.folders(toolkit().include)]
        + [str(ROOT / source) for source in sources]
        + ["-o", str(output)],
        check=True,
    )
    return ctypes.CDLL(str(output))
