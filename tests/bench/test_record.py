"""What `python -m bench.readme --record` keeps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import readme, tables


def row(name: str, value: float = 1.0) -> dict[str, object]:
    return {"name": name, "value": value}


def test_a_part_of_the_rows_does_not_replace_all_of_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    measured, kept = tmp_path / "results.json", tmp_path / "simulated.json"
    monkeypatch.setattr(readme, "MEASURED", measured)
    monkeypatch.setattr(tables, "RESULTS", tmp_path)

    def record(*rows: dict[str, object]) -> None:
        measured.write_text(json.dumps({"device": "simulated", "rows": rows}))
        readme.record()

    record(row("launch"), row("h2d"), row("no_such_promise_any_more"))
    with pytest.raises(SystemExit, match=r"lacks what simulated\.json has, h2d: "):
        record(row("launch", 2.0))
    assert json.loads(kept.read_text())["rows"][0] == row("launch")
    record(row("launch", 2.0), row("h2d"))
    assert json.loads(kept.read_text())["rows"][0] == row("launch", 2.0)
