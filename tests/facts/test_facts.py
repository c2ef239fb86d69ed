"""Every row of driver-facts.md that the simulated device can show, natively and through gpuferry."""

from __future__ import annotations

import json
import re
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.monitor import Monitor
from tests.helpers.paths import ROOT
from tests.helpers.running import Outcome, native_environment, run

from . import coverage, language

pytestmark = pytest.mark.timeout(240)
SHARED = ROOT.parent / "shared" / "driver-facts.md"
SEVERAL = pytest.mark.parametrize(
    ("path", "row"),
    [
        pytest.param(path, row, id=f"{path.stem}-{row.number}")
        for path in language.files()
        for row in language.read(path).rows
        if row.devices
    ],
)
SECTIONS = pytest.mark.parametrize("path", language.files(), ids=lambda path: path.stem)


def command(path: Path) -> list[str | Path]:
    return [sys.executable, Path(__file__).parent / "show.py", path]


def wrong(path: Path, outcome: Outcome, where: str) -> Iterator[str]:
    """The rows that do not behave as they are known to."""
    assert outcome.status == 0, outcome.stdout + outcome.stderr
    found = json.loads(outcome.stdout)
    for row in language.read(path).rows:
        if not row.steps or row.devices:
            continue
        said = found[str(row.number)]
        if said and not row.differs(where):
            yield f"{path.name}:{row.number}: {row.words}: {said}"
        if not said and row.differs(where):
            yield f"{path.name}:{row.number}: {row.words}: it is so by now: take the mark away"


@SECTIONS
def test_natively(path: Path) -> None:
    outcome = run(command(path), native_environment())
    assert not list(wrong(path, outcome, "natively")), outcome.stderr


@SECTIONS
def test_remotely(path: Path, shared_monitor: Monitor) -> None:
    outcome = shared_monitor.run(command(path))
    assert not list(wrong(path, outcome, "remotely")), outcome.stderr


@SEVERAL
def test_several_devices_natively(path: Path, row: language.Row) -> None:
    settings = {"GPUFERRY_SIM_DEVICES": str(row.devices)}
    outcome = run([*command(path), str(row.number)], {**native_environment(), **settings})
    assert json.loads(outcome.stdout) == {str(row.number): ""}, outcome.stderr


@pytest.mark.some(7)
@SEVERAL
def test_several_devices_remotely(path: Path, row: language.Row, devices_monitor: Monitor) -> None:
    settings = {"GPUFERRY_GPUS": str(row.devices)}
    outcome = devices_monitor.run([*command(path), str(row.number)], extra=settings)
    assert json.loads(outcome.stdout) == {str(row.number): ""}, outcome.stderr


@SECTIONS
def test_rows_are_those_of_driver_facts(path: Path) -> None:
    """Where driver-facts.md lies beside the checkout, it has these rows and says what it said."""
    if not SHARED.exists():
        pytest.skip("driver-facts.md is not part of the repository")
    section = language.read(path)
    text = re.split(r"^## ", SHARED.read_text(encoding="utf-8"), flags=re.M)
    part = next(p for p in text if p.startswith(f"{section.number}. "))
    lines = [line for line in part.splitlines() if line.startswith("| ")]
    words = [line.strip("| ").split(" | ")[0].strip() for line in lines]
    words = [w for w in words if w not in ("call or situation", "situation", "attribute")]
    assert [w[: len(r.words)] for w, r in zip(words, section.rows, strict=True)] == [
        r.words for r in section.rows
    ]
    digest = f"{zlib.crc32(chr(10).join(lines).encode()):08x}"
    assert section.digest == digest, f"read section {section.number} again; its digest is now {digest}"


def test_the_list_is_current() -> None:
    assert coverage.FILE.read_text(encoding="utf-8") == coverage.text(), "python -m tests.facts.coverage"


def test_a_wrong_fact_is_noticed(tmp_path: Path) -> None:
    """The other tests could not pass if calls were not made."""
    path = tmp_path / "section_99.facts"
    path.write_text("# driver-facts.md, section 99, digest 0\n== a\ncuInit(0) -> 1\n== b\n1 == 2\n")
    outcome = run(command(path), native_environment())
    found = json.loads(outcome.stdout)
    assert found["2"] == "cuInit(0) -> 1, but 0"
    assert found["4"] == "not so: 1 == 2"
