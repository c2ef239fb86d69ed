"""A steady loop makes no blocking round trip."""

from __future__ import annotations

import json
from pathlib import Path

from tests.helpers import programs, toolchain
from tests.helpers.monitor import Monitor


def test_steady_loop(shared_monitor: Monitor, tmp_path: Path) -> None:
    """Allocation, streams, events, launches, memsets, host-to-device copies: none waits for an answer."""
    program = programs.program("steady_loop")
    stats = tmp_path / "stats.json"
    executable = toolchain.program(program.source, program.flags)
    outcome = shared_monitor.run([executable], extra={"GPUFERRY_STATS": str(stats)})
    assert outcome.status == 0, outcome.stdout + outcome.stderr
    assert "blocking round trips in the loop: 0," in outcome.stderr
    counted = json.loads(stats.read_text())
    # The whole program: the handshake, its image, two synchronisations and the copies that read results.
    assert counted["round_trips"] < 12, counted
    assert counted["calls"]["async"] > 200 * 8


def test_what_is_asked_again(shared_monitor: Monitor, tmp_path: Path) -> None:
    """How many blocks of a kernel fit is asked of the server once, and again when an attribute was set."""
    program = programs.program("occupancy_asked_again")
    stats = tmp_path / "stats.json"
    executable = toolchain.program(program.source, program.flags)
    outcome = shared_monitor.run([executable], extra={"GPUFERRY_STATS": str(stats)})
    assert outcome.status == 0, outcome.stdout + outcome.stderr
    counted = json.loads(stats.read_text())["round_trips_by_function"]
    # Two answers, one more each time that an attribute was set, and an error, which is not kept.
    assert counted["cuOccupancyMaxActiveBlocksPerMultiprocessor"] == 5
    assert counted["cuOccupancyAvailableDynamicSMemPerBlock"] == 1
