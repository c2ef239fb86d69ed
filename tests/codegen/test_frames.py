"""Frames from the spec: what one small file with every key yields, and how mistakes are told.

After a change that is meant: GPUFERRY_UPDATE_GOLDEN=1 pytest tests/codegen/test_frames.py; read the diff.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from codegen.emit.frames import of
from codegen.frames import FILE, load
from codegen.model import SpecError

from .spec_edits import edited

GOLDEN = Path(__file__).parent / "golden" / "frames"
UPDATE = "GPUFERRY_UPDATE_GOLDEN" in os.environ


@pytest.mark.parametrize("name", ["frames.h", "constants.py", "frames.py", "frames.pxi"])
def test_yield_is_as_reviewed(name: str) -> None:
    (text,) = (text for path, text in of(load(GOLDEN)).items() if path.endswith(f"/{name}"))
    text = text.partition("\n")[2]  # the banner has the templates' hash
    file = GOLDEN / f"{name}.txt"
    if UPDATE:
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


# Text, its replacement; then what is told: line counted from that of the edit, cause, remedy.
MISTAKES = {
    "unknown key": (
        "    op: 0xFF05\n",
        "    op: 0xFF05\n    form: server\n",
        (1, "unknown key 'form'", "Did you mean 'from'?"),
    ),
    "unknown type": (
        "resume_ms: {type: u32",
        "resume_ms: {type: u23",
        (0, "unknown type 'u23'", "Did you mean 'u32'?"),
    ),
    "a word that is no type": (
        "image_hash_count: u32",
        "image_hash_count: u32 u32",
        (0, "'u32 u32' is no type", "Write u32, or u8[32], or u8[NAME] with a constant"),
    ),
    "unknown count": (
        'limits: {type: "i64[LIMIT_COUNT]"',
        'limits: {type: "i64[LIMIT_COUND]"',
        (0, "unknown constant 'LIMIT_COUND'", "Did you mean 'LIMIT_COUNT'?"),
    ),
    "a text as a count": (
        "attributes: i32[ATTRIBUTE_COUNT]",
        "attributes: i32[MAGIC]",
        (0, "unknown constant 'MAGIC'", "Known: FRAME_MAX"),
    ),
    "an operation's number": (
        "op: 0xFF05",
        "op: 0x0105",
        (0, "0x0105 is an operation's number", "Choose one from 0xff01 on"),
    ),
    "a number given twice": (
        "op: 0xFF05",
        "op: 0xFF04",
        (0, "0xff04 is 'REFUSED' already", "Choose another; the first is on line "),
    ),
    "a kind given twice": ("{kind: 5,", "{kind: 4,", (0, "0x4 is 'WALL_LIMIT' already", "Choose another")),
    "a reason given twice": (
        "NO_SESSION: {value: 9",
        "NO_SESSION: {value: 7",
        (0, "0x7 is 'MALFORMED' already", "Choose another"),
    ),
    "a struct's name given twice": (
        "  RESTORE:\n    kind: 6",
        "  RESUME:\n    kind: 6",
        (1, "struct 'resume' is there already", "Choose another; the first is on line "),
    ),
    "two values": (
        "MAGIC: {text: GPUFERRY,",
        "MAGIC: {text: GPUFERRY, value: 3,",
        (0, "constant 'MAGIC' has not one value", "Give it either 'value' or 'text'"),
    ),
    "no value": (
        "NONCE_SIZE: {value: 32}",
        "NONCE_SIZE: {doc: none}",
        (0, "constant 'NONCE_SIZE' has not one value", "Give it either"),
    ),
    "an unknown unit": (
        "FRAME_MAX: {value: 16 MiB",
        "FRAME_MAX: {value: 16 MB",
        (0, "expected a number", "Write a number here"),
    ),
    "no content": (
        "{kind: 4, value: u32,",
        "{kind: 4,",
        (0, "extension 'WALL_LIMIT' has not one content", "Give it either 'value' or 'fields'"),
    ),
    "unknown content": (
        "{kind: 4, value: u32,",
        "{kind: 4, value: u64,",
        (0, "unknown content 'u64'", "Known: bytes, text, u32"),
    ),
    "unknown sender": (
        "    op: 0xFF05\n    from: server",
        "    op: 0xFF05\n    from: servant",
        (1, "unknown sender 'servant'", "Did you mean 'server'?"),
    ),
    "a second reading of another size": (
        "or: {status: i32}",
        "or: {status: i64}",
        (-2, "'status' and 'context' differ in size", "Choose types of one size"),
    ),
    "no doc": ("    doc: The session.\n", "", (-2, "missing key 'doc'", "Add 'doc: …'")),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_told(mistake: str, tmp_path: Path) -> None:
    old, new, (offset, cause, remedy) = MISTAKES[mistake]
    specs, line = edited(tmp_path, FILE, old, new)
    with pytest.raises(SpecError) as caught:
        load(specs)
    told = str(caught.value)
    assert told.startswith(f"specs/{FILE}:{line + offset}: {cause}"), told
    assert remedy in told
