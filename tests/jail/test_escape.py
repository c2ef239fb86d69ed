"""An attacker with full control of an API server (takeover.c) tries everything (payload.py)."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.adversity.sessions import Bystander, open_session, session
from tests.monitor import harness

HERE = Path(__file__).parent
MEMORY = 1 << 30  # less than a thousand processes would fit
DEVICE = 256 << 20
SECRET = "what the operator has in the environment"
# What even a process without any rights gets, and what only the monitor's own user does.
HARMLESS = {"a process outside its group that stays"}  # it is gone with its session
root = pytest.mark.skipif(os.geteuid() != 0, reason="users of their own need root")


class Attack:
    """A monitor whose API servers can be taken over, a victim's session, and the attacker's."""

    def __init__(self, folder: Path, stack: ExitStack, jailed: bool) -> None:
        self.folder = folder
        self.jailed = jailed
        self.library = folder / "libtakeover.so"
        subprocess.run(
            [
                "gcc",
                "-shared",
                "-fPIC",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-o",
                self.library,
                HERE / "takeover.c",
            ],
            check=True,
        )
        self.code = self.library.stat().st_size
        (folder / "beside").write_text("of the operator, and in the library's folder")
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        abstract.bind(f"\0{folder}")
        abstract.listen()
        options = ["--pool", "2", "--jail", "on" if jailed else "off", "--orphan-grace", "60"]
        options += ["--jail-memory", str(MEMORY)]
        self.monitor = stack.enter_context(
            harness.monitor(
                *options,
                server=None,
                LD_PRELOAD=str(self.library),
                GPUFERRY_SIM_MEMORY=str(DEVICE),
                OPERATORS_SECRET=SECRET,
            )
        )
        self.monitor.wait_idle(2)
        self.victim = stack.enter_context(session(self.monitor, program=b"victim"))
        self.bystander = Bystander(self.victim)
        self.attacker = open_session(self.monitor, program=b"attacker")
        stack.callback(self.attacker.socket.close)
        self.pid, self.neighbour = self.pids()
        targets = json.dumps(self.targets(abstract.getsockname()))
        self.does((HERE / "payload.py").read_text().replace("@TARGETS@", targets))

    def does(self, payload: str) -> None:
        """Make this what the attacker runs. Of the library's folder it sees but the library."""
        with self.library.open("r+b") as file:
            file.truncate(self.code)
            file.seek(self.code)
            file.write(b"PAYLOAD\n" + payload.encode())

    def pids(self) -> tuple[int, int]:
        by_program = {one.program: int(one.server_pid) for one in self.monitor.status().sessions}
        return by_program["attacker"], by_program["victim"]

    def targets(self, abstract: bytes) -> dict[str, Any]:
        runtime, home = Path(self.monitor.runtime), os.path.expanduser("~")
        return {
            "jailed": self.jailed,
            "mark": str(self.folder),
            "much": 4 * MEMORY,
            "monitor": self.monitor.process.pid,
            "neighbour": self.neighbour,
            "tcp": self.monitor.tcp,
            "files": [
                "/etc/shadow",
                "/etc/passwd",
                f"{home}/.bashrc",
                f"{home}/.cache",
                "/proc/1/root/etc/passwd",
                str(runtime / "token"),
                str(runtime / "ledger"),
                str(runtime / "back"),
                f"{runtime}-state",
                str(HERE),
                str(self.folder / "beside"),
                "/usr/bin/bash",
                "/sys/kernel",
                "/dev/mem",
                "/dev/kmsg",
            ],
            "folders": [str(runtime), "/", "/usr/lib", "/dev", "/var/tmp"],
            "sockets": [
                str(runtime / "session.sock"),
                str(runtime / "control.sock"),
                "@" + abstract[1:].decode(),
            ],
        }

    def run(self, pid: int = 0) -> dict[str, str]:
        """What the attacker found in this process; 0: in the API server of its session."""
        before = len(self._said())
        os.kill(pid or self.pid, signal.SIGUSR2)
        said = harness.wait_until(
            lambda: self._said()[before:], f"the attacker's word; log:\n{self.monitor.log.read_text()}"
        )
        found: dict[str, str] = json.loads(said[0])
        return found

    def _said(self) -> list[str]:
        whole, _, _ = self.monitor.log.read_text().rpartition("\n")  # the last line may just be written
        lines = whole.splitlines()
        return [line.removeprefix("ESCAPE ") for line in lines if line.startswith("ESCAPE ")]


@contextmanager
def attack(folder: Path, jailed: bool) -> Iterator[Attack]:
    for each in (folder, *folder.parents):  # others than root see what lies there
        if each.stat().st_uid == os.getuid() and str(each).startswith(tempfile.gettempdir() + "/"):
            each.chmod(0o755)
    with ExitStack() as stack:
        yield Attack(folder, stack, jailed)


def got(found: dict[str, str]) -> set[str]:
    return {name for name, what in found.items() if name != "descriptors" and what.startswith("got ")}


def left(folder: Path) -> list[int]:
    """Processes that the attacker started, and that are there yet."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder).encode() in (process / "cmdline").read_bytes():
                found.append(int(process.name))
        except OSError:
            continue
    return found


@pytest.fixture(scope="module")
def jailed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Attack, dict[str, str]]]:
    folder = tmp_path_factory.mktemp("takeover")
    with attack(folder, True) as running:
        yield running, running.run()


def test_nothing_is_within_reach(jailed: tuple[Attack, dict[str, str]]) -> None:
    """No file of the operator, no socket, no other process, no right, no more than its share."""
    running, found = jailed
    reached = {name: found[name] for name in got(found) - HARMLESS}
    assert not reached
    assert len(found) > 50
    running.bystander.is_fine()


def test_what_it_sees_of_its_root_is_next_to_nothing(jailed: tuple[Attack, dict[str, str]]) -> None:
    running, found = jailed
    inside = Path(f"/proc/{running.pid}/root")
    assert {entry.name for entry in inside.iterdir()} <= {
        *("usr", "lib", "lib64", "etc", "proc", "dev", "tmp", "figures", "cache"),
        *(Path(path).parts[1] for path in (os.path.realpath(HERE), os.path.realpath(sys.base_prefix))),
        *(Path(path).parts[1] for path in (str(running.folder), sys.prefix)),
    }
    assert {entry.name for entry in (inside / "etc").iterdir()} == {"ld.so.cache"}
    assert {entry.name for entry in (inside / "dev").iterdir()} == {"null", "zero", "urandom"}
    assert set(found["descriptors"]) <= {"/dev/null", "/dev/urandom"}  # and not the monitor's log


@root
def test_each_has_a_user_of_its_own(jailed: tuple[Attack, dict[str, str]]) -> None:
    running, _ = jailed
    users = {os.stat(f"/proc/{pid}").st_uid for pid in (running.pid, running.neighbour)}
    assert len(users) == 2
    assert 0 not in users


@pytest.mark.system
def test_a_keeper_is_in_jail_too(jailed: tuple[Attack, dict[str, str]], tmp_path: Path) -> None:
    """It has a jail of its own. A compiler is in its API server's, with less (test_compiler.py)."""
    running, _ = jailed
    (number,) = [one.id for one in running.monitor.status().sessions if one.program == "victim"]
    assert running.monitor.run("session", "suspend", str(number), str(tmp_path / "file")).returncode == 0
    (keeper,) = [one.server_pid for one in running.monitor.status().sessions if one.program == "victim"]
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{keeper}/status").read_text().splitlines())
    assert (status["Seccomp"], status["NoNewPrivs"], int(status["CapBnd"], 16)) == ("2", "1", 0)
    assert not (Path(f"/proc/{keeper}/root") / str(running.monitor.runtime).lstrip("/")).exists()
    assert os.readlink(f"/proc/{keeper}/ns/net") != os.readlink("/proc/self/ns/net")
    found = running.run(keeper)
    assert not {name: found[name] for name in got(found) - HARMLESS}
    assert len(found) > 50
    running.monitor.run("session", "resume", str(tmp_path / "file"))
    running.bystander.is_fine()


@pytest.mark.system
def test_the_end_of_its_session_leaves_nothing(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("takeover")
    with attack(folder, True) as running:
        assert "a process outside its group that stays" in got(running.run())
        assert left(folder)
        cgroups = cgroups_of(running.pid)
        namespace = namespace_of(running.pid)
        assert namespace
        # While it is open its number is nobody else's: the next jail of any test could have it.
        held = os.open(f"/proc/{running.pid}/ns/pid", os.O_RDONLY)
        running.attacker.socket.close()
        os.kill(running.pid, signal.SIGKILL)  # or the monitor does, if it is not clean
        harness.wait_until(lambda: not left(folder), "the end of what it left")
        harness.wait_until(lambda: not any(group.exists() for group in cgroups), "the end of its cgroup")
        # One that its parent has not reaped yet has a namespace, and no command line or cgroup.
        harness.wait_until(lambda: namespace not in namespaces(), "the end of its namespace")
        os.close(held)
        running.bystander.is_fine()
    assert str(folder) not in Path("/proc/mounts").read_text()


def namespace_of(pid: int) -> str:
    """Of its process ids; empty: it is gone, or nobody's to look at."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


def namespaces() -> set[str]:
    """Of the process ids of all processes."""
    return {namespace_of(int(entry.name)) for entry in Path("/proc").glob("[0-9]*")}


def cgroups_of(pid: int) -> list[Path]:
    found = []
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "/gpuferry/" in path:
            found.append(Path("/sys/fs/cgroup", controllers, path.lstrip("/")))
    return found


@root
def test_without_a_jail_the_same_attack_succeeds(tmp_path: Path) -> None:
    """So the tests above can fail."""
    with attack(tmp_path, False) as running:
        reached = got(running.run())
        running.attacker.socket.close()
    for pid in left(tmp_path):
        os.kill(pid, signal.SIGKILL)
    assert reached >= {
        "read /etc/shadow",
        f"read {running.monitor.runtime}/token",
        "environment",
        "see processes",
        "signal the monitor",
        "signal the neighbour",
        "ptrace the monitor",
        "read the monitor's memory",
        "socket AF_INET",
        "socket AF_UNIX",
        "connect to the monitor by TCP",
        f"connect {running.monitor.runtime}/session.sock",
        "be root",
        "groups of the monitor",
        "user namespace",
        "write /",
    }


def test_one_that_takes_all_memory_is_ended_alone(tmp_path: Path) -> None:
    """Where there is a cgroup, memory that no limit of a process counts is counted too."""
    with attack(tmp_path, True) as running:
        if not cgroups_of(running.pid):
            pytest.skip("no cgroup can be made here")
        running.does(
            "import os\nfd = os.memfd_create('hog')\nwhile True:\n    os.write(fd, bytes(1 << 20))\n"
        )
        os.kill(running.pid, signal.SIGUSR2)
        harness.wait_until(lambda: not harness.alive({running.pid}), "its end")
        running.bystander.is_fine()


def test_one_that_claims_anothers_session_is_ended_alone(tmp_path: Path) -> None:
    with attack(tmp_path, True) as running:
        (number,) = [one.id for one in running.monitor.status().sessions if one.program == "victim"]
        running.does(CLAIM.format(number=number))
        os.kill(running.pid, signal.SIGUSR2)
        harness.wait_until(lambda: not harness.alive({running.pid}), "its end")
        text = f"it spoke of session {number}, which it was never given"
        running.monitor.wait_for_log(text)
        running.bystander.is_fine()


CLAIM = """
import contextlib, os, socket
from gpuferry.specs._generated import node_pb2
ended = node_pb2.SessionEnded(session={number}, reason="?", clean=True)
for fd in map(int, os.listdir("/proc/self/fd")):
    try:
        each = socket.socket(fileno=os.dup(fd))
    except OSError:
        continue
    with contextlib.suppress(OSError):
        if each.type == socket.SOCK_SEQPACKET:
            each.send(node_pb2.FromServer(ended=ended).SerializeToString())
"""
