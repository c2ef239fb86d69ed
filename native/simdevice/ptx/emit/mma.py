"""mma: of dense matrices, of sparse ones, and Volta's four at once."""

from __future__ import annotations

from .. import isa
from ..model import Instruction
from . import quads, scaled
from .function import FunctionEmitter
from .matrix import Compute, Kinds, compute_part, take_flags, take_shape, write_product
from .modifiers import Modifiers
from .registry import opcode

# Of a sparse A, by the type of its elements.
_DEPTHS = {
    **dict.fromkeys(("f16", "bf16"), (16, 32)),
    "tf32": (8, 16),
    **dict.fromkeys(("s8", "u8"), (32, 64)),
    **dict.fromkeys(("s4", "u4"), (64, 128)),
    **dict.fromkeys(isa.FACTORS["e4m3"], (64,)),
}
_SMALL = ("e2m1", "e2m3", "e3m2")  # in bytes of which they are a part, with .kind::f8f6f4 only


@opcode("mma")
def mma(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    multiply(e, m, compute_part, quads.compute_part, scaled.OF_THREADS)


def multiply(
    e: FunctionEmitter,
    m: Modifiers,
    compute: Compute,
    compute_quads: quads.Compute,
    lanes: scaled.Lanes,
) -> None:
    """An `mma`, whose result one of the two yields."""
    # Indices in order are indices: that they must be is for the hardware.
    sparse = m.choice("sp", "sp::ordered_metadata") is not None
    m.need("sync")
    m.need("aligned")
    shape = take_shape(m)
    layouts = [m.need("row", "col") for _ in "ab"]
    kinds = Kinds(m.type(), m.type(), m.type(), m.type())
    if shape == (8, 8, 4) and kinds.a.name == "f16" and not sparse:
        quads.multiply(e, layouts, kinds, compute_quads)
        return
    if layouts != ["row", "col"]:
        raise e.fail("matrices are .row and .col")
    if m.flag("block_scale") and not sparse:
        scaled.multiply(e, m, shape, kinds, compute, lanes)
        return
    factors = (kinds.a.name, kinds.b.name)
    of_bytes = kinds.a.name in isa.FACTORS["e4m3"] and m.flag("kind::f8f6f4")
    if not of_bytes and any(each in _SMALL for each in factors):
        raise e.fail(f"matrices of .{' and .'.join(factors)} need .kind::f8f6f4")
    flags = take_flags(m, kinds)
    rows, columns, depth = shape
    if columns != 8 or rows not in ((16,) if sparse else (8, 16)):
        raise e.fail("this shape is not supported")
    if sparse and depth not in _DEPTHS.get(kinds.a.name, ()):
        raise e.fail("this shape is not supported")
    write_product(e, shape, kinds, flags, compute, sparse)
