"""The units, and what a monitor tells systemd."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpuferry.monitor.cli import service
from gpuferry.monitor.cli.checks.jail import GROUPS
from gpuferry.monitor.cli.errors import CliError
from gpuferry.monitor.service.notify import Notifier
from gpuferry.monitor.service.stopping import heed_signals

from tests.monitor import harness

UNITS = Path(__file__).parents[2] / "monitor" / "service" / "systemd"
COMMANDS = {"monitor": ["monitor"], "registry": ["registry"], "functions": ["functions", "serve"]}


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """What systemd listens on."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.settimeout(harness.DEADLINE)
        listening.bind(os.path.relpath(tmp_path / "notify"))
        yield listening


def told(manager: socket.socket) -> list[str]:
    return manager.recv(4096).decode().splitlines()


def test_a_monitor_tells_ready_alive_and_stopping(manager: socket.socket, tmp_path: Path) -> None:
    path = str(tmp_path / "notify")
    # Rarely enough that they never fill the socket, where the message that counts would be lost.
    with harness.monitor("--grace", "3", NOTIFY_SOCKET=path, WATCHDOG_USEC="4000000") as monitor:
        messages: list[list[str]] = []
        while len({lines[0] for lines in messages}) < 2:
            messages.append(told(manager))
        (status,) = [lines[1] for lines in messages if lines[0] == "READY=1"]
        assert ["WATCHDOG=1"] in messages
        assert monitor.tcp in status
        monitor.process.send_signal(signal.SIGTERM)
        while (lines := told(manager))[0] == "WATCHDOG=1":
            pass
        assert lines == ["STOPPING=1", "EXTEND_TIMEOUT_USEC=18000000"]


def test_api_servers_know_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "9", "WATCHDOG_PID": "1"}.items():
        monkeypatch.setenv(name, value)
    Notifier().tell("READY=1")  # nobody listens: no error
    assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} & os.environ.keys()


def test_the_watchdog_is_fed_where_no_descriptor_is_left(
    manager: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """systemd ended a working monitor, which had no descriptor left for its ping."""

    def fails(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setenv("NOTIFY_SOCKET", os.path.relpath(tmp_path / "notify"))
    notifier = Notifier()
    with monkeypatch.context() as exhausted:
        exhausted.setattr(socket, "socket", fails)
        notifier.tell("WATCHDOG=1")
    assert told(manager) == ["WATCHDOG=1"]


def test_the_abstract_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"gpuferry-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.settimeout(harness.DEADLINE)
        listening.bind("\0" + name)
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + name)
        Notifier().ready("fine")
        assert told(listening) == ["READY=1", "STATUS=fine"]


def test_a_socket_whose_path_has_an_at_sign(
    manager: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a folder named after a user of a domain. Nothing was told, and the service was taken to hang."""
    (tmp_path / "me@example").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NOTIFY_SOCKET", "me@example/notify")
    Notifier().tell("READY=1")
    assert told(manager) == ["READY=1"]


@pytest.mark.parametrize("name", COMMANDS)
def test_installed_units_verify(tmp_path: Path, name: str) -> None:
    completed = harness.gpuferry(str(tmp_path), "service", "install", name, "--root", str(tmp_path))
    assert completed.returncode == 0, completed.stderr
    unit = tmp_path / "etc/systemd/system" / f"gpuferry-{name}.service"
    command = " ".join([str(Path(sys.executable).with_name("gpuferry")), *COMMANDS[name]])
    assert f"ExecStart={command}\n" in unit.read_text()
    assert harness.gpuferry(str(tmp_path), "service", "show", name).stdout == unit.read_text()
    assert (tmp_path / "etc/sysusers.d/gpuferry.conf").exists()
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd-analyze (Debian package systemd)")
    verify = ["systemd-analyze", "verify", "--recursive-errors=no", str(unit)]
    verified = subprocess.run(verify, capture_output=True, text=True, timeout=harness.DEADLINE, check=False)
    assert (verified.returncode, verified.stderr) == (0, "")


@pytest.mark.parametrize(
    ("folder", "start"),
    [
        ("bin", "{}/bin/gpuferry monitor"),
        ("my 100% venv", '"{}/my 100%% venv/gpuferry" monitor'),
    ],
)
def test_a_unit_starts_the_command_that_was_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, start: str
) -> None:
    """It started one beside the interpreter, where pip puts none with Debian's, and split names at blanks."""
    command = tmp_path / folder / "gpuferry"
    command.parent.mkdir()
    command.touch()
    monkeypatch.setattr(sys, "argv", [str(command), "service", "install", "monitor"])
    service.install("monitor", root=tmp_path)
    unit = (tmp_path / "etc/systemd/system/gpuferry-monitor.service").read_text()
    assert f"ExecStart={start.format(tmp_path)}\n" in unit


def test_a_unit_whose_command_cannot_be_started_is_said_to_be_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(service, "_command", lambda: tmp_path / "gpuferry")
    with pytest.raises(CliError, match="there is no such command"):
        service.install("monitor", root=tmp_path)
    (tmp_path / "gpuferry").touch()
    monkeypatch.setattr(service, "HOMES", (str(tmp_path),))
    service.install("functions", root=tmp_path)
    assert "ProtectHome" not in capsys.readouterr().err
    service.install("monitor", root=tmp_path)
    assert "has ProtectHome=yes: the service cannot start it" in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_wrong_settings_are_not_tried_again(tmp_path: Path, name: str) -> None:
    (tmp_path / "wrong.toml").write_text("polcy = 1\n")
    completed = harness.gpuferry(str(tmp_path), *COMMANDS[name], "--config", str(tmp_path / "wrong.toml"))
    assert "wrong.toml:1: unknown key polcy" in completed.stderr
    unit = (UNITS / f"gpuferry-{name}.service").read_text()
    assert f"RestartPreventExitStatus={completed.returncode}\n" in unit


def test_a_monitors_unit_leaves_the_devices_alone() -> None:
    unit = (UNITS / "gpuferry-monitor.service").read_text()
    for line in unit.splitlines():
        assert not line.startswith(("PrivateDevices", "Device", "ProtectClock", "MemoryDenyWriteExecute")), (
            line
        )


def test_a_monitors_unit_lets_it_have_jails() -> None:
    """Who installed it as he was told to had none, and programs could do what the monitor can."""
    mounts = ("ProtectKernelTunables", "ProtectKernelLogs", "ProtectHostname", "ProtectProc", "ProcSubset")
    unit = (UNITS / "gpuferry-monitor.service").read_text()
    for line in unit.splitlines():
        assert not line.startswith(("RestrictNamespaces", "LockPersonality", "PrivateUsers", *mounts)), line


def test_a_monitors_unit_starts_again_while_its_sessions_live() -> None:
    """With Delegate=yes they would be in groups below its own, and systemd could start nothing in that. To
    whom wants groups doctor says that they end with their monitor.
    """
    unit = (UNITS / "gpuferry-monitor.service").read_text().splitlines()
    assert "KillMode=process" in unit
    assert not [line for line in unit if line.startswith("Delegate")]
    assert "Delegate=yes and KillMode=mixed" in GROUPS


@pytest.mark.parametrize("file", ["/proc/sys", "/proc/kmsg", "/proc/sys/kernel/hostname"])
def test_what_is_mounted_over_a_part_of_proc_leaves_no_jail_its_own(file: str) -> None:
    """For an ordinary user, and whatever the unit's options mount: this is why the unit has none of them."""
    if os.geteuid() != 0 or not shutil.which("bwrap"):
        pytest.skip("only root can mount and be another user; and bubblewrap (bwrap)")
    jail = "bwrap --unshare-user --unshare-pid --ro-bind / / --proc /proc true"
    user = f"setpriv --reuid 65534 --regid 65534 --clear-groups {jail}"
    statuses = [
        subprocess.run(
            ["unshare", "-m", "sh", "-c", f"{first}; {user}"], capture_output=True, timeout=60
        ).returncode
        for first in ("true", f"mount --bind {file} {file}")
    ]
    if statuses[0] != 0:
        pytest.skip("no user namespaces for ordinary users")
    assert statuses[1] != 0


def test_to_stop_functions_is_to_drain_them() -> None:
    """A signal for all processes would end the replicas before the server has told them to."""
    unit = (UNITS / "gpuferry-functions.service").read_text().splitlines()
    assert "KillMode=mixed" in unit
    assert "OOMPolicy=continue" in unit
    monitor = (UNITS / "gpuferry-monitor.service").read_text().splitlines()
    users = [[line for line in lines if line.startswith("User=")] for lines in (unit, monitor)]
    assert users == [["User=gpuferry-functions"], ["User=gpuferry"]]


@pytest.mark.parametrize(("before", "asked"), [(signal.SIG_IGN, 1), (signal.SIG_DFL, 2)])
def test_a_daemon_that_was_started_with_nohup_outlives_a_hangup(before: signal.Handlers, asked: int) -> None:
    async def main() -> int:
        heard: list[None] = []
        heed_signals(lambda: heard.append(None))
        for number in (signal.SIGHUP, signal.SIGTERM):
            signal.raise_signal(number)
        while not heard:
            await asyncio.sleep(0)
        return len(heard)

    handlers = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)}
    signal.signal(signal.SIGHUP, before)
    try:
        assert asyncio.run(main()) == asked
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
