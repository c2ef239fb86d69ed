"""Times the first launch of a kernel of 5,000 PTX instructions, from its text to its end: a line
`launch seconds`.

It loads, computes, branches, shuffles and meets at barriers, as programs do.
"""

from __future__ import annotations

import time

import numpy as np

from tests.ptx import driver
from tests.ptx.ptx import HEADER, kernel

INSTRUCTIONS = 5000
STEP = """
    mad.lo.u32 %r10, %r10, {odd}, %r11;
    xor.b32 %r11, %r11, %r10;
    shr.u32 %r12, %r10, 5;
    and.b32 %r13, %r12, 63;
    mul.wide.u32 %x5, %r13, 4;
    add.u64 %x6, %x1, %x5;
    ld.global.u32 %r14, [%x6];
    add.u32 %r11, %r11, %r14;
    and.b32 %r15, %r11, 1;
    setp.eq.u32 %p1, %r15, 0;
    @%p1 bra even{i};
    sub.u32 %r10, %r10, %r14;
    cvt.rn.f32.u32 %f1, %r10;
    fma.rn.f32 %f2, %f1, 0f3F000000, %f2;
even{i}:
    shfl.sync.bfly.b32 %r16, %r10, 1, 31, 0xffffffff;
    add.u32 %r10, %r10, %r16;
"""
COUNT = STEP.count(";")


def text() -> str:
    """The kernel; every tenth step ends with a barrier."""
    steps = range(INSTRUCTIONS // COUNT)
    body = "".join(
        STEP.format(i=i, odd=2 * i + 3) + ("    bar.sync 0;\n" if i % 10 == 0 else "") for i in steps
    )
    return kernel(body + "    st.global.u32 [%x0], %r10;\n    st.global.f32 [%x0+4], %f2;\n")


def main() -> None:
    out, given = driver.Buffer(np.zeros(2, np.uint32)), driver.Buffer(np.arange(64, dtype=np.uint32))
    driver.Module(f"{HEADER}.visible .entry k() {{ ret; }}\n").launch("k")  # the compiler has started
    image = text()
    began = time.perf_counter()
    driver.Module(image).launch("k", out, given, block=(128,))
    print("launch", time.perf_counter() - began)


if __name__ == "__main__":
    main()
