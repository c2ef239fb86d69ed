"""Documents that promise what happens name a test for each promise, and the test exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINE = re.compile(r"^\| .*\| (?:(tests/\S+/)?(test_\w+\.py))::(test_\w+) \|$")


@pytest.mark.parametrize(
    ("document", "folder", "least"),
    [("migration/HAZARDS.md", "tests/migration/", 74), ("SECURITY.md", "", 72)],
)
def test_every_line_names_a_test_that_exists(document: str, folder: str, least: int) -> None:
    lines = (ROOT / document).read_text().splitlines()
    rows = [
        line
        for line, below in zip(lines, [*lines[1:], ""], strict=True)
        if line.startswith("| ") and not below.startswith("|--")
    ]
    assert len(rows) >= least
    for row in rows:
        found = LINE.match(row)
        assert found, f"no test in: {row}"
        path = ROOT / (found[1] or folder) / found[2]
        assert path.exists(), f"no such file: {row}"
        assert re.search(rf"^(async )?def {found[3]}\(", path.read_text(), re.MULTILINE), (
            f"no such test: {row}"
        )
