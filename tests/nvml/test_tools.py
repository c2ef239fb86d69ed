"""gpustat and nvitop from PyPI, as they are."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.monitor import Monitor, monitor
from tests.nvml.test_nvml import environment, holding

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tools")
    venv.create(folder, symlinks=True)
    command = [sys.executable, "-m", "pip", "--python", str(folder / "bin/python"), "install", "-q"]
    subprocess.run([*command, "gpustat==1.1.1", "nvitop==1.7.2"], check=True)
    return folder / "bin"


@pytest.fixture(scope="module")
def server() -> Iterator[Monitor]:
    with monitor("--pool", "2", "--log-level", "warning") as one:
        yield one


def output(command: list[str], server: Monitor) -> str:
    done = subprocess.run(
        command, env=environment(server.settings()), capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_gpustat(tools: Path, server: Monitor) -> None:
    with holding(server.settings()) as one:
        (gpu,) = json.loads(output([str(tools / "gpustat"), "--json"], server))["gpus"]
        assert gpu["uuid"] == one["uuid"]
        assert gpu["memory.total"] == one["total"] >> 20
        assert [process["pid"] for process in gpu["processes"]] == [one["pid"]]


def test_nvitop(tools: Path, server: Monitor) -> None:
    with holding(server.settings()) as one:
        shown = output([str(tools / "nvitop"), "--once", "--no-unicode"], server)
        assert str(one["pid"]) in shown
        assert f"{one['used'] >> 20}" in shown
