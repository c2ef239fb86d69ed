"""The wheel, built from the sources alone and installed where no checkout is: what a user gets from it."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import page, programs, toolchain
from tests.helpers.paths import ROOT
from tests.packaging.installed import Installed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def runtime(installed: Installed) -> Iterator[Path]:
    with installed.monitor() as folder:
        yield folder


def test_it_holds_no_sources_and_nothing_of_the_checkout(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    suffixes = {Path(name).suffix for name in names if name.startswith("gpuferry/")}
    assert suffixes <= {".py", ".pyi", ".so", ".1", ".service", ".conf", ".html", ".css", ".js", ".svg", ""}
    top = {name.split("/")[1] for name in names if name.startswith("gpuferry/")}
    assert not top & {"codegen", "tests", "bench"}


def test_version(installed: Installed) -> None:
    from gpuferry.specs._generated import wire

    assert wire.SPEC_HASH.hex()[:12] in installed.run("gpuferry", "version")


def test_doctor_and_a_program(installed: Installed, runtime: Path) -> None:
    installed.wait_for_an_api_server()
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
