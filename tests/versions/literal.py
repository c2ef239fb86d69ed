"""Release 0.1 as it was, built from the last commit that spoke it: what function images were made with.

What is built lies in build/released, and is built once. The dependencies are this environment's own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

from tests.helpers.paths import BUILD, ROOT

from .once import made_once

COMMIT = "11ccbfd8f12fa075cd84eaefb6029ad8fcf90277"
SOURCES = BUILD / "released" / COMMIT[:7]
PACKAGES = ("apiserver", "guest", "migration", "monitor", "native", "specs")
TOOLS = ("cmake", "cython", "ninja")
SECONDS = 600.0


def sources() -> Path:
    """Its files. Skips the test where the history is not at hand, as in a shallow clone."""
    with made_once(SOURCES / "unpacked") as missing:
        if missing:
            command = ["git", "-C", str(ROOT), "archive", COMMIT]
            archive = subprocess.run(command, capture_output=True, check=False, timeout=SECONDS)
            if archive.returncode:
                pytest.skip(f"no history of release 0.1 here: {archive.stderr.decode().strip()}")
            with tarfile.open(fileobj=BytesIO(archive.stdout)) as files:
                files.extractall(SOURCES, filter="data")
    return SOURCES


def guest_library() -> Path:
    """Its libcuda.so.1, unoptimised."""
    root = sources()
    built = root / "build" / "guest-alone"
    with made_once(root / "guest-built") as missing:
        if missing:
            kind = f"-DPython_EXECUTABLE={sys.executable}", "-DCMAKE_BUILD_TYPE=Debug"
            _run("cmake", "-S", str(root / "native"), "-B", str(built), "-G", "Ninja", *kind)
            _run("ninja", "-C", str(built), "-j", "2", "guestcuda")
    return built / "guest" / "libcuda.so.1"


def server_python() -> Path:
    """The Python of an environment that has its packages; `-m gpuferry.monitor.cli.main` is its CLI."""
    root = sources()
    python = root / ".venv" / "bin" / "python"
    with made_once(root / "server-built") as missing:
        if missing:
            _run(sys.executable, "-m", "venv", "--clear", "--without-pip", str(root / ".venv"))
            (packages,) = (root / ".venv").glob("lib/*/site-packages")
            (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
            for tool in TOOLS:
                (root / ".venv" / "bin" / tool).symlink_to(Path(sys.executable).with_name(tool))
            (root / "build").mkdir(exist_ok=True)
            _run(".ci/build.sh", ".venv", cwd=root)
    return python


def _run(*command: str, cwd: Path = ROOT) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GPUFERRY_")}
    done = subprocess.run(
        command, cwd=cwd, env={**environment, "PATH": path}, capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
