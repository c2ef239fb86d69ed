"""A monitor that ends while programs wait: none of them notices more than that it takes longer."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adversity.sessions import Bystander, session
from tests.helpers import programs, toolchain
from tests.helpers.running import guest_environment
from tests.helpers.tokens import token_of
from tests.monitor import harness

TOKEN = token_of("both monitors")


@contextlib.contextmanager
def begun(program: Path, settings: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [program],
        env=guest_environment(settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.some(1)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGUSR2])
def test_programs_wait_for_the_next_monitor(number: signal.Signals) -> None:
    """SIGUSR2: it makes way for its successor."""
    options = ("--pool", "1", "--orphan-grace", "60", "--max-wait", "100")
    chosen = programs.program("vector_add_driver")
    program = toolchain.program(chosen.source, chosen.flags)
    with harness.monitor(*options, server=None, GPUFERRY_TOKEN=TOKEN) as monitor:
        monitor.wait_idle(1)
        settings = {"GPUFERRY_MONITOR": monitor.tcp, "GPUFERRY_TOKEN": TOKEN, "GPUFERRY_LOG": "info"}
        with contextlib.ExitStack() as started:
            with session(monitor) as guest:
                waiting = [started.enter_context(begun(program, settings)) for _ in range(2)]
                monitor.wait_for(lambda status: len(status.queue) == 2, "the queue")
                monitor.process.send_signal(number)
                monitor.process.wait(harness.DEADLINE)
                monitor = monitor.succeed(*options)
                monitor.wait_for(
                    lambda status: len(status.queue) == 2 and len(status.sessions) == 1, "the queue again"
                )
                Bystander(guest).is_fine()
            for one in waiting:
                output, said = one.communicate(timeout=harness.DEADLINE)
                assert (one.returncode, "CUDA_SUCCESS" in output) == (0, True), output + said
                assert "connecting again" in said
        monitor.wait_idle(1)
