"""The wire layouts: what Python computes is what the C compiler lays out; and they survive a round trip."""

from __future__ import annotations

import ctypes
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen.generate import outputs
from codegen.header import compiler
from codegen.load import load
from codegen.model import Field
from codegen.packing import FORMATS
from codegen.wire import WIRE_SIZES, canonical, messages, size_of, spec_hash

MESSAGES = messages(load())
STRUCTS = [
    (f"gf_{kind}_{m.variant.symbol}", fields)
    for m in MESSAGES
    for kind, fields in (("req", m.request), ("rep", m.reply))
    if fields
]

CODEC = """
#include <string.h>
#include "gpuferry/messages.h"
{functions}
"""
FUNCTION = """
size_t size_of_{name}(void) {{ return sizeof(struct {name}); }}
void {name}_to_c(const unsigned char *wire, void **members) {{
    struct {name} s;
    memcpy(&s, wire, sizeof s);
    {unpack}
}}
"""


@pytest.fixture(scope="module")
def codec(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """A library that takes every struct apart, member by member, compiled from the generated header."""
    folder = tmp_path_factory.mktemp("codec")
    header = folder / "gpuferry" / "messages.h"
    header.parent.mkdir()
    header.write_text(outputs(load())["native/_generated/gpuferry/messages.h"], encoding="utf-8")
    functions = "".join(
        FUNCTION.format(
            name=name,
            unpack="\n    ".join(
                f"memcpy(members[{i}], &s.{f.name}, sizeof s.{f.name});" for i, f in enumerate(fields)
            ),
        )
        for name, fields in STRUCTS
    )
    source = folder / "codec.c"
    source.write_text("#include <stddef.h>\n" + CODEC.format(functions=functions), encoding="utf-8")
    library = folder / "codec.so"
    flags = ["-shared", "-fPIC", "-std=gnu11", "-Wall", "-Wextra", "-Werror", f"-I{folder}"]
    subprocess.run([compiler(), *flags, str(source), "-o", str(library)], check=True, timeout=240)
    return ctypes.CDLL(str(library))


def numbers(field: Field) -> st.SearchStrategy[Any]:
    if field.type[0] == "f":
        return st.floats(width=32 if field.type == "f32" else 64, allow_nan=False)
    bits = 8 * WIRE_SIZES[field.type]
    low, high = (0, 2**bits - 1) if field.type[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return st.integers(low, high)


@given(data=st.data())
def test_members_arrive(codec: ctypes.CDLL, data: st.DataObject) -> None:
    name, fields = data.draw(st.sampled_from(STRUCTS))
    values = [[data.draw(numbers(f)) for _ in range(f.count)] for f in fields]
    wire = b"".join(
        struct.pack(f"<{f.count}{FORMATS[f.type]}", *v) for f, v in zip(fields, values, strict=True)
    )
    assert len(wire) == size_of(fields) == getattr(codec, f"size_of_{name}")()
    members = [ctypes.create_string_buffer(f.count * WIRE_SIZES[f.type]) for f in fields]
    pointers = (ctypes.c_void_p * len(members))(*(ctypes.addressof(m) for m in members))
    getattr(codec, f"{name}_to_c")(wire, pointers)
    for field, value, member in zip(fields, values, members, strict=True):
        assert list(struct.unpack(f"<{field.count}{FORMATS[field.type]}", member.raw)) == value


def test_header_is_cpp_too(tmp_path: Path) -> None:
    header = tmp_path / "messages.h"
    header.write_text(outputs(load())["native/_generated/gpuferry/messages.h"], encoding="utf-8")
    source = tmp_path / "probe.cpp"
    source.write_text('#include "messages.h"\nstatic_assert(sizeof(gf_req_sessionMemMap) == 16, "");\n')
    command = [compiler(), "-xc++", "-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", str(source)]
    subprocess.run(command, check=True, timeout=240)


def test_hash_is_of_layouts_only() -> None:
    spec = load()
    assert spec_hash(spec) == spec_hash(load())
    text = canonical(spec)
    assert "2 sessionMemMap async request(address:u64,size:u64;) reply(;)\n" in text
    unsupported = next(v for v in spec.driver.variants if v.klass.value == "unsupported")
    assert unsupported.symbol not in text
