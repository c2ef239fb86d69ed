"""Where the driver libraries that gpuferry injects are. Standard library only."""

from __future__ import annotations

import os

_HERE = os.path.dirname(os.path.realpath(__file__))
_ROOT = os.path.dirname(_HERE)


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
    """The guest's libcuda.so.1: what LD_PRELOAD names."""
    return _find("the guest library", "GPUFERRY_GUEST_LIBRARY", os.path.join("guest", "lib"), "guest")


def simulated_nvml() -> str:
    """The simulated device's libnvidia-ml.so.1, beside its driver."""
    return os.path.join(os.path.dirname(simulated_driver()), "libnvidia-ml.so.1")


def simulated_driver() -> str:
    """The simulated device's libcuda.so.1."""
    return _find("the simulated device", "GPUFERRY_SIM_LIBRARY", os.path.join("native", "sim"), "sim")
