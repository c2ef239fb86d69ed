"""What doctor says of jails: whose users they have, and who counts their memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gpuferry.monitor.cli.checks.jail import accounts_in, memory
from gpuferry.monitor.jail import cgroups


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
