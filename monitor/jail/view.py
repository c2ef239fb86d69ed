"""What of this machine's files is seen in a jail: an interpreter, our packages, libraries; read-only."""

from __future__ import annotations

import importlib.util
import itertools
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from gpuferry.guest import paths

from . import nvidia

PACKAGES = ("apiserver", "migration", "specs", "native")
# Bound where they are; those that are symbolic links into /usr are made anew.
LIBRARIES = ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/etc/ld.so.cache")
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")
# One beside the machine's own may be faster (native/tls/DESIGN.md). Only these files of its folder: nobody
# knows what else is there.
ENCRYPTION = ("libcrypto.so.*", "libssl.so.*")
BUILT_IN = "build/tree"  # where a library that is not installed finds its compiler

# Of the monitor's environment; all else stays outside: any variable of an operator may hold a secret.
NAMES = {"LANG", "TZ", "LD_PRELOAD", "LD_LIBRARY_PATH", "GPUFERRY_LOG_LEVEL", "GPUFERRY_CORE"}
PREFIXES = ("LC_", "CUDA_", "NVIDIA_", "GPUFERRY_SIM_", "ASAN_", "UBSAN_", "TSAN_")


def environment(outside: Mapping[str, str]) -> dict[str, str]:
    """What of these variables an API server is given in a jail."""
    kept = {name: value for name, value in outside.items() if name in NAMES or name.startswith(PREFIXES)}
    return kept | {"HOME": "/tmp", "PYTHONDONTWRITEBYTECODE": "1"}


def files(outside: Mapping[str, str], simulated: bool) -> Iterator[str]:
    """Every file and folder that is seen, with the folders before what lies in them. Paths may be links."""
    yield from (path for path in LIBRARIES if os.path.lexists(path))
    yield from interpreter(sys.executable)
    if simulated and (other := outside.get("GPUFERRY_SIM_PYTHON", sys.executable)) != sys.executable:
        yield from interpreter(other)
    for name in PACKAGES:
        found = importlib.util.find_spec(f"gpuferry.{name}")
        assert found
        for folder in found.submodule_search_locations or ():
            yield os.path.realpath(folder)
    for folder in filter(os.path.isabs, outside.get("LD_LIBRARY_PATH", "").split(":")):
        for pattern in ENCRYPTION:
            yield from itertools.chain.from_iterable(map(chain, map(str, sorted(Path(folder).glob(pattern)))))
    for library in outside.get("LD_PRELOAD", "").replace(" ", ":").split(":"):
        yield from (chain(library) if "/" in library and os.path.exists(library) else [])
    if simulated:
        driver = Path(paths.simulated_driver())
        yield str(driver.parent)
        yield from (str(tree) for up in driver.parents if (tree := up / BUILT_IN).is_dir())
    else:
        yield from nvidia.files(outside)


def interpreter(executable: str) -> Iterator[str]:
    """The files of a Python, and of the one that its virtual environment was made of."""
    prefix = Path(executable).parent.parent
    settings = prefix / "pyvenv.cfg"
    if settings.exists():
        yield str(settings)
        for line in settings.read_text().splitlines():
            name, _, value = line.partition("=")
            if name.strip() == "home":
                yield from _installation(Path(value.strip()).parent)
    yield from _installation(prefix)
    yield from chain(executable)


def _installation(prefix: Path) -> Iterator[str]:
    yield from (str(folder) for name in ("lib", "lib64") if (folder := prefix / name).is_dir())
    for found in sorted((prefix / "bin").glob("python3*")):
        if found.name.removeprefix("python3").lstrip(".").isdigit() or found.name == "python3":
            yield from chain(str(found))


def chain(path: str) -> Iterator[str]:
    """The links that lead to a file, each as its own path, and the file itself."""
    while os.path.islink(path):
        yield path
        path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))
    yield path
