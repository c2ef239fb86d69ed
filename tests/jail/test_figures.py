"""Files in which simulated devices in jails say what they use: none is left of a process that is gone."""

from __future__ import annotations

import os
from pathlib import Path

from gpuferry.monitor.jail.figures import Figures


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
