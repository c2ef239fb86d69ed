"""Threads that wait for the device."""

from __future__ import annotations

from pathlib import Path

from gpuferry.guest import paths

from tests.apiserver.engine import Engine
from tests.helpers import toolchain

LOST_SIGNALS = Path(__file__).with_name("lost_signals.c")


def test_a_signal_that_was_lost_delays_what_waits(tmp_path: Path) -> None:
    """Up to its release 2.40 glibc may wake nobody (its bug 25847), and the guest would wait for ever."""
    library = toolchain.program(LOST_SIGNALS, ("-shared", "-fPIC"))
    preload = f"{library}:{paths.simulated_driver()}"
    with Engine(tmp_path / "log", LD_PRELOAD=preload) as engine:
        guest = engine.session()
        assert [guest.sync().status for _ in range(3)] == [
            0,
            0,
            0,
        ]  # the first one's thread serves the others
        guest.close()
        engine.ended()
