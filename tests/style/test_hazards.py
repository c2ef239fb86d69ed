"""Every hazard of migration names a test that exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINE = re.compile(r"^\| .*\| (?:(tests/\S+/)?(test_\w+\.py))::(test_\w+) \|$")


def test_hazards_name_tests_that_exist() -> None:
    lines = (ROOT / "migration" / "HAZARDS.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("| ") and not line.startswith("| phase")]
    assert len(rows) > 30
    for row in rows:
        found = LINE.match(row)
        assert found, f"no test in: {row}"
        path = ROOT / (found[1] or "tests/migration/") / found[2]
        assert path.exists(), f"no such file: {row}"
        assert re.search(rf"^def {found[3]}\(", path.read_text(), re.MULTILINE), f"no such test: {row}"
