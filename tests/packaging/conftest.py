"""The wheel, built from the sources alone, and environments into which it is installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.helpers.paths import ROOT
from tests.packaging.installed import Installed

OURS = re.compile(r"_?gpuferry|__editable__")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """From what git knows: nothing generated, nothing built."""
    folder = tmp_path_factory.mktemp("sources")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    scripts = sysconfig.get_path("scripts")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", ".", "-q", "--no-deps", "--no-build-isolation", "-w", "wheel"],
        cwd=folder,
        env={**os.environ, "PATH": f"{scripts}:{os.environ['PATH']}", "CMAKE_BUILD_PARALLEL_LEVEL": "2"},
        timeout=800,
        check=True,
    )
    (found,) = (folder / "wheel").iterdir()
    return found


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Beside the wheel only what it depends on: this environment's packages without gpuferry."""
    folder = tmp_path_factory.mktemp("user")
    # The packages are links to this environment's, which a jail does not show.
    made = Installed(folder, {"GPUFERRY_MONITOR_JAIL": "off"})
    made.install("--no-deps", str(wheel))
    packages = folder / "packages"
    packages.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not OURS.match(entry.name):
            (packages / entry.name).symlink_to(entry)
    purelib = folder / "venv/lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    (purelib / "dependencies.pth").write_text(f"{packages}\n")
    return made
