"""Calls of other threads, and of a child, while cuInit is under way: the server has heard of it and waits."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.guest.conftest import Guest
from tests.guest.fake_server import FakeServer, Hello

BESIDE = """
import signal

answers = []
first = threading.Thread(target=lambda: answers.append(cu("cuInit", 0)))
first.start()
open("{folder}/begun").read()
"""


@pytest.fixture
def folder(server: FakeServer, tmp_path: Path) -> Path:
    """Where the server says that cuInit has begun, and waits for the word to answer."""

    def agreed(_: Hello) -> bytes:
        (tmp_path / "begun").open("w").close()
        (tmp_path / "answer").read_text()
        return b""

    os.mkfifo(tmp_path / "begun")
    os.mkfifo(tmp_path / "answer")
    server.agreed = agreed
    return tmp_path


def test_what_is_called_meanwhile_waits_for_it(guest: Guest, folder: Path) -> None:
    """As if it had been done before: numba takes itself for initialised when it begins."""
    outcome = guest(
        BESIDE.format(folder=folder)
        + f"""
open("{folder}/answer", "w").close()
count = u32()
answers.append(cu("cuDeviceGetCount", byref(count)))
first.join()
assert answers == [0, 0], answers
"""
    )
    assert (outcome.status, outcome.stderr) == (0, "")


def test_a_child_does_not_wait_for_a_thread_that_it_has_not(guest: Guest, folder: Path) -> None:
    outcome = guest(
        BESIDE.format(folder=folder)
        + f"""
child = os.fork()
if child == 0:
    signal.alarm(10)
    os._exit(10 * cu("cuInit", 0) + cu("cuDeviceGetCount", byref(u32())))
ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
open("{folder}/answer", "w").close()
first.join()
assert (ended, answers) == (33, [0])
"""
    )
    assert (outcome.status, outcome.stderr) == (0, "")
