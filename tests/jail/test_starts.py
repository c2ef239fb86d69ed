"""A start that is given up leaves nothing: of bubblewrap's two halves, each might wait for the other."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from gpuferry.monitor.jail import choose, command, nvidia, view
from gpuferry.monitor.jail.filter import program
from gpuferry.monitor.pool.process import Launch

from tests.helpers.paths import SIM_LIBRARY
from tests.monitor import harness

# As bubblewrap before it says which process it made: a child that waits to be told to go on.
HALVES = """#!/bin/sh
sleep 1000 &
echo $$ $! > {said}.draft
mv {said}.draft {said}
wait
"""


# As bubblewrap when it has said which process it made.
TELLS = """#!/bin/bash
echo $$ > {said}
echo '{{"child-pid": '$$'}}' >&"$4"
eval "exec $4>&-"
exec sleep 1000
"""


class Stay:
    """A jail that is a script."""

    uid, cgroup, left = 0, "", False

    def __init__(self, bwrap: Path) -> None:
        self.bwrap = str(bwrap)

    def enter(self, apart: bool) -> Stay:
        return self

    def arguments(self) -> list[str]:
        return []

    def confinement(self) -> str:
        return ""

    def takes_too_much(self) -> bool:
        return False

    def voice(self) -> int:
        return os.dup(2)

    def entered(self, pid: int) -> None:
        raise AssertionError("it never was")

    def leave(self) -> None:
        self.left = True


def test_one_that_cannot_be_limited_is_ended(tmp_path: Path) -> None:
    """Where the kernel was to count what it takes, and does not."""
    bwrap, said = tmp_path / "bwrap", tmp_path / "said"
    bwrap.write_text(TELLS.format(said=said))
    bwrap.chmod(0o700)

    class Uncounted(Stay):
        def entered(self, pid: int) -> None:
            raise OSError("no group for it")

    stay = Uncounted(bwrap)

    async def life() -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs, pytest.raises(OSError, match="no group"):
            await Launch(("none",), os.environ, 60.0, stay).start((), theirs, apart=True)

    asyncio.run(life())
    assert stay.left
    assert not harness.alive({int(said.read_text())})


def test_a_start_that_is_given_up_leaves_no_process(tmp_path: Path) -> None:
    bwrap, said = tmp_path / "bwrap", tmp_path / "said"
    bwrap.write_text(HALVES.format(said=said))
    bwrap.chmod(0o700)
    stay = Stay(bwrap)

    async def life() -> set[int]:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            starting = asyncio.ensure_future(
                Launch(("none",), os.environ, 60.0, stay).start((), theirs, apart=True)
            )
            while not said.exists():
                await asyncio.sleep(0.01)
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting
        return {int(word) for word in said.read_text().split()}

    halves = asyncio.run(life())
    assert len(halves) == 2
    harness.wait_until(lambda: not harness.alive(halves), "the end of both halves")
    assert stay.left


PARENT = """
import os, subprocess, sys
subprocess.Popen(sys.argv[2:], pass_fds=[int(sys.argv[1])])
os.write(1, b"!")
os.read(0, 1)
"""


def test_one_whose_monitor_is_killed_comes_to_its_end() -> None:
    """The half outside is held before it tells the other to go on: its pipe is full."""
    bwrap = shutil.which("bwrap")
    assert bwrap
    files = [path for path in (*view.LIBRARIES, "/usr/bin/true") if os.path.lexists(path)]
    rules = command.Rules(bwrap, os.geteuid() == 0, files, [], {}, 0, b"")
    mark = f"jail-{os.getpid()}"
    reading, writing = os.pipe()
    os.write(writing, bytes(fcntl.fcntl(writing, fcntl.F_GETPIPE_SZ)))
    jail = [bwrap, *command.arguments(rules, command.Cell(0)), "--info-fd", str(writing), "--"]
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(writing), *jail, "/usr/bin/true", mark],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=[writing],
    ) as parent:
        assert parent.stdout
        assert parent.stdout.read(1) == b"!"
        halves = harness.wait_until(lambda: len(found := named(mark) - {parent.pid}) == 2 and found, "both")
        parent.send_signal(signal.SIGKILL)
    os.close(writing)
    with open(reading, "rb") as pipe:
        assert b"child-pid" in pipe.read()
    harness.wait_until(lambda: not harness.alive(halves), "the end of both halves")


def named(mark: str) -> set[int]:
    """Processes with this among their arguments."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (process / "cmdline").read_bytes().split(b"\0"):
                found.add(int(process.name))
        except OSError:
            continue
    return found


@pytest.mark.skipif(os.geteuid() != 0, reason="gives the jail a user of its own")
def test_with_nvidias_driver_its_libraries_find_what_they_read() -> None:
    """There need be no such driver: a jail of this kind starts, and shows the machine's devices."""
    bwrap = shutil.which("bwrap")
    assert bwrap
    files = list(view.files(dict(os.environ), simulated=False))
    assert {path for path in nvidia.READS if os.path.exists(path)} <= set(files)
    assert "/sys/devices" in files
    assert "/sys/devices" not in view.files({}, simulated=True)
    rules = command.Rules(bwrap, True, files, view.DEVICES, {}, 1 << 30, program(True))
    assert choose.trial(rules, 200_000) == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="gives the jail a user of its own")
def test_whoever_lives_there_can_use_its_device_files() -> None:
    """NVIDIA's driver opens its own as that user, and finds no GPU where their folder cannot be entered."""
    bwrap = shutil.which("bwrap")
    assert bwrap
    files = list(view.files({}, simulated=True))
    rules = command.Rules(bwrap, True, files, view.DEVICES, {}, 1 << 30, program(False))
    opens = "import os; os.setresgid(7, 7, 7); os.setresuid(7, 7, 7); os.open('/dev/zero', os.O_RDWR)"
    jailed = [bwrap, *command.arguments(rules, command.Cell(7)), "--", sys.executable, "-ISc", opens]
    done = subprocess.run(jailed, env={}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_openssl_that_the_monitor_finds_is_shown_and_nothing_beside_it(tmp_path: Path) -> None:
    """A faster one than the machine's lies in a folder of its own, maybe behind a link."""
    (tmp_path / "libcrypto.so.3.5").touch()
    (tmp_path / "libcrypto.so.3").symlink_to("libcrypto.so.3.5")
    (tmp_path / "token").touch()
    shown = set(view.files({"LD_LIBRARY_PATH": f":{tmp_path}:relative"}, simulated=True))
    found = {path for path in shown if path.startswith(str(tmp_path))}
    assert found == {str(tmp_path / name) for name in ("libcrypto.so.3", "libcrypto.so.3.5")}


def test_the_folder_of_nvidias_driver_is_shown_wherever_it_is(tmp_path: Path) -> None:
    """A container's may lie in /usr/local/nvidia, and be found by LD_LIBRARY_PATH."""
    shutil.copy(SIM_LIBRARY, tmp_path / "libcuda.so.1")
    found = {"LD_LIBRARY_PATH": str(tmp_path), "PATH": os.environ["PATH"]}
    assert str(tmp_path) in view.files(found, simulated=False)
    assert str(tmp_path) not in view.files({"PATH": os.environ["PATH"]}, simulated=False)
