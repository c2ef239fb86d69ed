"""The allocator over the window against a list of intervals."""

from __future__ import annotations

import ctypes

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from tests.helpers.shared_object import SharedObject

BASE, SIZE, UNIT = 0x200000000000, 64 << 20, 512


class Block(ctypes.Structure):
    _fields_ = (("address", ctypes.c_uint64), ("size", ctypes.c_uint64))


LIBRARY = SharedObject(
    ["guest/src/blocks.c"],
    gf_blocks_take=ctypes.POINTER(Block),
    gf_blocks_find=ctypes.POINTER(Block),
    gf_blocks_init=ctypes.c_bool,
)
RESTING, RESTING_SIZE = 1024, 64 << 30


class Blocks(RuleBasedStateMachine):
    used = Bundle("used")

    def __init__(self, size: int = SIZE) -> None:
        super().__init__()
        self.state = ctypes.create_string_buffer(8192)
        self.live: dict[int, tuple[int, object]] = {}
        self.freed: list[tuple[int, int, int]] = []
        self.clock = 0
        self.end = BASE + size
        assert LIBRARY.gf_blocks_init(self.state, ctypes.c_uint64(BASE), ctypes.c_uint64(size))

    def take(self, size: int, align: int, least: int = 0) -> int | None:
        at, stream = ctypes.c_uint64(), ctypes.c_uint64()
        block = LIBRARY.gf_blocks_take(
            self.state, *map(ctypes.c_uint64, (size, align, least)), ctypes.byref(at), ctypes.byref(stream)
        )
        if not block:
            return None
        address, taken = block.contents.address, block.contents.size
        assert address % align == 0
        assert taken >= size
        assert address >= max(BASE, least)
        assert address + taken <= self.end
        assert all(
            other + length <= address or address + taken <= other for other, (length, _) in self.live.items()
        )
        claims = [time for start, end, time in self.freed if start < address + taken and address < end]
        assert at.value >= max(claims, default=0), "memory came back sooner than its last user lets go"
        self.live[address] = (taken, block)
        return int(address)

    @rule(target=used, size=st.integers(1, 4 << 20), align=st.sampled_from([512, 4096, 2 << 20]))
    def alloc(self, size: int, align: int) -> int | None:
        return self.take(size, align)

    @rule(target=used, size=st.integers(1, 4 << 20), offset=st.integers(0, SIZE))
    def alloc_behind(self, size: int, offset: int) -> int | None:
        return self.take(size, 512, BASE + offset)

    @rule(address=consumes(used), how=st.sampled_from(["give", "rest"]))
    def free(self, address: int | None, how: str) -> None:
        if address is not None:
            self.clock += 1
            size, block = self.live.pop(address)
            self.freed.append((address, address + size, self.clock))
            end = getattr(LIBRARY, f"gf_blocks_{how}")
            end(self.state, block, ctypes.c_uint64(self.clock), ctypes.c_uint64(0))

    @rule(offset=st.integers(0, SIZE - 1))
    def find(self, offset: int) -> None:
        found = LIBRARY.gf_blocks_find(self.state, ctypes.c_uint64(BASE + offset))
        inside = [a for a, (size, _) in self.live.items() if a <= BASE + offset < a + size]
        assert [found.contents.address] == inside if found else not inside

    @invariant()
    def everything_is_found(self) -> None:
        for address, (size, _) in self.live.items():
            found = LIBRARY.gf_blocks_find(self.state, ctypes.c_uint64(address + size - 1))
            assert found
            assert found.contents.address == address

    def teardown(self) -> None:
        for address in list(self.live):
            self.free(address, "give")
        assert self.take(SIZE, UNIT) == BASE, "free neighbours were not joined"


TestBlocks = Blocks.TestCase
TestBlocks.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)


@pytest.mark.parametrize(("size", "others"), [(UNIT, RESTING), (RESTING_SIZE // 4, 4), (2 * RESTING_SIZE, 1)])
def test_what_rests_is_handed_out_late(size: int, others: int) -> None:
    blocks = Blocks(8 * RESTING_SIZE)
    rested: list[int | None] = []
    for _ in range(others + 1):
        rested.append(blocks.take(size, UNIT))
        assert rested[-1] not in rested[:-1]
        blocks.free(rested[-1], "rest")
    assert blocks.take(size, UNIT) == rested[0]
