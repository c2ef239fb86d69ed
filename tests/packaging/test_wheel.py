"""The wheel, built from the sources alone and installed where no checkout is: what a user gets from it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.helpers import page, programs, toolchain
from tests.helpers.paths import ROOT
from tests.monitor.harness import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

OURS = re.compile(r"_?gpuferry|__editable__")


@dataclass(frozen=True)
class Installed:
    """A virtual environment with the wheel in it, and a home of its own."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("GPUFERRY_", "PYTHON"))
        }
        return kept | {
            "PATH": f"{self.folder / 'venv/bin'}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "GPUFERRY_DEVICE": "sim",
            "GPUFERRY_SIM_DEVICES": "2",
            "GPUFERRY_RUNTIME_DIR": str(self.folder / "run"),
            "NO_COLOR": "1",
        }

    def run(self, *words: str | Path, status: int = 0) -> str:
        done = subprocess.run(
            [str(word) for word in words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
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


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Beside the wheel only what it depends on: this environment's packages without gpuferry."""
    folder = tmp_path_factory.mktemp("user")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "venv"], cwd=folder, check=True)
    python = folder / "venv/bin/python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps", str(wheel)]
    subprocess.run(install, check=True)
    packages = folder / "packages"
    packages.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not OURS.match(entry.name):
            (packages / entry.name).symlink_to(entry)
    purelib = folder / "venv/lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    (purelib / "dependencies.pth").write_text(f"{packages}\n")
    return Installed(folder)


@pytest.fixture(scope="module")
def runtime(installed: Installed) -> Iterator[Path]:
    """A running monitor: the address of its page."""
    command = ["gpuferry", "monitor", "--pool", "1", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    log = installed.folder / "log"
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [str(installed.folder / "venv/bin/gpuferry"), *command[1:]],
            cwd=installed.folder,
            env=installed.environment,
            stderr=stderr,
        )
    endpoint = installed.folder / "run/endpoint"
    try:
        wait_until(endpoint.exists, f"the monitor's endpoint; log: {log.read_text()}")
        yield endpoint.parent
    finally:
        process.terminate()
        assert process.wait(60) == 0, log.read_text()


def test_it_holds_no_sources_and_nothing_of_the_checkout(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    suffixes = {Path(name).suffix for name in names if name.startswith("gpuferry/")}
    assert suffixes <= {".py", ".pyi", ".so", ".1", ".service", ".conf", ".html", ".css", ".js", ".svg"}
    top = {name.split("/")[1] for name in names if name.startswith("gpuferry/")}
    assert not top & {"codegen", "tests", "bench"}


def test_version(installed: Installed) -> None:
    from gpuferry.specs._generated import wire

    assert wire.SPEC_HASH.hex()[:12] in installed.run("gpuferry", "version")


def test_doctor_and_a_program(installed: Installed, runtime: Path) -> None:
    def whole() -> bool:
        return '"pool_idle": 1' in installed.run("gpuferry", "status", "--json")

    wait_until(whole, "an idle API server")
    report = installed.run("gpuferry", "doctor")
    assert "failed" not in report
    assert str(ROOT) not in report, "it found the checkout"
    vector_add = programs.program("vector_add_driver")
    program = toolchain.program(vector_add.source, vector_add.flags)
    remote = installed.run("gpuferry", "run", "--", program)
    assert "CUDA_SUCCESS" in remote
    assert remote == installed.run("gpuferry", "sim", "--", program)


def test_the_page_has_all_its_parts(installed: Installed, runtime: Path) -> None:
    def get(path: str) -> str:
        return page.fetch(runtime, path)

    parts = [part for place in ("/", "/login") for part in re.findall(r'(?:src|href)="(/[^"]*)"', get(place))]
    assert any(part.endswith(".js") for part in parts)
    modules = [
        f"/static/{name}"
        for part in parts
        if part.endswith(".js")
        for name in re.findall(r'from "\./([^"]+)"', get(part))
    ]
    assert modules
    for part in parts + modules:
        assert get(part)
    assert "gpuferry_build_info" in get("/metrics")


def test_the_simulator(installed: Installed) -> None:
    assert "best-fit" in installed.run("gpuferry", "simulate", "dgsf-light", "--plot", "plot.png")
    assert (installed.folder / "plot.png").stat().st_size > 0


def test_the_units_name_the_installed_command(installed: Installed) -> None:
    for unit in ("monitor", "registry"):
        assert f"ExecStart={installed.folder}/venv/bin/gpuferry {unit}" in installed.run(
            "gpuferry", "service", "show", unit
        )
