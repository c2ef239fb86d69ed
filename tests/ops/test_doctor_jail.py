"""What doctor says of jails: whose users they have, and who counts their memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from gpuferry.monitor.cli.checks import jail
from gpuferry.monitor.cli.checks.check import Check
from gpuferry.monitor.cli.checks.jail import accounts_in, memory
from gpuferry.monitor.jail import cgroups
from gpuferry.monitor.settings import inforce
from gpuferry.monitor.settings.monitor_options import MonitorOptions


def test_users_of_jails_that_are_somebody_elses(tmp_path: Path) -> None:
    subordinate = tmp_path / "subuid"
    subordinate.write_text("alice:165536:65536\nbob:300000:10\nnonsense\n:x:y\n")
    assert accounts_in(range(200000, 204096), subordinate) == ["alice"]
    assert accounts_in(range(231072, 231080), subordinate) == []
    assert accounts_in(range(300009, 300010), subordinate) == ["bob"]
    assert accounts_in(range(os.getuid(), os.getuid() + 1), tmp_path / "none") != []


def test_what_nobody_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "possible", lambda: False)
    assert "the simulated device's counts for no process" in memory(simulated=True).detail
    assert "simulated" not in memory(simulated=False).detail
    monkeypatch.setattr(cgroups, "possible", lambda: True)
    assert memory(simulated=True).result == "ok"


@pytest.mark.parametrize("counted", [False, True])
def test_of_a_monitor_that_runs_its_own_group_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: bool
) -> None:
    """It is in another than doctor's shell: doctor spoke of that one's."""
    values = MonitorOptions(device="sim")
    (tmp_path / inforce.NAME).write_text(inforce.written(MonitorOptions, values, True, counted))
    changes: dict[str, Callable[..., object]] = {
        "in_force": lambda program: inforce.read(MonitorOptions, tmp_path),
        "look": lambda config, environment: SimpleNamespace(root=False),
        "_reach": lambda environment: Check("reach of the devices", "ok", ""),
    }
    for name, change in changes.items():
        monkeypatch.setattr(jail, name, change)
    monkeypatch.setattr(cgroups, "possible", lambda: not counted)
    (memory_of_jails,) = [each for each in jail.jail() if each.name == "memory of jails"]
    assert memory_of_jails.result == ("ok" if counted else "note")
