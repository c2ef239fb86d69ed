"""What the lanes of a warp have in common in blocks of some shapes.

Where the first dimension is a multiple of 32 a warp is a piece of a row, and in a block of one dimension it
always is: tid.y and tid.z are the same for its lanes, and tid.x is a multiple of 32 plus the lane's number,
so all of its bits but the lowest five are the same. A shift by five, or a comparison with a multiple of 32,
gives the same for all lanes, and a branch on it parts none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum

from ..model import Instruction, Item, Vector
from .record import Recorder

_LOW = 31  # the bits in which lanes differ
_TID_BITS = 10  # as many as tid.x has


class Shape(IntEnum):
    """The shape of blocks that code for warps is right for (an object's sim_kernel_rows)."""

    ANY = 0
    ROWS = 1  # the first dimension is a multiple of 32
    LINES = 2  # that, or it is the only one


_BLOCK = {f"%{name}.{axis}" for name in ("ntid", "ctaid", "nctaid") for axis in "xyz"}
_SAME = {"%tid.y", "%tid.z", "%warpid"} | _BLOCK
_WHOLE = {f"{sign}{bits}" for sign in "usb" for bits in (16, 32, 64)}


class Kind(IntEnum):
    """What is known of a value, from most to least. A place where one of two may be has their `join`."""

    ZERO = 0
    MULTIPLE = 1  # of 32, the same for all lanes
    SAME = 2
    THREAD = 3  # as tid.x: from 0 to 1023, and all bits but the lowest five are the same
    HIGH = 4  # all bits but the lowest five are the same
    OTHER = 5


def join(kinds: Iterable[Kind]) -> Kind:
    found = set(kinds)
    worst = max(found)
    return Kind.HIGH if worst == Kind.THREAD and found & {Kind.MULTIPLE, Kind.SAME} else worst


def _parts_low(kind: Kind) -> bool:
    """Lanes differ in the lowest five bits at most."""
    return kind in (Kind.THREAD, Kind.HIGH)


class Rows:
    """The kinds of what a function's instructions write. Where a block writes a register and reads it later,
    that is what counts, else all that is ever written to it."""

    def __init__(
        self, items: list[Item], record: Recorder, blocks: Iterable[list[int]], shape: Shape
    ) -> None:
        self.items = items
        self.width = Kind.MULTIPLE if shape == Shape.ROWS else Kind.SAME  # of a block
        self.record = record
        self.writers: dict[str, list[int]] = {}
        for position, pointers in record.writes.items():
            for pointer in pointers:
                self.writers.setdefault(pointer, []).append(position)
        self.before: dict[
            tuple[int, str], int
        ] = {}  # a position and what it reads: where its block has written it
        for positions in blocks:
            last: dict[str, int] = {}
            for position in positions:
                for pointer in record.reads.get(position, ()):
                    if pointer in last:
                        self.before[position, pointer] = last[pointer]
                last.update(dict.fromkeys(record.writes.get(position, ()), position))

    def same(self, agrees: Callable[[str], bool], mixed: Callable[[str], bool]) -> set[int]:
        """Positions that give the same to all lanes that run together. They agree on the registers for which
        `agrees` says so; those that are `mixed` may have been written while lanes were apart."""
        kinds: dict[str, Kind] = {}
        found: dict[int, Kind] = {}
        for pointer in self.writers:
            kinds[pointer] = Kind.SAME if agrees(pointer) else Kind.OTHER
        # From what is known for sure upwards: a register is as good as the worst that is written to it.
        changed = True
        while changed:
            changed = False
            for position, pointers in self.record.writes.items():
                kind = self._kind(position, kinds, found)
                if kind != found.get(position, Kind.OTHER):
                    found[position] = kind
                    changed = True
                for pointer in pointers:
                    if mixed(pointer):
                        continue
                    worst = join(found.get(each, Kind.OTHER) for each in self.writers[pointer])
                    if worst < kinds[pointer]:
                        kinds[pointer] = worst
                        changed = True
        return {position for position, kind in found.items() if kind <= Kind.SAME}

    def _kind(self, position: int, kinds: dict[str, Kind], found: dict[int, Kind]) -> Kind:
        item = self.items[position]
        if not isinstance(item, Instruction) or item.guard is not None:
            return Kind.OTHER
        rule = _RULES.get(item.opcode)
        if rule is None:
            return Kind.OTHER
        names = self.record.named.get(position, [])

        def of(index: int) -> Kind:
            if index >= len(names):
                return Kind.OTHER
            name = names[index]
            if isinstance(name, int):
                return Kind.SAME if name & _LOW else Kind.MULTIPLE if name else Kind.ZERO
            if name == "%ntid.x":
                return self.width
            if name in _SAME:
                return Kind.SAME
            if name in ("%tid.x", "%laneid"):
                return Kind.THREAD
            if name is None:
                return Kind.OTHER
            written = self.before.get((position, name))
            kind = kinds.get(name, Kind.OTHER)
            return kind if written is None else min(kind, found.get(written, Kind.OTHER))

        known = rule(item, of, names)
        # What is computed from the same is the same, but for whether a shuffle has a lane to take it from.
        alike = known == Kind.OTHER and item.opcode != "shfl"
        alike = alike and all(of(index) <= Kind.SAME for index in range(1, len(names)))
        return Kind.SAME if alike else known


Names = list["str | int | None"]
Rule = Callable[[Instruction, Callable[[int], Kind], Names], Kind]


def _integers(item: Instruction) -> bool:
    """Whether it is about whole numbers only."""
    kinds = [each for each in item.modifiers if each[0] in "usbf" and each[1:].isdigit()]
    return bool(kinds) and all(each in _WHOLE for each in kinds)


def _move(item: Instruction, of: Callable[[int], Kind], names: Names) -> Kind:
    if not _integers(item) or "sat" in item.modifiers:
        return Kind.OTHER
    # The upper part of a multiple is none.
    return max(of(1), Kind.SAME) if isinstance(item.operands[0], Vector) else of(1)


def _sum(first: Kind, second: Kind) -> Kind:
    """Multiples of 32 carry nothing from the lowest bits into the others."""
    low, high = sorted((first, second))
    if low == Kind.ZERO or high <= Kind.SAME:
        return high
    return Kind.HIGH if low == Kind.MULTIPLE and _parts_low(high) else Kind.OTHER


def _product(first: Kind, second: Kind) -> Kind:
    low, high = sorted((first, second))
    return low if high <= Kind.SAME else Kind.OTHER


def _add(item: Instruction, of: Callable[[int], Kind], names: Names) -> Kind:
    plain = _integers(item) and "cc" not in item.modifiers and "sat" not in item.modifiers
    return _sum(of(1), of(2)) if plain else Kind.OTHER


def _subtract(item: Instruction, of: Callable[[int], Kind], names: Names) -> Kind:
    return _add(item, of, names) if of(2) <= Kind.SAME else Kind.OTHER


def _multiply(item: Instruction, of: Callable[[int], Kind], names: Names) -> Kind:
    if not _integers(item) or "hi" in item.modifiers:
        return Kind.OTHER
    return _product(of(1), of(2))


def _multiply_add(item: Instruction, of: Callable[[int], Kind], names: Names) -> Kind:
    if not _integers(item) or {"hi", "cc", "sat"} & set(item.modifiers):
        return Kind.OTHER
    return _sum(_product(of(1), of(2)), of(3))


def _by_bits(item: Instruction, of: Callable[[int], Kind], names: Names) -> Kind:
    """Each bit by itself; `and` with a multiple of 32 leaves nothing in which lanes differ."""
    kinds = [of(1)] if item.opcode == "not" else [of(1), of(2)]
    if not _integers(item) or max(kinds) == Kind.OTHER:
        return Kind.OTHER
    if item.opcode == "and" and min(kinds) <= Kind.MULTIPLE:
        return min(kinds)
    return Kind.HIGH if max(kinds) > Kind.SAME else Kind.SAME


def _amount(names: Names, index: int) -> int:
    """A number that stands in the text, else -1."""
    name = names[index] if index < len(names) else None
    return name if isinstance(name, int) and name >= 0 else -1


def _shift_left(item: Instruction, of: Callable[[int], Kind], names: Names) -> Kind:
    return Kind.MULTIPLE if of(1) <= Kind.SAME and _amount(names, 2) >= 5 else Kind.OTHER


def _shift_right(item: Instruction, of: Callable[[int], Kind], names: Names) -> Kind:
    amount = _amount(names, 2)
    if of(1) == Kind.ZERO or (of(1) == Kind.THREAD and amount >= _TID_BITS):
        return Kind.ZERO  # so begins the division of signed numbers
    return Kind.SAME if _parts_low(of(1)) and amount >= 5 else Kind.OTHER


def _divide(item: Instruction, of: Callable[[int], Kind], names: Names) -> Kind:
    by = _amount(names, 2)
    unsigned = any(each in ("u32", "u64") for each in item.modifiers)
    known = of(1) == Kind.THREAD or (unsigned and of(1) == Kind.HIGH)
    return Kind.SAME if known and by > 0 and by % 32 == 0 else Kind.OTHER


def _extract(item: Instruction, of: Callable[[int], Kind], names: Names) -> Kind:
    known = _parts_low(of(1)) and of(3) <= Kind.SAME
    return Kind.SAME if known and 5 <= _amount(names, 2) < 256 else Kind.OTHER


def _compare(item: Instruction, of: Callable[[int], Kind], names: Names) -> Kind:
    """Less than a multiple of 32 are all lanes or none; so are those up to the number before one."""
    how = item.modifiers[0] if item.modifiers else ""
    if len(item.modifiers) != 2 or not _integers(item) or not _parts_low(of(1)) or len(names) != 3:
        return Kind.OTHER
    if how in ("lt", "ge", "lo", "hs"):
        return Kind.SAME if of(2) <= Kind.MULTIPLE else Kind.OTHER
    if how in ("le", "gt", "ls", "hi"):
        return Kind.SAME if _amount(names, 2) % 32 == _LOW and _amount(names, 2) > 0 else Kind.OTHER
    return Kind.OTHER


def _shuffle(item: Instruction, of: Callable[[int], Kind], names: Names) -> Kind:
    """What one lane has, given to all: so programs tell the compiler that it is the same for a warp."""
    whole = names[3:4] == [_LOW]
    return Kind.SAME if "idx" in item.modifiers and whole and of(2) <= Kind.SAME else Kind.OTHER


_RULES: dict[str, Rule] = {
    "mov": _move,
    "cvt": _move,
    "add": _add,
    "sub": _subtract,
    "mul": _multiply,
    "mad": _multiply_add,
    "shl": _shift_left,
    "shr": _shift_right,
    "div": _divide,
    "bfe": _extract,
    "setp": _compare,
    "shfl": _shuffle,
    **dict.fromkeys(("and", "or", "xor", "not"), _by_bits),
}
