"""PTX scalar types and their LLVM spelling."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Type:
    """`kind`: u unsigned, s signed, b bits, f IEEE float, bf bfloat, p predicate, x packed or opaque bits."""

    name: str
    kind: str
    bits: int

    @property
    def bytes(self) -> int:
        return (self.bits + 7) // 8

    @property
    def integer(self) -> str:
        """The LLVM integer type that holds the bits."""
        return f"i{self.bits}"

    @property
    def llvm(self) -> str:
        """The LLVM type arithmetic is done in; bfloat stays an integer."""
        if self.kind == "f":
            return {16: "half", 32: "float", 64: "double"}[self.bits]
        return f"i{self.bits}"

    @property
    def is_float(self) -> bool:
        return self.kind in ("f", "bf")

    @property
    def signed(self) -> bool:
        return self.kind == "s"


def _table() -> dict[str, Type]:
    table = {"pred": Type("pred", "p", 1), "bf16": Type("bf16", "bf", 16)}
    for bits in (8, 16, 32, 64):
        for kind in "usb":
            table[f"{kind}{bits}"] = Type(f"{kind}{bits}", kind, bits)
    for bits in (16, 32, 64):
        table[f"f{bits}"] = Type(f"f{bits}", "f", bits)
    table["b128"] = Type("b128", "b", 128)
    packed = {
        "f16x2": 32,
        "bf16x2": 32,
        "u16x2": 32,
        "s16x2": 32,
        "f32x2": 64,
        "tf32": 32,
        "e4m3": 8,
        "e5m2": 8,
        "e4m3x2": 16,
        "e5m2x2": 16,
        "e4m3x4": 32,
        "e5m2x4": 32,
        "u8x4": 32,
        "s8x4": 32,
        "e2m1": 8,
        "e2m3": 8,
        "e3m2": 8,
        "ue8m0x2": 16,
        "e2m1x2": 8,
        "e2m3x2": 16,
        "e3m2x2": 16,
        "s2f6x2": 16,
        "u4": 4,
        "s4": 4,
        "u2": 2,
        "s2": 2,
        "b1": 1,
        "texref": 64,
        "samplerref": 64,
        "surfref": 64,
    }
    for name, bits in packed.items():
        table[name] = Type(name, "x", bits)
    return table


REFERENCES = ("texref", "surfref")  # variables that name what the program has bound to them
OPAQUE = (*REFERENCES, "samplerref")
TYPES = _table()

PRED = TYPES["pred"]
U8, U16, U32, U64 = (TYPES[f"u{n}"] for n in (8, 16, 32, 64))
S32, S64 = TYPES["s32"], TYPES["s64"]
B16, B32, B64, B128 = (TYPES[f"b{n}"] for n in (16, 32, 64, 128))
F16, F32, F64, BF16 = TYPES["f16"], TYPES["f32"], TYPES["f64"], TYPES["bf16"]
