"""The generator as a command, and properties of what it knows."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from codegen import compare, generate, header
from codegen.__main__ import main
from codegen.load import load, once
from codegen.model import Class

INCLUDE = header.find(None)


def test_spec_agrees_with_the_header() -> None:
    assert compare.check(load(), INCLUDE) == []


def test_what_did_not_change_is_not_read_again() -> None:
    load()
    before = once.cache_info().misses
    load()
    assert once.cache_info().misses == before


def test_every_function_of_the_header_is_found() -> None:
    """Counted without the parser that `check` uses: the text after the preprocessor."""
    text = header.preprocess(INCLUDE, header.HEADERS, "-P")
    declared = set(re.findall(r"^\s*CUresult\s+(cu\w+)\(", text, re.M))
    spec = load()
    listed = {v.symbol for v in spec.driver.variants}
    listed |= {v.per_thread.symbol for v in spec.driver.variants if v.per_thread}
    assert len(declared) > 500
    assert listed == declared


def test_generating_twice_writes_nothing() -> None:
    files = generate.outputs(load())
    generate.write(files)
    assert generate.write(files) == []


def test_stale_output_is_noticed(tmp_path: Path) -> None:
    files = {"a/_generated/x.h": "text\n"}
    assert generate.stale(files, tmp_path) == ["a/_generated/x.h"]
    assert generate.write(files, tmp_path) == ["a/_generated/x.h"]
    assert (tmp_path / "a/_generated/x.h").read_text(encoding="utf-8") == "text\n"
    assert generate.stale(files, tmp_path) == []


def test_first_line_says_what_made_a_file() -> None:
    for path, text in generate.outputs(load()).items():
        first = text.split("\n", 1)[0]
        assert re.search(
            r"Generated from specs/\S+.* by codegen/\S+ \([0-9a-f]{12}\)\. Do not edit\.", first
        ), path


def test_no_function_name_in_the_generator() -> None:
    """A special case is an attribute of the spec."""
    names = {v.symbol for library in load().libraries for v in library.variants}
    names |= {v.base for v in load().driver.variants}
    folder = generate.ROOT / "codegen"
    for file in [*folder.rglob("*.py"), *folder.rglob("*.j2")]:
        words = set(re.findall(r"\b(?:cu[A-Z]|session[A-Z])\w+", file.read_text(encoding="utf-8")))
        found = (words & names) - {"cuGetProcAddress"}  # named in prose, as what the table is for
        assert not found, f"{file}: {sorted(found)}"


@pytest.mark.system
def test_check_passes(capsys: pytest.CaptureFixture[str]) -> None:
    main([])
    assert main(["--check"]) == 0, capsys.readouterr().err


def test_check_without_a_header(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check", "--cuda-include", "/nonexistent"]) == 1
    assert "no cuda.h in /nonexistent" in capsys.readouterr().err


def test_show_of_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "cuNothing"]) == 1
    assert "no function or type 'cuNothing' in specs/" in capsys.readouterr().err


def test_next_id(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["next-id"]) == 0
    driver = load().driver
    taken = {*driver.retired, *(v.id for v in driver.variants)}
    assert int(capsys.readouterr().out) == min(set(range(driver.ids[0], driver.ids[1] + 1)) - taken)
    assert main(["next-id", "session"]) == 0
    session = load().library("session")
    taken = {*session.retired, *(v.id for v in session.variants)}
    assert int(capsys.readouterr().out) == min(set(range(1, 256)) - taken)
    assert main(["next-id", "cublas"]) == 1
    assert "no library 'cublas'; known: cuda, session" in capsys.readouterr().err


def test_coverage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["coverage", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    spec = load()
    assert len(found["functions"]) == sum(found["counts"].values()) == len(list(spec.driver.variants))
    assert found["functions"]["cuMemAlloc_v2"]["class"] == "async"
    refused = {symbol for symbol, function in found["functions"].items() if function["class"] == "refused"}
    assert {"cuGLInit", "cuImportExternalMemory", "cuStreamBeginRecaptureToGraph"} <= refused
    assert len(refused) == found["counts"]["refused"]
    assert found["functions"]["cuMulticastCreate"]["class"] == "absent"
    assert sum(found["counts"].values()) - len(refused) >= 520
    assert main(["coverage", "--markdown"]) == 0
    table = capsys.readouterr().out
    assert "\n## stream\n\n| function | since | how |\n|---|---|---|\n| `" in table
    for variant in spec.driver.variants:
        assert (f"| `{variant.symbol}` |" in table) == (variant.why is None)
    assert main(["coverage"]) == 0


def test_carried_functions_say_what_arguments_mean() -> None:
    for variant in load().driver.variants:
        if variant.klass is not Class.UNSUPPORTED and not variant.alias:
            assert [a.name for a in variant.args] == [p.name for p in variant.signature.params]
