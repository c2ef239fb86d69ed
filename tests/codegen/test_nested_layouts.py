"""A type that changes inside changes the digest of each operation that carries it, and of no other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from codegen.load import load
from codegen.model import Arg, By, Class, Kind, Param, Signature, Spec, Variant, Where
from codegen.released import Operation
from codegen.wire import line, message

from .spec_edits import edited

TYPES = "cuda/types.yaml"
HERE = Where("here.yaml", 7)
COUNT = Arg("count", Kind.SCALAR, Param("size_t", "count"), HERE)


def digest(spec: Spec, ctype: str) -> int:
    """Of an operation that carries an array of these structs."""
    many = replace(Arg("x", Kind.IN, Param(f"const {ctype} *", "x"), HERE), count="count")
    signature = Signature("CUresult", "cuX", (COUNT.param, many.param))
    carries = Variant(
        "cuX", "cuX", "g", 1, 300, Class.SYNC, signature, HERE, server=By.GENERATED, args=(COUNT, many)
    )
    return Operation(300, "cuX", line(spec.types, message(spec.types, carries))).digest


CHANGES = {
    "a member's type": ("    allocType: CUmemAllocationType\n", "    allocType: size_t\n", "CUmemPoolProps"),
    "the length of an array": (
        "    reserved: {kind: zero, type: unsigned char, length: 53}\n",
        "    reserved: {kind: zero, type: unsigned char, length: 61}\n",
        "CUmemPoolProps",
    ),
    "a struct inside a struct": (
        "        reserved: {kind: zero, type: unsigned char, length: 4}\n",
        "        reserved: {kind: zero, type: unsigned char, length: 12}\n",
        "CUmemAllocationProp",
    ),
    "an enum's width": (
        "  CUmemAccess_flags:\n    wire: u32\n",
        "  CUmemAccess_flags:\n    wire: u64\n",
        "CUmemAccessDesc",
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_inside(what: str, tmp_path: Path) -> None:
    old, new, carried = CHANGES[what]
    before, after = load(), load(edited(tmp_path, TYPES, old, new)[0])
    assert digest(before, carried) != digest(after, carried)
    assert digest(before, "CUlaunchAttribute") == digest(after, "CUlaunchAttribute")


def test_a_case_more(tmp_path: Path) -> None:
    """A union that takes another case is laid out otherwise, wherever it is nested."""
    taken, named = "allow: [CU_MEM_LOCATION_TYPE_NONE, ", "CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN"
    specs, _ = edited(tmp_path, TYPES, taken, f"{taken}{named}, ")
    path = specs / TYPES
    text = path.read_text(encoding="utf-8").replace(f", {named}]", "]", 1)
    path.write_text(
        text.replace("localized:\n          kind: refused", "localized:\n          kind: struct"), "utf-8"
    )
    assert digest(load(), "CUmemPoolProps") != digest(load(specs), "CUmemPoolProps")


def test_a_value_more_is_no_other_layout(tmp_path: Path) -> None:
    """Who does not take it refuses it as a value (WIRE.md 2)."""
    old = "compressionType: {type: unsigned char, max: 1}"
    before, after = load(), load(edited(tmp_path, TYPES, old, old.replace("1", "2"))[0])
    assert digest(before, "CUmemAllocationProp") == digest(after, "CUmemAllocationProp")
