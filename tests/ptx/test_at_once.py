"""What one thread stores at once no other sees half done: pairs that blocks write and read at the same time.

Nothing here depends on luck to pass: a pair that is torn is wrong whenever it is seen.
"""

from __future__ import annotations

import numpy as np
import pytest

from . import driver
from .ptx import kernel

ROUNDS = 100_000

# The first block counts in every element of its lane's vector; the others look until the count is over.
TEXT = """
    .shared .align 4 .b8 unused[4];
    mad.wide.u32 %x20, %r0, {size}, %x0;
    mov.{b} {v}9, 0;
    setp.ne.u32 %p0, %r2, 0;
    @%p0 bra look;
count:
    add.{u} {v}9, {v}9, 1;
    st.{store}.v{count}.{b} [%x20], {counted};
    setp.lt.{u} %p1, {v}9, {rounds};
    @%p1 bra count;
    ret;
look:
    ld.{load}.v{count}.{b} {seen}, [%x20];
    {compare}
    setp.lt.{u} %p1, {v}10, {rounds};
    @%p1 bra look;
    ret;
torn:
    mov.u32 %r3, 1;
    st.global.u32 [%x1], %r3;
"""


def text(bits: int, count: int, load: str, store: str) -> str:
    v = "%x" if bits == 64 else "%r"
    seen = [f"{v}{10 + index}" for index in range(count)]
    compare = "\n".join(f"setp.ne.b{bits} %p2, {v}10, {each}; @%p2 bra torn;" for each in seen[1:])
    return TEXT.format(
        v=v,
        b=f"b{bits}",
        u=f"u{bits}",
        size=bits // 8 * count,
        count=count,
        rounds=ROUNDS,
        load=load,
        store=store,
        counted=f"{{{', '.join([f'{v}9'] * count)}}}",
        seen=f"{{{', '.join(seen)}}}",
        compare=compare,
    )


@pytest.mark.parametrize("threads", [1, 32])
@pytest.mark.parametrize(("bits", "count"), [(64, 2), (32, 4), (32, 2)])
@pytest.mark.parametrize(
    ("load", "store"),
    [
        ("relaxed.gpu.global", "relaxed.gpu.global"),
        ("acquire.gpu", "release.gpu"),
        ("volatile.global", "volatile.global"),
        ("global.cg", "global.wt"),
        ("global.cv", "volatile"),
    ],
)
def test_a_vector_is_not_torn(threads: int, bits: int, count: int, load: str, store: str) -> None:
    places, torn = np.zeros(threads * count, f"u{bits // 8}"), np.zeros(1, np.uint32)
    body = text(bits, count, load, store)
    out, torn = driver.run(kernel(body), "k", places, torn, grid=(2,), block=(threads,))
    assert torn[0] == 0
    assert (out == ROUNDS).all()
