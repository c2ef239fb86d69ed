"""CUDA toolkits from NVIDIA's wheels: the newest one, of the virtual environment, and pinned older ones.

Older ones are unpacked to build/toolkits/<release> with pip the first time a test asks for them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fcntl import LOCK_EX, flock
from importlib.util import find_spec
from pathlib import Path

from .paths import BUILD


class ToolkitMissing(Exception):
    """The wheels of a release cannot be had here."""


@dataclass(frozen=True)
class Toolkit:
    """One release of NVIDIA's CUDA runtime, with its compiler where the wheels carry one."""

    release: str
    include: Path
    lib: Path
    nvcc: Path | None

    @property
    def shared_runtime(self) -> Path:
        return next(self.lib.glob("libcudart.so.*"))

    @property
    def static_runtime(self) -> Path:
        return self.lib / "libcudart_static.a"


@dataclass(frozen=True)
class _Pinned:
    wheels: tuple[str, ...]
    root: str


# The 12.x nvcc wheel holds ptxas and libnvvm but no nvcc, so that release is a runtime only.
_PINNED = {
    "12.9": _Pinned(("nvidia-cuda-runtime-cu12==12.9.79",), "nvidia/cuda_runtime"),
    "13.0": _Pinned(
        (
            "nvidia-cuda-nvcc==13.0.88",
            "nvidia-nvvm==13.0.88",
            "nvidia-cuda-crt==13.0.88",
            "nvidia-cuda-runtime==13.0.96",
        ),
        "nvidia/cu13",
    ),
}
NEWEST = "newest"
WHEELS = "wheels"
RELEASES = (*_PINNED, NEWEST)


def toolkit(release: str = NEWEST) -> Toolkit:
    """The toolkit of `release`, fetched if need be; NEWEST is $GPUFERRY_NVCC's, or else what the virtual
    environment holds, as WHEELS always, which may have no nvcc."""
    chosen = os.environ.get("GPUFERRY_NVCC")
    if release == NEWEST and chosen:
        return _at(release, Path(chosen).resolve().parents[1])
    if release in (NEWEST, WHEELS):
        return _at(release, _installed("bin/nvcc" if release == NEWEST else "include/cuda.h"))
    pinned = _PINNED[release]
    return _at(release, _fetch(release, pinned) / pinned.root)


def _at(release: str, root: Path) -> Toolkit:
    nvcc = root / "bin" / "nvcc"
    lib = root / "lib" if (root / "lib").is_dir() else root / "lib64"
    return Toolkit(release, root / "include", lib, nvcc if nvcc.exists() else None)


def _installed(wanted: str) -> Path:
    spec = find_spec("nvidia")
    for place in spec.submodule_search_locations or () if spec else ():
        if (Path(place) / "cu13" / wanted).exists():
            return Path(place) / "cu13"
    raise FileNotFoundError(
        f"no {wanted}: install NVIDIA's wheels into the virtual environment, or set GPUFERRY_NVCC"
    )


def _fetch(release: str, pinned: _Pinned) -> Path:
    target = BUILD / "toolkits" / release
    with _locked(target.with_name(f"{release}.lock")):
        if not target.exists():
            partial = target.with_name(f"{release}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            _install(pinned.wheels, partial)
            partial.rename(target)
    return target


def _install(wheels: Sequence[str], target: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check"]
    folder = os.environ.get("GPUFERRY_WHEELS")  # on a machine without internet
    source = ["--no-index", "--find-links", folder] if folder else []
    done = subprocess.run([*pip, *source, "--target", str(target), *wheels], check=False)
    if done.returncode != 0:
        raise ToolkitMissing(f"pip cannot fetch {', '.join(wheels)}")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Two pytest workers must not fetch the same toolkit at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        flock(lock, LOCK_EX)
        yield
