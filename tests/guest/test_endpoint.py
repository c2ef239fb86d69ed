"""A command right behind `gpuferry monitor &`, or another daemon, waits until that has published itself."""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpuferry.guest import endpoint, launch
from gpuferry.monitor.cli import functions_client, page
from gpuferry.monitor.cli.cluster import Cluster
from gpuferry.monitor.cli.errors import CliError

# Publishes itself when it is told to, as a daemon does some time after it was started.
DAEMON = """
import os, sys
print("started", flush=True)
sys.stdin.readline()
room = {"functions": "functions", "registry": "registry"}.get(sys.argv[1], "")
file = os.path.join(os.environ["GPUFERRY_RUNTIME_DIR"], room, "endpoint")
os.makedirs(os.path.dirname(file), 0o700, exist_ok=True)
os.close(os.open(file + ".new", os.O_CREAT | os.O_EXCL, 0o600))
with open(file + ".new", "w") as new:
    for name in ("MONITOR", "REGISTRY", "FUNCTIONS", "HTTP"):
        new.write(f"GPUFERRY_{name}=unix:/nowhere\\n")
    for name in ("TOKEN_FILE", "FUNCTIONS_TOKEN_FILE", "PAGE_KEY_FILE"):
        new.write(f"GPUFERRY_{name}=/dev/null\\n")
os.rename(file + ".new", file)
print("published", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "runtime").mkdir(mode=0o700)
    monkeypatch.setenv("GPUFERRY_RUNTIME_DIR", str(tmp_path / "runtime"))
    for name in ("MONITOR", "TOKEN", "TOKEN_FILE", "FUNCTIONS", "FUNCTIONS_TOKEN_FILE", "REGISTRY"):
        monkeypatch.delenv(f"GPUFERRY_{name}", raising=False)
    return tmp_path / "runtime"


@pytest.fixture
def starting(folder: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    program = tmp_path / "gpuferry"
    program.write_text(DAEMON)
    command = [sys.executable, str(program), *getattr(request, "param", ["monitor"])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == "started\n"
        yield process
        process.kill()


@pytest.fixture
def publishes(starting: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It does when it was looked for once."""

    def look_again(seconds: float) -> None:
        assert starting.stdin
        assert starting.stdout
        print("publish", file=starting.stdin, flush=True)
        assert starting.stdout.readline() == "published\n"

    monkeypatch.setattr("gpuferry.guest.endpoint.time.sleep", look_again)


@pytest.mark.usefixtures("publishes")
def test_a_monitor_that_starts_is_waited_for() -> None:
    assert endpoint.find().address == "unix:/nowhere"


@pytest.mark.usefixtures("publishes")
def test_what_a_monitor_that_was_killed_has_left_is_not_taken_for_the_next_ones(folder: Path) -> None:
    """A command right behind its restart had another's token, or found nobody."""
    with subprocess.Popen(["true"]) as gone:
        pass
    (folder / "endpoint").touch(mode=0o600)
    left = f"GPUFERRY_MONITOR=unix:/before\nGPUFERRY_TOKEN_FILE=/dev/null\nGPUFERRY_MONITOR_PID={gone.pid}\n"
    (folder / "endpoint").write_text(left)
    assert endpoint.find().address == "unix:/nowhere"


def test_what_it_has_left_is_told_where_none_starts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may run where this process sees no process of it, as in another container."""
    monkeypatch.setattr("gpuferry.guest.endpoint.time.sleep", lambda seconds: pytest.fail("it waited"))
    (folder / "endpoint").touch(mode=0o600)
    (folder / "endpoint").write_text("GPUFERRY_MONITOR=unix:/x\nGPUFERRY_TOKEN=t\nGPUFERRY_MONITOR_PID=0\n")
    monkeypatch.setenv("GPUFERRY_TOKEN", "token")
    assert endpoint.find().address == "unix:/x"


@pytest.mark.usefixtures("publishes")
def test_the_link_to_its_page_waits_for_a_monitor(capsys: pytest.CaptureFixture[str]) -> None:
    page.show_page()
    assert "unix:/nowhere" in capsys.readouterr().out


@pytest.mark.usefixtures("publishes")
@pytest.mark.parametrize("starting", [["functions", "serve"]], indirect=True)
def test_a_function_server_that_starts_is_waited_for() -> None:
    assert functions_client.locate(None, None) == ("unix:/nowhere", "")


@pytest.mark.usefixtures("publishes")
@pytest.mark.parametrize("starting", [["registry"]], indirect=True)
def test_a_registry_that_starts_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUFERRY_CLUSTER_KEY", secrets.token_hex(32))
    assert Cluster(None, None, 1.0).where == "unix:/nowhere"


@pytest.mark.parametrize("starting", [["functions", "deploy"]], indirect=True)
def test_another_command_of_the_same_is_not(
    starting: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuferry.guest.endpoint.time.sleep", lambda seconds: pytest.fail("it waited"))
    with pytest.raises(CliError, match="no function server"):
        functions_client.locate(None, None)


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


def test_who_this_machines_own_believes_is_believed_there_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a setting a program beside a registry with TLS found its certificate to be nobody's."""
    monkeypatch.delenv("GPUFERRY_TLS_CA", raising=False)
    monkeypatch.setenv("GPUFERRY_TOKEN", "token")
    file = folder / "registry" / "endpoint"
    file.parent.mkdir(mode=0o700)
    file.touch(mode=0o600)
    file.write_text("GPUFERRY_MONITOR=tls://127.0.0.1:7700\nGPUFERRY_TLS_CA=/its/ca.crt\n")
    ours, another = endpoint.find(), endpoint.find("tls://gpu-a:7700")
    assert (ours.authority, another.authority) == ("/its/ca.crt", None)
    assert launch.guest_settings(ours)["GPUFERRY_TLS_CA"] == "/its/ca.crt"
    assert "GPUFERRY_TLS_CA" not in launch.guest_settings(another)
    monkeypatch.setenv("GPUFERRY_TLS_CA", "/mine/ca.crt")
    assert launch.guest_settings(ours)["GPUFERRY_TLS_CA"] == "/mine/ca.crt"
