"""A command that begins right behind `gpuferry monitor &` waits until that has published itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpuferry.guest import endpoint

# Publishes itself when it is told to, as a monitor does some time after it was started.
MONITOR = """
import os, sys
print("started", flush=True)
sys.stdin.readline()
file = os.path.join(os.environ["GPUFERRY_RUNTIME_DIR"], "endpoint")
os.close(os.open(file + ".new", os.O_CREAT | os.O_EXCL, 0o600))
with open(file + ".new", "w") as new:
    new.write("GPUFERRY_MONITOR=unix:/nowhere\\nGPUFERRY_TOKEN_FILE=/dev/null\\n")
os.rename(file + ".new", file)
print("published", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "runtime").mkdir(mode=0o700)
    monkeypatch.setenv("GPUFERRY_RUNTIME_DIR", str(tmp_path / "runtime"))
    for name in ("GPUFERRY_MONITOR", "GPUFERRY_TOKEN", "GPUFERRY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "runtime"


@pytest.fixture
def starting(folder: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    program = tmp_path / "gpuferry"
    program.write_text(MONITOR)
    command = [sys.executable, str(program), "monitor"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == "started\n"
        yield process
        process.kill()


def test_a_monitor_that_starts_is_waited_for(
    starting: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_again(seconds: float) -> None:
        assert starting.stdin
        assert starting.stdout
        print("publish", file=starting.stdin, flush=True)
        assert starting.stdout.readline() == "published\n"

    monkeypatch.setattr("gpuferry.guest.endpoint.time.sleep", look_again)
    assert endpoint.find().address == "unix:/nowhere"


def test_one_with_another_folder_is_not(
    starting: subprocess.Popen[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUFERRY_RUNTIME_DIR", str(folder.parent / "another"))
    monkeypatch.setattr("gpuferry.guest.endpoint.time.sleep", lambda seconds: pytest.fail("it waited"))
    with pytest.raises(endpoint.NoMonitor):
        endpoint.find()


def test_one_that_ends_is_not(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuferry.guest.endpoint.time.sleep", lambda seconds: pytest.fail("it waited"))
    with pytest.raises(endpoint.NoMonitor):
        endpoint.find()
