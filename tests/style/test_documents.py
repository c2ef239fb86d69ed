"""What documents name is there, and what is there is named: operations, frames, files, rooms, links."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from codegen import frames, load, wire
from codegen.model import Kind, Spec, Variant

ROOT = Path(__file__).parents[2]
WIRE = (ROOT / "specs" / "WIRE.md").read_text(encoding="utf-8")
DOCUMENTS = subprocess.check_output(["git", "ls-files", "*.md"], cwd=ROOT, text=True).split()
FIELD = re.compile(r"(?:(u8|u16|u32|u64|i32|i64) )?(\w+)(?:\[(\d+)\])?$")


@cache
def spec() -> Spec:
    return load.load()


def ours() -> list[Variant]:
    return [v for v in spec().library("session").variants if v.on_wire]


def fields(text: str) -> list[tuple[str, str, int]]:
    """Of `{u64 address, u64 size (why), …}`: type, name and count."""
    found = []
    for part in re.sub(r"\([^)]*\)", "", " ".join(text.split())).split(","):
        if part.strip():
            match = FIELD.match(part.strip())
            assert match, f"WIRE.md: not a field: {part.strip()!r}"
            found.append((match[1], match[2], int(match[3] or 1)))
    return found


@pytest.mark.parametrize("variant", ours(), ids=lambda v: v.symbol)
def test_the_wire_document_has_every_operation_as_it_is_laid_out(variant: Variant) -> None:
    written = re.findall(rf"\b{variant.symbol}\s+\{{([^}}]*)\}}", WIRE)
    if variant.symbol == "sessionClose":
        assert "`sessionClose`" in WIRE
        return
    laid_out = [(f.type, f.name, f.count) for f in wire.message(spec().types, variant).request]
    assert written, f"WIRE.md does not lay out {variant.symbol}"
    assert fields(written[0]) == laid_out


def test_the_wire_document_names_every_frame_and_extension() -> None:
    found = frames.load()
    for frame in found.frames:
        assert re.search(rf"\b{frame.name}\b", WIRE), frame.name
    for extension in found.extensions:
        assert f"{extension.kind} {extension.name}" in WIRE, extension.name


@pytest.mark.parametrize("module", ["load", "load_nesting", "objects", "frames", "results"])
def test_the_specs_document_has_every_key(module: str) -> None:
    text = (ROOT / "specs" / "README.md").read_text(encoding="utf-8")
    asked = (ROOT / "codegen" / f"{module}.py").read_text(encoding="utf-8")
    keys = set(re.findall(r"\.(?:get|need)\(\"(\w+)\"\)", asked))
    assert keys
    assert [key for key in sorted(keys) if not re.search(rf"\b{key}\b", text)] == []


def test_the_specs_document_has_every_kind_of_argument() -> None:
    text = (ROOT / "specs" / "README.md").read_text(encoding="utf-8")
    assert [kind.value for kind in Kind if f"`{kind.value}`" not in text] == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if not target.startswith(("http://", "https://")):
            assert (ROOT / document).parent.joinpath(target).exists(), f"{document}: {target}"


def test_the_guests_notes_name_every_file() -> None:
    text = (ROOT / "guest" / "DESIGN.md").read_text(encoding="utf-8")
    missing = [f.stem for f in (ROOT / "guest" / "src").glob("*.c") if f"`{f.stem}`" not in text]
    assert missing == []


def test_the_engines_notes_name_every_room() -> None:
    text = (ROOT / "apiserver" / "DESIGN.md").read_text(encoding="utf-8")
    rooms = [f.stem for f in (ROOT / "apiserver" / "core" / "rooms").glob("*.pxi")]
    missing = [name for name in rooms if f"| {name} |" not in text and f"`{name}`" not in text]
    assert missing == []


def test_prose_is_wrapped() -> None:
    """At 120; tables, code and lines with links are as long as they must be."""
    as_they_are = re.compile(r"\||    |.*(https?://|\]\()")
    found = [
        f"{document}:{number}"
        for document in DOCUMENTS
        for number, line in enumerate((ROOT / document).read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > 120 and not as_they_are.match(line)
    ]
    assert found == []
