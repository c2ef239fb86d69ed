"""A compiler of kernels has less than its API server: whoever takes it over computes and answers, no more."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
HELLO, REQUEST, ANSWER = 8, struct.Struct("<IIQ32s"), struct.Struct("<iIQ")


LOOKS = """
import os
from gpuferry.native.simdevice.compiler import confinement
confinement.confine()
os.listdir("/")
"""


IDLE = """
from gpuferry.native.simdevice.compiler import service
from gpuferry.native.simdevice.compiler.__main__ import main
service.IDLE_SECONDS = 0
main()
"""


# The thread that looks for the end of the program comes too late.
LEFT_ALONE = """
from gpuferry.native.simdevice.compiler import service
from gpuferry.native.simdevice.compiler.__main__ import main
service.Service._end_with_peer = lambda self: None
main()
"""


def take_over(free: bool) -> dict[str, str]:
    """What an attacker got in a compiler; `free`: one that gave nothing up."""
    ours, theirs = socket.socketpair()
    with ours, ours.makefile("rb") as answers:
        command = [sys.executable, str(HERE / "compiler.py"), str(int(free)), str(os.getpid())]
        with subprocess.Popen(command, stdin=theirs.fileno(), start_new_session=True):
            theirs.close()
            answers.read(HELLO)
            ours.sendall(REQUEST.pack(1, 80, 0, bytes(32)))
            status, _, size = ANSWER.unpack(answers.read(ANSWER.size))
            assert status == 0
            found: dict[str, str] = json.loads(answers.read(size))
            ours.shutdown(socket.SHUT_RDWR)
    return found


def got(found: dict[str, str]) -> set[str]:
    return {name for name, what in found.items() if what.startswith("got")}


def test_one_that_is_taken_over_reaches_nothing() -> None:
    found = take_over(False)
    assert len(found) == 15
    assert not got(found)


def test_without_confinement_the_same_attack_succeeds() -> None:
    """So the test above can fail."""
    found = take_over(True)
    assert got(found) >= {"read a file", "signal its client", "a socket", "a process", "a program", "code"}


def test_one_that_nobody_asks_ends_without_a_word() -> None:
    """After a while it gives its memory back; its filter lets it close what it has."""
    ours, theirs = socket.socketpair()
    with (
        ours,
        subprocess.Popen(
            [sys.executable, "-c", IDLE], stdin=theirs.fileno(), stderr=subprocess.PIPE
        ) as compiler,
    ):
        said = compiler.communicate(timeout=60)[1]
    theirs.close()
    assert (compiler.returncode, said) == (0, b"")


@pytest.mark.parametrize("folder", ["", "dump"])
def test_who_wants_to_see_what_is_compiled_gets_files(tmp_path: Path, folder: str) -> None:
    """GPUFERRY_SIM_DUMP is a person's, and leaves the compiler unconfined."""
    told = {"GPUFERRY_SIM_DUMP": str(tmp_path / folder)} if folder else {}
    done = subprocess.run(
        [sys.executable, "-c", LOOKS], env=os.environ | told, capture_output=True, text=True, check=False
    )
    assert (done.returncode == 0) == bool(folder), done.stderr


def test_one_whose_program_has_ended_says_nothing() -> None:
    """A program may end before its compiler is there: its standard error is its own."""
    ours, theirs = socket.socketpair()
    ours.close()
    with theirs:
        command = [sys.executable, "-c", LEFT_ALONE]
        ended = subprocess.run(command, stdin=theirs.fileno(), capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
