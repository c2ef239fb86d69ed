"""What was parsed is kept for those who ask again with the same text."""

from __future__ import annotations

from pathlib import Path

import pytest

from codegen import kept


@pytest.fixture
def parser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(kept, "FOLDER", tmp_path / "parsed")
    source = tmp_path / "parser.py"
    source.write_text("first")
    return source


def test_the_same_text_is_parsed_once(parser: Path) -> None:
    assert kept.parsed_once(parser, ["a"], lambda: 1) == 1
    assert kept.parsed_once(parser, ["a"], lambda: 2) == 1
    assert kept.parsed_once(parser, ["b"], lambda: 3) == 3


def test_another_parser_parses_again(parser: Path) -> None:
    kept.parsed_once(parser, ["a"], lambda: 1)
    parser.write_text("second")
    assert kept.parsed_once(parser, ["a"], lambda: 2) == 2


def test_what_was_cut_off_is_parsed_again(parser: Path) -> None:
    kept.parsed_once(parser, ["a"], lambda: 1)
    for file in kept.FOLDER.iterdir():
        file.write_bytes(file.read_bytes()[:-3])
    assert kept.parsed_once(parser, ["a"], lambda: 2) == 2


def test_where_nothing_can_be_kept(parser: Path) -> None:
    kept.FOLDER.write_text("a file where the folder would be")
    assert kept.parsed_once(parser, ["a"], lambda: 1) == 1
