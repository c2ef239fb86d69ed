"""ldmatrix and stmatrix of bytes: 16x16 and 16x8, both column by column in memory; bytes made of fewer bits.

The PTX ISA: a group of four lanes has a row, each lane four neighbours of it; `.m16n16` has rows g and g + 8
in two registers. `.m16n8` is stored as the sums of a product are held.
"""

from __future__ import annotations

import numpy as np
import pytest

from . import driver
from .ptx import UNITS, kernel
from .refusals import refusal

LANES = np.arange(32)
GROUP, MEMBER = LANES // 4, LANES % 4
SPREAD = """
    .shared .align 16 .b8 tile[1024];
    mov.u32 %r20, tile;
    mul.lo.u32 %r21, %r0, 32;
    add.u32 %r25, %r20, %r21;
"""


def loaded(form: str, words: int, unit: str, memory: np.ndarray) -> np.ndarray:
    """What lanes have of so many words by ldmatrix of this form. Row l of memory, 16 bytes, is lane l's."""
    registers = [f"%r{10 + i}" for i in range(words)]
    stores = "".join(f"    st.global.u32 [%x11+{4 * i}], {name};\n" for i, name in enumerate(registers))
    body = f"""{SPREAD}
    mad.wide.u32 %x10, %r0, 16, %x1;
    ld.global.v4.u32 {{%r21, %r22, %r23, %r24}}, [%x10];
    st.shared.v4.u32 [%r25], {{%r21, %r22, %r23, %r24}};
    bar.sync 0;
{UNITS[unit]}
    ldmatrix.sync.aligned.{form} {{{", ".join(registers)}}}, [%r25];
    mad.wide.u32 %x11, %r0, {4 * words}, %x0;
{stores}
    """
    out, _ = driver.run(kernel(body), "k", np.zeros((32, words), np.uint32), memory, block=(32,))
    return out


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("count", [1, 2])
def test_load(count: int, unit: str) -> None:
    """Lane l says where row l of memory is: every second 16 bytes here."""
    memory = np.random.default_rng(1).integers(0, 256, (32, 16), dtype=np.uint8)
    out = loaded(f"m16n16.x{count}.trans.shared.b8", 2 * count, unit, memory)
    for index in range(count):
        matrix = memory[16 * index : 16 * index + 16].T
        for half in (0, 1):
            part = matrix[(GROUP + 8 * half)[:, None], MEMBER[:, None] * 4 + np.arange(4)]
            assert (out[:, 2 * index + half] == np.ascontiguousarray(part).view(np.uint32)[:, 0]).all()


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize(
    ("shape", "count", "bits"), [("m8n16", 4, 4), ("m8n16", 2, 6), ("m16n16", 1, 4), ("m16n16", 2, 6)]
)
def test_load_of_fewer_bits(shape: str, count: int, bits: int, unit: str) -> None:
    """The first 16 elements of each row's 128 bits, low ones first, become bytes: CUTLASS's GEMMs of fp4 and
    fp6 for sm_120 move those of four bits to where mma wants them by a shift."""
    format, trans = {4: "b4x16_p64", 6: "b6x16_p32"}[bits], ".trans" if shape == "m16n16" else ""
    words = count * (2 if trans else 1)
    memory = np.random.default_rng(3).integers(0, 256, (32, 16), dtype=np.uint8)
    out = loaded(f"{shape}.x{count}{trans}.shared.b8x16.{format}", words, unit, memory)
    numbers = [int.from_bytes(row.tobytes(), "little") for row in memory]
    elements = np.array([[n >> bits * i & (1 << bits) - 1 for i in range(16)] for n in numbers], np.uint8)
    parts = []
    for index in range(count):
        if not trans:
            parts.append(elements[8 * index + GROUP[:, None], MEMBER[:, None] * 4 + np.arange(4)])
            continue
        matrix = elements[16 * index : 16 * index + 16].T
        parts += [matrix[GROUP[:, None] + 8 * half, MEMBER[:, None] * 4 + np.arange(4)] for half in (0, 1)]
    expected = [np.ascontiguousarray(each).view(np.uint32) for each in parts]
    assert (out == np.hstack(expected)).all()


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("count", [1, 2, 4])
def test_store(count: int, unit: str) -> None:
    """The rows that no address names stay as they were."""
    registers = [f"%r{10 + i}" for i in range(count)]
    loads = "".join(f"    ld.global.u32 {name}, [%x10+{4 * i}];\n" for i, name in enumerate(registers))
    body = f"""{SPREAD}
    mov.u32 %r22, -1;
    st.shared.v4.u32 [%r25], {{%r22, %r22, %r22, %r22}};
    st.shared.v4.u32 [%r25+16], {{%r22, %r22, %r22, %r22}};
    bar.sync 0;
    mad.wide.u32 %x10, %r0, {4 * count}, %x1;
{loads}{UNITS[unit]}
    stmatrix.sync.aligned.m16n8.x{count}.trans.shared.b8 [%r25], {{{", ".join(registers)}}};
    bar.sync 0;
    ld.shared.v4.u32 {{%r16, %r17, %r18, %r19}}, [%r25];
    mad.wide.u32 %x11, %r0, 16, %x0;
    st.global.v4.u32 [%x11], {{%r16, %r17, %r18, %r19}};
    """
    matrices = np.random.default_rng(2).integers(0, 256, (count, 16, 8), dtype=np.uint8)
    i = np.arange(4)[None, :]
    rows, columns = GROUP[:, None] + 8 * (i // 2), 2 * MEMBER[:, None] + i % 2
    words = [np.ascontiguousarray(each[rows, columns]).view(np.uint32) for each in matrices]
    out, _ = driver.run(kernel(body), "k", np.zeros((32, 16), np.uint8), np.hstack(words), block=(32,))
    expected = np.full((32, 16), 255, np.uint8)
    for index, matrix in enumerate(matrices):
        expected[8 * index : 8 * index + 8] = matrix.T
    assert (out == expected).all()


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("ldmatrix.sync.aligned.m16n16.x1.shared.b8 {%r1, %r2}, [%r3];", "need .trans"),
        ("ldmatrix.sync.aligned.m16n16.x1.trans.shared.b16 {%r1, %r2}, [%r3];", "8x8 matrices are of .b16"),
        ("ldmatrix.sync.aligned.m8n8.x1.shared.b8 {%r1}, [%r3];", "8x8 matrices are of .b16"),
        ("ldmatrix.sync.aligned.m16n16.x4.trans.shared.b8 {%r1, %r2, %r4, %r5}, [%r3];", "no .x4"),
        ("ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r1}, [%r3];", "wrong length"),
        ("ldmatrix.sync.aligned.m16n8.x1.trans.shared.b8 {%r1}, [%r3];", "needs one of .m8n8 .m8n16 .m16n16"),
        ("ldmatrix.sync.aligned.m8n16.x1.shared.b8 {%r1}, [%r3];", "8x16 matrices are of .b8x16"),
        ("ldmatrix.sync.aligned.m8n16.x1.trans.shared.b8x16.b4x16_p64 {%r1}, [%r3];", "and not .trans"),
        ("ldmatrix.sync.aligned.m16n16.x1.shared.b8x16.b4x16_p64 {%r1, %r2}, [%r3];", "need .trans"),
        ("stmatrix.sync.aligned.m16n8.x1.shared.b8 [%r3], {%r1};", "need .trans"),
        ("stmatrix.sync.aligned.m16n16.x1.trans.shared.b8 [%r3], {%r1};", "needs one of .m8n8 .m16n8"),
    ],
)
def test_what_is_none_is_refused(statement: str, reason: str) -> None:
    assert reason in refusal(f"    {statement}")
