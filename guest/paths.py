"""Where the driver libraries that gpuferry injects are. Standard library only."""

from __future__ import annotations

import os

_HERE = os.path.dirname(os.path.realpath(__file__))
_ROOT = os.path.dirname(_HERE)


NAMES = ("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1", "libnvidia-ml.so")  # what programs ask for
FRONT = "libgpuferry.so"


class LibraryMissing(Exception):
    """None of the places where a library may be has it."""


def _find(what: str, variable: str, package_path: str, build_name: str) -> str:
    chosen = os.environ.get(variable)  # another build, with a sanitizer, say: then nothing else will do
    candidates = (
        [chosen]
        if chosen
        else [
            os.path.join(_ROOT, package_path, "libcuda.so.1"),
            os.path.join(_ROOT, "build", "native", build_name, "libcuda.so.1"),
        ]
    )
    for path in candidates:
        if os.path.exists(path):
            return os.path.abspath(path)
    raise LibraryMissing(f"{what} is not built; looked for " + ", ".join(candidates))


def guest_library() -> str:
    """The guest's libcuda.so.1."""
    return _find("the guest library", "GPUFERRY_GUEST_LIBRARY", os.path.join("guest", "lib"), "guest")


def simulated_nvml() -> str:
    """The simulated device's libnvidia-ml.so.1, beside its driver."""
    return os.path.join(os.path.dirname(simulated_driver()), "libnvidia-ml.so.1")


def simulated_driver() -> str:
    """The simulated device's libcuda.so.1."""
    return _find("the simulated device", "GPUFERRY_SIM_LIBRARY", os.path.join("native", "sim"), "sim")


def front(driver: str) -> str:
    """What LD_PRELOAD names: the library that loads the driver beside it (native/driver_front.c)."""
    return os.path.join(os.path.dirname(driver), FRONT)


def tools() -> str:
    """The folder of the commands that programs find before the machine's own."""
    return os.path.join(_HERE, "tools")


def fallbacks() -> str:
    """The folder of the commands that programs find where the machine has none."""
    return os.path.join(_HERE, "fallbacks")


def is_ours(folder: str) -> bool:
    """Whether a folder of a search path is one that the launcher put there."""
    if not folder:
        return False
    if folder in (tools(), fallbacks()):
        return True
    for find in (guest_library, simulated_driver):
        try:
            if folder == os.path.dirname(find()):
                return True
        except LibraryMissing:
            pass
    return False
