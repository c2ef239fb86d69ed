"""Which registers hold the same for all lanes that run together, and which branches part the lanes."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Container, Iterable

from ..model import Immediate, Instruction, Item
from .flow import EXIT, Block, blocks_of, meeting_points, order_of, reached_from
from .record import Recorder
from .rows import Rows, Shape


class Uniformity:
    """`varying`: registers that may differ between lanes that run together; the others are one value for the
    warp. `shared`: registers where a lane may still read what it had before others of its warp wrote: those
    are written under a mask. `parting`: blocks whose branch parts the lanes.

    Two lanes agree on a register as long as they run together. While they are apart, one of them may write
    it. That does no harm where only the lanes on one side of the branch that parted them ever touch it,
    and nobody needs it where they meet again.
    """

    def __init__(self, items: list[Item], record: Recorder, shape: Shape = Shape.ANY) -> None:
        """Classify the registers of `items`. `shape`: what is known of the shape of blocks (rows.py)."""
        self.items = items
        self.record = record
        self.shape = shape
        self.meetings = record.kernel.program.meetings[record.function.index]
        self.same: set[int] = set()
        self.parting: set[int] = set()
        self.varying_bits = self.shared_bits = 0
        self._bits: dict[str, int] = {}
        self._divide(frozenset())
        rows = Rows(items, record, (block.positions for block in self.blocks), shape)
        while shape and not (found := rows.same(self._agrees, self.is_shared)) <= self.same:
            # What follows from what is known for sure is sure as well.
            self.same |= found
            self._solve()

    def _divide(self, begins: Container[int]) -> None:
        endings = self.record.kernel.program.endings[self.record.function.index]
        self.blocks: list[Block] = blocks_of(self.items, begins, endings)
        self.steps = order_of(self.blocks)
        self.reached = {step.block for step in self.steps}
        self.meets = meeting_points(self.blocks, self.reached)
        self._summarise()
        self._liveness()
        self._solve()

    @functools.cached_property
    def constants(self) -> dict[str, int]:
        """Registers that one `mov` of a number writes, and nothing else."""
        writers: defaultdict[str, list[int]] = defaultdict(list)
        for position, pointers in self.record.writes.items():
            for pointer in pointers:
                writers[pointer].append(position)
        found = {}
        for pointer, positions in writers.items():
            item = self.items[positions[0]]
            if len(positions) == 1 and isinstance(item, Instruction) and item.opcode == "mov":
                value = item.operands[1]
                if item.guard is None and isinstance(value, Immediate) and isinstance(value.value, int):
                    found[pointer] = value.value
        return found

    def is_varying(self, pointer: str) -> bool:
        return bool(self.varying_bits >> self._bit(pointer) & 1)

    def is_shared(self, pointer: str) -> bool:
        return bool(self.shared_bits >> self._bit(pointer) & 1)

    def distrust(self) -> None:
        """Lanes may be let go without those that wait: no two of them agree on anything then, until they
        meet."""
        self.same = set()
        self._divide(self.meetings)
        for pointers in (*self.record.reads.values(), *self.record.writes.values()):
            self.varying_bits |= self._mask(pointers)
        self.shared_bits = self.varying_bits
        self.parting = {index for index in self.reached if len(set(self.blocks[index].targets)) > 1}

    def _bit(self, pointer: str) -> int:
        return self._bits.setdefault(pointer, len(self._bits))

    def _mask(self, pointers: Iterable[str]) -> int:
        mask = 0
        for pointer in pointers:
            mask |= 1 << self._bit(pointer)
        return mask

    def _summarise(self) -> None:
        """What each position, and each block before it writes anything else, reads and writes."""
        self.effects: dict[int, list[tuple[int, int, int]]] = {}  # block: (position, reads, writes)
        self.uses: dict[int, int] = {}
        self.kills: dict[int, int] = {}
        self.writes: dict[int, int] = {}
        self.touches: dict[int, int] = {}
        for index in self.reached:
            effects, uses, kills, writes, touches = [], 0, 0, 0, 0
            for position in self.blocks[index].positions:
                item = self.items[position]
                if not isinstance(item, Instruction):
                    continue
                reads = self._mask(self.record.reads.get(position, ()))
                written = self._mask(self.record.writes.get(position, ()))
                if reads or written:
                    effects.append((position, reads, written))
                uses |= reads & ~kills
                if item.guard is None:
                    kills |= written
                writes |= written
                touches |= reads | written
            self.effects[index] = effects
            self.uses[index], self.kills[index] = uses, kills
            self.writes[index], self.touches[index] = writes, touches

    def _liveness(self) -> None:
        self.live_in = dict.fromkeys(self.reached, 0)
        order = [step.block for step in reversed(self.steps) if step.head is None]
        changed = True
        while changed:
            changed = False
            for index in order:
                out = 0
                for each in self.blocks[index].targets:
                    if each != EXIT:
                        out |= self.live_in[each]
                live = self.uses[index] | out & ~self.kills[index]
                if live != self.live_in[index]:
                    self.live_in[index] = live
                    changed = True

    def _agrees(self, pointer: str) -> bool:
        return not self.is_varying(pointer)

    def _solve(self) -> None:
        self.parting = set()
        self.shared_bits = 0
        self.varying_bits = self._mask(self.record.arguments)
        for position in self.record.own - self.same:
            self.varying_bits |= self._mask(self.record.writes.get(position, ()))
        while True:
            self._propagate()
            new = [index for index in self.reached - self.parting if self._parts(index)]
            if not new:
                return
            for index in new:
                self.parting.add(index)
                self.shared_bits |= self._disturbed(index)
            self.varying_bits |= self.shared_bits

    def _propagate(self) -> None:
        changed = True
        while changed:
            before = self.varying_bits
            for effects in self.effects.values():
                for position, reads, written in effects:
                    if reads & self.varying_bits and position not in self.same:
                        self.varying_bits |= written
            changed = before != self.varying_bits

    def _parts(self, index: int) -> bool:
        block = self.blocks[index]
        if block.branch is None or len(set(block.targets)) < 2:
            return False
        reads = self._mask(self.record.reads.get(block.branch, ()))
        return block.branch in self.record.own or bool(reads & self.varying_bits)

    def sides(self, index: int) -> list[set[int]]:
        """The blocks on each side of a branch, up to where the sides meet."""
        meet = self.meets[index]
        found: list[set[int]] = []
        for target in dict.fromkeys(self.blocks[index].targets):
            if target in (EXIT, meet):
                found.append(set())
            else:
                found.append(reached_from(target, self.blocks, meet))
        return found

    def _disturbed(self, index: int) -> int:
        """Registers that lanes on one side write and others may read."""
        sides = self.sides(index)
        meet = self.meets[index]
        needed = self.live_in[meet] if meet != EXIT else 0
        touched = [self._union(self.touches, side) | self._union(self.live_in, side) for side in sides]
        disturbed = 0
        for number, side in enumerate(sides):
            elsewhere = needed
            for other, bits in enumerate(touched):
                if other != number:
                    elsewhere |= bits
            disturbed |= self._union(self.writes, side) & elsewhere
        return disturbed

    def _union(self, bits: dict[int, int], blocks: set[int]) -> int:
        mask = 0
        for block in blocks:
            mask |= bits[block]
        return mask

    def loops_left_apart(self) -> set[int]:
        """Blocks whose branch parts lanes that go on in a loop from those that leave it."""
        number = {step.block: at for at, step in enumerate(self.steps) if step.head is None}
        loops = [(step.head, end) for end, step in enumerate(self.steps) if step.head is not None]
        found = set()
        for index in self.parting:
            targets = [number.get(each, len(self.steps)) for each in self.blocks[index].targets]
            for head, end in loops:
                if head <= number[index] < end and not all(head <= each < end for each in targets):
                    found.add(index)
        return found

    def waits_on_both_sides(self) -> bool:
        """Lanes that were parted could wait for each other at different places. They come together where both
        sides lead to, even if some have ended before and so nothing is behind every way."""
        meeting = {
            index
            for index in self.reached
            for position in self.blocks[index].positions
            if position in self.meetings
        }
        number = {step.block: at for at, step in enumerate(self.steps) if step.head is None}
        ahead = {
            index: [each for each in self.blocks[index].targets if each != EXIT and number[each] > at]
            for index, at in number.items()
        }
        for index in self.parting:
            meet = self.meets[index]
            # A loop's blocks have been done by all before any goes back to its head.
            sides = [_ahead_of(target, ahead, meet) for target in set(ahead[index]) - {meet}]
            everywhere = set.intersection(*sides) if sides else set()
            if sum(bool((side - everywhere) & meeting) for side in sides) > 1:
                return True
        return False


def _ahead_of(start: int, ahead: dict[int, list[int]], end: int) -> set[int]:
    found, pending = {start}, [start]
    while pending:
        new = [each for each in ahead[pending.pop()] if each != end and each not in found]
        found.update(new)
        pending += new
    return found
