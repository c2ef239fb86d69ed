"""Framing and handshake are said once: C lays out what Python packs, and nobody writes them by hand again."""

from __future__ import annotations

import enum
import re
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
from gpuferry.specs._generated import frames
from hypothesis import given
from hypothesis import strategies as st

from codegen.frames import load
from codegen.header import compiler
from tests.helpers.paths import ROOT

SPEC = load()
CODE = ("apiserver", "bench", "guest", "migration", "monitor", "native", "tests")
SUFFIXES = {".py", ".pyx", ".pxi", ".pxd", ".c", ".cpp", ".h"}
PURPOSEFUL = "tests/codegen/"  # what is generated is looked at there
SHORT = 3  # members of a struct whose format says nothing about what it is


def class_of(name: str) -> Any:
    return getattr(frames, "".join(word.capitalize() for word in name.split("_")))


def test_c_lays_out_what_python_packs(tmp_path: Path) -> None:
    """Every size, offset, constant and enumerator, as the C compiler has it."""
    claims = [f"GF_PROTOCOL_VERSION == {frames.PROTOCOL_VERSION}"]
    for constant in SPEC.constants:
        value = getattr(frames, constant.name)
        if isinstance(value, bytes):
            claims.append(f"sizeof GF_{constant.name} == {len(value) + 1}")
        else:
            claims.append(f"GF_{constant.name} == {value}")
    for choice in SPEC.choices:
        members = class_of(choice.name)
        assert issubclass(members, enum.IntEnum)
        claims += [f"GF_{choice.prefix}_{member.name} == {int(member)}" for member in members]
    for one in SPEC.structs:
        layout: str = class_of(one.name).LAYOUT.format
        at = 1
        claims.append(f"sizeof(struct gf_{one.name}) == {struct.calcsize(layout)}")
        for member in one.members:
            claims.append(f"offsetof(struct gf_{one.name}, {member.name}) == {struct.calcsize(layout[:at])}")
            at += len(re.match(r"\d*\w", layout[at:])[0])  # type: ignore[index]
        assert at == len(layout)
    source = tmp_path / "claims.c"
    checks = "\n".join(f'_Static_assert({claim}, "");' for claim in claims)
    source.write_text(f'#include <stddef.h>\n#include "gpuferry/frames.h"\n{checks}\n', encoding="utf-8")
    command = [compiler(), "-std=c11", "-fsyntax-only", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([*command, "-I", ROOT / "native" / "_generated", source], check=True, timeout=240)


def test_cpp_takes_the_header(tmp_path: Path) -> None:
    source = tmp_path / "probe.cpp"
    source.write_text('#include "gpuferry/frames.h"\nstatic_assert(sizeof(gf_hello) == 372, "");\n')
    command = [compiler(), "-xc++", "-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([*command, "-I", ROOT / "native" / "_generated", source], check=True, timeout=240)


@pytest.mark.some(18)
@pytest.mark.parametrize("name", [one.name for one in SPEC.structs])
@given(data=st.data())
def test_what_is_packed_is_unpacked(name: str, data: st.DataObject) -> None:
    kind = class_of(name)
    wire = data.draw(st.binary(min_size=kind.SIZE, max_size=kind.SIZE))
    found = kind.unpack(wire)
    assert found.pack() == wire
    assert kind.unpack(b"ahead" + wire + b"behind", 5) == found
    with pytest.raises(struct.error):
        kind.unpack(wire[:-1])


@given(status=st.integers(-(1 << 31), (1 << 31) - 1), body=st.binary(max_size=20))
def test_a_frame(status: int, body: bytes) -> None:
    made = frames.frame(300, body, 7, status & 0xFFFFFFFF, frames.FrameFlag.REPLY)
    header = frames.Header.unpack(made)
    assert (header.size, header.op, header.flags, header.request) == (16 + len(body), 300, 1, 7)
    assert header.status == status
    assert made[header.SIZE :] == body


def test_every_extension_is_known_everywhere() -> None:
    """RESTORE was missing in C: the header was written by hand."""
    header = (ROOT / "native" / "_generated" / "gpuferry" / "frames.h").read_text(encoding="utf-8")
    for kind in frames.Extension:
        assert re.search(rf"GF_EXTENSION_{kind.name} = {int(kind)},", header)
    assert int(frames.Extension.RESTORE) == 6
    assert set(frames.EXTENSION_SIZES) == set(frames.Extension)


def sources() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", *CODE], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    found = [Path(line) for line in listed.stdout.splitlines()]
    return [path for path in found if path.suffix in SUFFIXES and not str(path).startswith(PURPOSEFUL)]


FORMATS = {one.format for one in SPEC.structs if len(one.members) > SHORT} | {
    class_of("header").LAYOUT.format[:-1] + "i"
}
TEXTS = {c.value for c in SPEC.constants if isinstance(c.value, str)}
COPIES = {
    "an operation": re.compile("|".join(f"0x{frame.op:04x}" for frame in SPEC.frames), re.IGNORECASE),
    "a layout": re.compile("|".join(re.escape(f'"{text}"') for text in FORMATS)),
    "a text of a key": re.compile("|".join(re.escape(f'"{text}"') for text in TEXTS)),
}


def test_nobody_writes_them_by_hand() -> None:
    """Numbers, layouts and key texts stand in the spec alone."""
    this = Path(__file__).resolve().relative_to(ROOT)
    copies = [
        f"{path}:{text.count(chr(10), 0, match.start()) + 1}: {what} of the handshake: {match[0]}"
        for path in sources()
        if path != this and (ROOT / path).exists()
        for text in [(ROOT / path).read_text(encoding="utf-8")]
        for what, pattern in COPIES.items()
        for match in pattern.finditer(text)
    ]
    assert not copies, "\n".join(copies)
