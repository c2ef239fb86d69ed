"""Addresses that a kernel forms, where it is held to its own memory (KernelContext.checked).

Device memory is one range with nothing near it (addresses.h). So one comparison of the register that an
address is formed with is enough: what a constant offset adds leads to device memory or to a fault. Local
memory does not lie on the machine's stack then, where return addresses lie.
"""

from __future__ import annotations

from ..model import Item, Local
from ..usage import taken
from .layout import THREAD
from .writer import Writer

BEGIN, END, MARGIN = 0x1100_0000_0000, 0x4000_0000_0000, 1 << 40  # addresses.h
LARGEST = 1 << 16  # bytes of one access, at most


def in_device(e: Writer, address: str) -> str:
    offset = e.op(f"sub i64 {address}, {BEGIN}")
    return e.op(f"icmp ult i64 {offset}, {END - BEGIN}")


def in_local(e: Writer, address: str, size: int) -> str:
    """Whether `size` bytes there are the thread's; it may have fewer in all, or none (a stack limit of 0)."""
    begin, end = e.local_bound("local"), e.local_bound("local_end")
    length = e.op(f"sub i64 {end}, {begin}")
    places = e.intrinsic("llvm.usub.sat.i64", "i64", f"i64 {length}", f"i64 {size - 1}")
    return e.op(f"icmp ult i64 {e.op(f'sub i64 {address}, {begin}')}, {places}")


def check(e: Writer, base: str, address: str, offset: int, space: str, size: int, writes: bool) -> None:
    """Ends the grid unless `size` bytes at `address`, which is `base` + `offset`, may be touched."""
    if size > LARGEST:
        raise e.fail("an access is too large")
    if space == "local":
        _stop_unless(e, in_local(e, address, size), address)
        return
    inside = in_device(e, base if abs(offset) < MARGIN // 2 else address)
    if space in ("global", "const"):
        _stop_unless(e, inside, address)
        return
    elsewhere, asked, good = e.label(), e.label(), e.label()
    e.branch_if(inside, good, elsewhere)
    e.open(elsewhere)
    e.branch_if(in_local(e, address, size), good, asked)
    e.open(asked)
    e.call("void", "sim_rt_reach", "ptr %thread", f"i64 {address}", f"i32 {size}", f"i32 {int(writes)}")
    e.open(good)


def _stop_unless(e: Writer, condition: str, address: str) -> None:
    bad, good = e.label(), e.label()
    e.branch_if(e.op(f"xor i1 {condition}, true"), bad, good, rare=True)
    e.open(bad)
    e.call("void", "sim_rt_illegal", "ptr %thread", f"i64 {address}", attributes=" cold noreturn")
    e.finish("unreachable")
    e.open(good)


ALIGN = 16
LARGEST_ALIGN = 64  # of what a warp takes at once


class Frame:
    """The part of local memory that a function's variables take while it runs."""

    def __init__(self) -> None:
        self.size = 0
        self.align = ALIGN

    def place(self, size: int, align: int) -> int:
        offset = -(-self.size // align) * align
        self.size = offset + max(size, 1)
        self.align = max(self.align, align)
        return offset

    def taken(self, align: int) -> int:
        """The bytes to take if what is free begins at a multiple of `align`, which may be before %frame."""
        return -(-self.size // align) * align + max(self.align - align, 0)

    def prologue(self, is_kernel: bool) -> list[str]:
        """Takes the frame: %frame, and %frame.free for the way out."""
        top, end = THREAD["local_top"], THREAD["local_end"]
        size = self.taken(ALIGN)
        return [
            f"  %frame.top = getelementptr i8, ptr %thread, i64 {top}",
            f"  %frame.from = getelementptr i8, ptr %thread, i64 {THREAD['local'] if is_kernel else top}",
            f"  %frame.end = getelementptr i8, ptr %thread, i64 {end}",
            "  %frame.limit = load i64, ptr %frame.end, align 8",
            "  %frame.free = load ptr, ptr %frame.from, align 8",
            "  %frame.at = ptrtoint ptr %frame.free to i64",
            "  %frame.left = sub i64 %frame.limit, %frame.at",
            f"  %frame.full = icmp ult i64 %frame.left, {size}",
            "  br i1 %frame.full, label %frame.none, label %frame.take, !prof !1",
            "frame.none:",
            "  call void @sim_rt_overflow(ptr %thread)",
            "  unreachable",
            "frame.take:",
            f"  %frame.next = getelementptr i8, ptr %frame.free, i64 {size}",
            "  store ptr %frame.next, ptr %frame.top, align 8",
            *self.aligned(ALIGN),
        ]

    def aligned(
        self, align: int, pointer: str = "ptr", address: str = "i64", constant: str = "{}"
    ) -> list[str]:
        """%frame: the first place in %frame.free, a multiple of `align`, that suits all variables."""
        if self.align <= align:
            return [f"  %frame = getelementptr i8, {pointer} %frame.free, i64 0"]
        return [
            f"  %frame.address = ptrtoint {pointer} %frame.free to {address}",
            f"  %frame.up = add {address} %frame.address, {constant.format(self.align - 1)}",
            f"  %frame.first = and {address} %frame.up, {constant.format(-self.align)}",
            f"  %frame = inttoptr {address} %frame.first to {pointer}",
        ]


def place_locals(e: Writer, items: list[Item], frame: Frame) -> dict[int, int]:
    """Offsets in the frame of variables whose addresses are taken, by their positions in the body."""
    known = taken(items)
    places: dict[int, int] = {}
    for position, item in enumerate(items):
        if isinstance(item, Local) and item.space != "shared" and item.name in known:
            places[position] = frame.place(item.size, max(item.align, ALIGN))
    return places
