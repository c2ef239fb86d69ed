"""Where an argument behind a pointer travels, and the text that both sides get for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from codegen import codec
from codegen.codec import ArgCodec, Form
from codegen.load import load
from codegen.model import Arg, By, Class, Kind, Param, Signature, SpecError, Types, Variant, Where
from codegen.wire import message

TYPES: Types = load().types
HERE = Where("here.yaml", 7)
COUNT = Arg("count", Kind.SCALAR, Param("size_t", "count"), HERE)


def arg(ctype: str, kind: Kind = Kind.IN, **keys: object) -> Arg:
    return replace(Arg("x", kind, Param(ctype, "x"), HERE), **keys)  # type: ignore[arg-type]


def operation(*args: Arg) -> Variant:
    signature = Signature("CUresult", "cuX", tuple(a.param for a in args))
    return Variant(
        "cuX", "cuX", "things", 1, 300, Class.SYNC, signature, HERE, server=By.GENERATED, args=args
    )


# An argument; where it travels in the request and in the reply (None: not there).
PLACES = {
    "number": (arg("size_t *"), Form.PLAIN, None),
    "number, nullable": (arg("const cuuint64_t *", nullable=True), Form.BEHIND, None),
    "numbers": (arg("size_t *", count="count"), Form.BEHIND, None),
    "bytes": (arg("const void *", size="count"), Form.BEHIND, None),
    "handles": (arg("CUstream *", count="count"), Form.BEHIND, None),
    "flat struct": (arg("const CUmemAllocationProp *"), Form.FLAT, None),
    "flat struct, nullable": (arg("const CUmemAllocationProp *", nullable=True), Form.BEHIND, None),
    "flat structs": (arg("const CUmemAccessDesc *", count="count"), Form.BEHIND, None),
    "nested struct": (arg("CUctxCreateParams *"), Form.BEHIND, None),
    "answered number": (arg("size_t *", Kind.OUT), None, Form.PLAIN),
    "answered number, nullable": (arg("size_t *", Kind.OUT, nullable=True), None, Form.PLAIN),
    "answered struct": (arg("CUmemAllocationProp *", Kind.OUT), None, Form.FLAT),
    "answered numbers": (arg("size_t *", Kind.OUT, count="count"), None, Form.BEHIND),
    "answered numbers, nullable": (
        arg("size_t *", Kind.OUT, count="count", nullable=True),
        Form.BEHIND,
        Form.BEHIND,
    ),
    "changed number": (arg("size_t *", Kind.INOUT), Form.PLAIN, Form.PLAIN),
    "changed struct": (arg("CUmemAllocationProp *", Kind.INOUT), Form.FLAT, Form.FLAT),
}


@pytest.mark.parametrize("what", PLACES)
def test_place(what: str) -> None:
    """In the fixed struct as a member or an image, behind it, or not at all."""
    value, request, reply = PLACES[what]
    found = message(TYPES, operation(COUNT, value))
    for form, fields, payload, back in (
        (request, found.request, found.request_payload, False),
        (reply, found.reply, found.reply_payload, True),
    ):
        members = [f for f in fields if f.name == "x"]
        assert (value in payload) == (form is Form.BEHIND)
        assert bool(members) == (form in (Form.PLAIN, Form.FLAT))
        if form is Form.FLAT:
            assert (members[0].type, members[0].count) == ("u8", TYPES.nesting.size("CUmemAllocationProp"))
        if form is not None and not codec.tells_presence(value):
            assert codec.form(TYPES, value, back) is form


def test_what_nests_is_in_the_layout() -> None:
    """Two builds that lay out a struct otherwise do not understand each other."""
    desc = arg("const CUmemAccessDesc *", count="count")
    assert codec.layout(TYPES, operation(COUNT, desc)) == (
        "CUmemAccessDesc{12:location@0+8:struct CUmemLocation,flags@8+4:value};"
        "CUmemLocation{8:type@0+4:value,place@4+4:union(id@0+4:device,localized@0+2:value)} x[count]"
    )
    assert codec.layout(TYPES, operation(COUNT, arg("size_t *"))) == ""
    assert codec.layout(TYPES, operation(arg("size_t *", nullable=True))) == "x?"


# An argument, the text that is asked for, and how it reads.
TEXTS = [
    (arg("const CUmemAllocationProp *"), "guest_encode", "gf_encode_CUmemAllocationProp(x, NULL, request.x)"),
    (arg("const CUmemAllocationProp *"), "server_decode", "gf_decode_CUmemAllocationProp(&d, q.x, &x)"),
    (arg("const CUmemAllocationProp *"), "server_argument", "&x"),
    (arg("const CUmemAllocationProp *"), "server_declare", ("cdef cu.CUmemAllocationProp x",)),
    (
        arg("const CUmemAccessDesc *", count="count"),
        "guest_encode",
        "gf_append_CUmemAccessDesc(&behind, x, (uint64_t)((uint64_t)count), false)",
    ),
    (
        arg("const CUmemAccessDesc *", count="count"),
        "server_decode",
        "gf_take_CUmemAccessDesc(&d, <uint64_t>(<uint64_t>q.count), False, &x)",
    ),
    (arg("const CUmemAccessDesc *", count="count"), "server_declare", ("cdef cu.CUmemAccessDesc *x = NULL",)),
    (arg("const CUmemAccessDesc *", count="count"), "server_argument", "x"),
    (
        arg("CUctxCreateParams *", nullable=True),
        "guest_encode",
        "gf_append_CUctxCreateParams(&behind, x, (uint64_t)(1), true)",
    ),
    (
        arg("CUstream *", count="count"),
        "guest_encode",
        "gf_append_stream(&behind, x, (uint64_t)((uint64_t)count), false)",
    ),
    (
        arg("const void *", size="count * 4"),
        "guest_encode",
        "gf_append_plain(&behind, x, (uint64_t)(gf_times((uint64_t)count, 4)), 1, false)",
    ),
    (
        arg("size_t *", count="count"),
        "server_decode",
        "gf_take_plain(&d, <uint64_t>(<uint64_t>q.count), sizeof(size_t), False, <void **>&x)",
    ),
    (arg("CUmemAllocationProp *", Kind.OUT), "guest_decode", "gf_fetch(x, reply.x, sizeof *x)"),
    (arg("CUmemAllocationProp *", Kind.OUT), "server_encode", "gf_return_CUmemAllocationProp(&d, &x, out.x)"),
    (
        arg("size_t *", Kind.OUT, count="count"),
        "server_room",
        "gf_room(&d, <uint64_t>(<uint64_t>q.count), sizeof(size_t), False, <void **>&x)",
    ),
    (
        arg("size_t *", Kind.OUT, count="count"),
        "server_encode",
        "gf_return_plain(&behind, x, <uint64_t>(<uint64_t>q.count), sizeof(size_t))",
    ),
    (
        arg("size_t *", Kind.OUT, count="count"),
        "guest_decode",
        "gf_fetch_behind(&in, x, (uint64_t)((uint64_t)count), sizeof *x)",
    ),
    (
        arg("size_t *", Kind.OUT, count="count", nullable=True),
        "guest_encode",
        "gf_append_presence(&behind, x)",
    ),
    (
        arg("size_t *", Kind.OUT, count="count", nullable=True),
        "server_decode",
        "gf_room(&d, <uint64_t>(<uint64_t>q.count), sizeof(size_t), True, <void **>&x)",
    ),
    (arg("size_t *", Kind.OUT, count="count", nullable=True), "server_room", ""),
]


@pytest.mark.parametrize(("value", "side", "text"), TEXTS)
def test_text(value: Arg, side: str, text: object) -> None:
    assert getattr(ArgCodec(TYPES, value), side) == text


REFUSED = {
    "counted twice": (
        arg("size_t *", count="count", size="count"),
        "cuX(x): 'count' and 'size' say the same",
        "Give 'count' for elements or 'size' for bytes",
    ),
    "struct as bytes": (
        arg("const CUmemAccessDesc *", size="count"),
        "cuX(x): CUmemAccessDesc is no bytes",
        "Give 'count' in place of 'size'",
    ),
    "elements of no size": (
        arg("const void *", count="count"),
        "cuX(x): how large an element is, is not said",
        "Give 'size' in place of 'count'",
    ),
    "changed, or not": (
        arg("size_t *", Kind.INOUT, nullable=True),
        "cuX(x): 'inout' is never null here",
        "Remove 'nullable', or make it custom",
    ),
    "answer that leads to memory": (
        arg("CUctxCreateParams *", Kind.OUT),
        "x: CUctxCreateParams leads to memory, and cannot be an answer",
        "Let the guest answer by other operations ('via')",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_travel_is_refused(what: str) -> None:
    value, cause, remedy = REFUSED[what]
    with pytest.raises(SpecError) as told:
        codec.check(TYPES, operation(COUNT, value))
    assert str(told.value) == f"here.yaml:7: {cause}\n    {remedy}"
