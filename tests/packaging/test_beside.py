"""The wheel beside what an application has, and with the oldest and the newest packages of its extras."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers import programs, toolchain
from tests.packaging import requirements
from tests.packaging.installed import Installed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

# What a server of this gpuferry could not use.
OLD = ("protobuf==4.25.8", "click==7.1.2", "cryptography==42.0.8")


def vector_add() -> Path:
    program = programs.program("vector_add_driver")
    return toolchain.program(program.source, program.flags)


def test_a_guest_beside_an_application(
    wheel: Path, installed: Installed, tmp_path_factory: pytest.TempPathFactory
) -> None:
    guest = Installed(tmp_path_factory.mktemp("application"))
    guest.install(*OLD)
    before = guest.packages()
    guest.install(str(wheel))
    added = guest.packages() - before
    assert len(added) == 1, f"it brought other packages: {added}"
    assert before <= guest.packages(), "it changed a version"
    assert "gpuferry[cli]" in guest.run("gpuferry", "--help")
    with installed.monitor() as runtime:
        installed.wait_for_an_api_server()
        said = dict(line.split("=", 1) for line in (runtime / "endpoint").read_text().splitlines())
        found = ("--monitor", said["GPUFERRY_MONITOR"], "--token-file", said["GPUFERRY_TOKEN_FILE"])
        assert "failed" not in guest.run("gpuferry", "doctor", *found)
        remote = guest.run("gpuferry", "run", *found, "--", vector_add())
        listed = guest.run("gpuferry", "run", *found, "--", "ldconfig", "-p")
        assert "GPU 0: gpuferry" in guest.run("gpuferry", "run", *found, "--", "nvidia-smi", "-L")
    assert "CUDA_SUCCESS" in remote
    assert f"=> {guest.folder}/venv/lib/" in listed


@pytest.mark.parametrize("end", ["oldest", "newest"])
def test_a_server_with_the_ends_of_the_ranges(
    wheel: Path, end: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    server = Installed(tmp_path_factory.mktemp(end))
    exact = [f"{name}=={version}" for name, version in requirements.lowest().items()]
    server.install(f"gpuferry[server,sim,simulate] @ {wheel.as_uri()}", *(exact if end == "oldest" else []))
    with server.monitor():
        server.wait_for_an_api_server()
        report = server.run("gpuferry", "doctor")
        assert "failed" not in report
        remote = server.run("gpuferry", "run", "--", vector_add())
        assert "CUDA_SUCCESS" in remote
        assert remote == server.run("gpuferry", "sim", "--", vector_add())
        assert "IDLE" in server.run("gpuferry", "status").upper()
    assert "best-fit" in server.run("gpuferry", "simulate", "dgsf-light", "--plot", "plot.png")
