"""Programs that prove an order fail when just that order is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers import programs, toolchain
from tests.helpers.running import native_environment, run

BROKEN = Path(__file__).with_name("broken")


@pytest.mark.parametrize(
    ("program", "fault"),
    [
        ("event_ordering", "no_event_wait"),
        ("destroy_pending", "no_event_wait"),
        ("legacy_stream", "no_implicit_order"),
    ],
)
def test_it_is_noticed(program: str, fault: str) -> None:
    """The fault stands in front of the driver."""
    executable = toolchain.program(programs.program(program).source)
    library = toolchain.program(BROKEN / f"{fault}.c", ("-shared", "-fPIC"))
    environment = native_environment()
    environment["LD_PRELOAD"] = f"{library}:{environment.get('LD_PRELOAD', '')}"
    outcome = run([executable], environment)
    assert outcome.status == 1
    assert "FAILED: wrong == 0" in outcome.stdout
