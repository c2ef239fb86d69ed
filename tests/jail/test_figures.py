"""Files in which simulated devices in jails say what they use: none is left of a process that is gone."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from gpuferry.monitor.jail.command import Rules
from gpuferry.monitor.jail.figures import Figures
from gpuferry.monitor.jail.jail import Jail
from gpuferry.monitor.service.processes import start_time


def test_a_file_goes_under_each_of_its_names_though_its_process_is_gone(tmp_path: Path) -> None:
    figures, gone, began = Figures(tmp_path / "simdevice"), 1 << 22, 12345  # no such process
    mine, other = figures.make(0), figures.make(0)
    os.link(mine, figures.owned(gone, began))
    figures.remove(figures.owned(gone, began))
    assert not mine.exists()
    assert other.exists()
    figures.remove(figures.owned(gone, began))
    figures.remove(other)
    figures.close()
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_monitor_left_is_removed(tmp_path: Path) -> None:
    """It was killed while it started processes: one was there already, another not yet."""
    common, gone, me = tmp_path / "simdevice", 1 << 22, os.getpid()
    figures = Figures(common)
    begun, running = figures.make(0), figures.make(0)
    os.link(begun, figures.owned(gone, 12345))
    os.link(running, figures.owned(me, start_time(me)))
    unborn = begun.with_name(f"new-{gone}-12345-00")
    unborn.touch()
    about_to_start = figures.make(0)
    names = {path.name for path in begun.parent.iterdir()}
    assert names == {running.name, figures.owned(me, start_time(me)).name, about_to_start.name}
    begun.with_name(f"new-{gone}-12345-01").touch()
    Figures(common)
    assert {path.name for path in begun.parent.iterdir()} == names


def test_who_gets_no_file_takes_no_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each start that failed so took one of --jail-uids for good, and in the end no API server had any."""
    rules = Rules("", True, [], [], {}, 0, b"")
    jail = Jail(rules, rules, (4711,), None, Figures(tmp_path / "simdevice"))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(Path, "touch", full)
        for _ in range(2):
            with pytest.raises(OSError, match="No space"):
                jail.enter(apart=True)
    monkeypatch.setattr(os, "chown", lambda *_: None)
    stay = jail.enter(apart=True)
    assert stay.uid == 4711
    stay.leave()
