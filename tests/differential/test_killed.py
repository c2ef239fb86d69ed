"""A program killed in the middle of a copy, natively and remotely."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping

import pytest

from tests.helpers import programs, toolchain
from tests.helpers.monitor import Monitor
from tests.helpers.running import guest_environment, native_environment, run, skip_environment


def killed_while_copying(environment: Mapping[str, str]) -> tuple[int, str]:
    """Exit status and output up to the kill."""
    executable = toolchain.program(programs.program("copy_forever").source)
    with subprocess.Popen([executable], env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        seen = []
        for line in process.stdout:
            seen.append(line)
            if line == "copying\n":
                process.send_signal(signal.SIGKILL)
        return process.wait(120), "".join(seen)


def test_killed_in_mid_copy(shared_monitor: Monitor) -> None:
    """Both die of the signal, and the server goes on serving others."""
    remote = killed_while_copying(guest_environment(shared_monitor.settings()))
    assert remote == killed_while_copying(native_environment())
    assert remote[0] == -signal.SIGKILL
    after = shared_monitor.run([toolchain.program(programs.program("vector_add_driver").source)])
    assert after.status == 0, after.stderr


def test_without_work_it_never_copies() -> None:
    """On a driver that does no work the program ends by itself, with an error."""
    executable = toolchain.program(programs.program("copy_forever").source)
    assert run([executable], skip_environment()).status == 1


@pytest.mark.parametrize("first", ["early", "late"])
def test_terminated_without_its_main_thread(shared_monitor: Monitor, first: str) -> None:
    """What its main thread would have taken of signals a thread of ours takes."""
    executable = toolchain.program(programs.program("main_leaves").source)
    environment = guest_environment(shared_monitor.settings())
    with subprocess.Popen([executable, first], env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert any(line == "alone\n" for line in process.stdout)
        process.terminate()
        try:
            assert process.wait(120) == -signal.SIGTERM
        finally:
            process.kill()
