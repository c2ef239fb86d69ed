"""Where the driver libraries that gpuferry injects are. Standard library only."""

from __future__ import annotations

import os

_HERE = os.path.dirname(os.path.realpath(__file__))
_ROOT = os.path.dirname(_HERE)


class LibraryMissing(Exception):
    """None of the places where a library may be has it."""


def _first_existing(what: str, candidates: list[str]) -> str:
    for path in candidates:
        if os.path.exists(path):
            return path
    raise LibraryMissing(f"{what} is not built; looked for " + ", ".join(candidates))


def _candidates(build_name: str, package_path: str) -> list[str]:
    chosen = os.environ.get("GPUFERRY_BUILD")
    if chosen:  # a sanitizer build, say: then nothing else will do
        return [os.path.join(os.path.abspath(chosen), build_name, "libcuda.so.1")]
    return [
        os.path.join(_ROOT, package_path, "libcuda.so.1"),
        os.path.join(_ROOT, "build", "native", build_name, "libcuda.so.1"),
    ]


def guest_library() -> str:
    """The guest's libcuda.so.1: what LD_PRELOAD names."""
    return _first_existing("the guest library", _candidates("guest", os.path.join("guest", "lib")))


def simulated_driver() -> str:
    """The simulated device's libcuda.so.1."""
    return _first_existing("the simulated device", _candidates("sim", os.path.join("native", "sim")))
