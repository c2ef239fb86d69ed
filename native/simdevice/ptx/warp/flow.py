"""The control flow of a function: blocks, which of them follow each other, and the order in which a warp runs
them.

A warp runs the blocks of a function in one order, each with the lanes that have come to it. The order is
such that every edge leads forwards, except those back to the head of a loop; a loop's blocks are next to
each other. So the lanes that parted at a branch meet again at the block that all of them reach, without a
stack of masks.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field

from ..analysis import branch_targets, call_target, visible
from ..model import Instruction, Item, Label

EXIT = -1


@dataclass
class Block:
    """Positions of a body's items. `targets`: blocks that it may go to, EXIT among them; the first is
    taken where the last instruction's guard holds."""

    positions: list[int] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)
    branch: int | None = None  # position of the instruction that decides or ends


@dataclass
class Step:
    """What a warp does at one place of the order: a block, or, at a loop's end, going back to its head."""

    block: int
    head: int | None = None  # of a loop's end: the step of its head


def ends_thread(item: Instruction) -> bool:
    return item.opcode in ("ret", "exit") or (
        item.opcode == "call" and call_target(item)[0] == "__assertfail"
    )


def blocks_of(items: list[Item], begins: Container[int], endings: Container[int] = ()) -> list[Block]:
    """The blocks of a body; the first is its entry. `begins`: positions of instructions that are the first
    of theirs. `endings`: positions of calls from which some lanes may not come back."""
    labels, targets = visible(items, (Label,), {"bra", "brx"}), branch_targets(items)
    blocks = [Block()]
    starts: dict[int, int] = {}  # position of a label: its block
    open_ends: list[tuple[Block, list[int]]] = []
    for position, item in enumerate(items):
        if isinstance(item, Label):
            if blocks[-1].positions:
                blocks.append(Block())
            starts[position] = len(blocks) - 1
        elif isinstance(item, Instruction) and position in begins and blocks[-1].positions:
            blocks.append(Block())
        blocks[-1].positions.append(position)
        if not isinstance(item, Instruction):
            continue
        if position in targets:
            open_ends.append((blocks[-1], [labels[position].get(name, EXIT) for name in targets[position]]))
        elif position in endings or ends_thread(item):
            open_ends.append((blocks[-1], [EXIT]))
        elif item.opcode == "trap" and item.guard is None:
            open_ends.append((blocks[-1], []))
        else:
            continue
        blocks[-1].branch = position
        blocks.append(Block())
    ended = {id(block): targets for block, targets in open_ends}
    for index, block in enumerate(blocks):
        after = index + 1 if index + 1 < len(blocks) else EXIT
        known = ended.get(id(block))
        if known is None:
            block.targets = [after]
            continue
        block.targets = [starts[each] if each != EXIT else EXIT for each in known]
        branch = items[block.branch] if block.branch is not None else None
        if isinstance(branch, Instruction) and (branch.guard is not None or block.branch in endings):
            block.targets.append(after)
    return blocks


def order_of(blocks: list[Block]) -> list[Step]:
    """The steps of a warp: blocks that can be reached, loops together and followed by their ends."""
    steps: list[Step] = []
    reached = reached_from(0, blocks)
    _arrange(blocks, reached, None, steps)
    return steps


def reached_from(start: int, blocks: list[Block], end: int = EXIT) -> set[int]:
    """The blocks that can be reached from one without passing `end`."""
    found, pending = {start}, [start]
    while pending:
        for each in blocks[pending.pop()].targets:
            if each not in (EXIT, end) and each not in found:
                found.add(each)
                pending.append(each)
    return found


def _arrange(blocks: list[Block], members: set[int], head: int | None, steps: list[Step]) -> None:
    """Appends the steps of `members`, a loop whose edges to its head are cut, or without one all that is
    reached. Heads of loops around it are no members."""

    def targets(block: int) -> list[int]:
        return [each for each in blocks[block].targets if each != head and each in members]

    components = _components(members, head or 0, targets)
    of = {block: index for index, component in enumerate(components) for block in component}
    waits = [0] * len(components)
    leads: list[set[int]] = [set() for _ in components]
    for block in members:
        for each in targets(block):
            if of[each] != of[block] and of[each] not in leads[of[block]]:
                leads[of[block]].add(of[each])
                waits[of[each]] += 1
    ready = [(min(components[index]), index) for index in range(len(components)) if waits[index] == 0]
    heapq.heapify(ready)
    while ready:
        _, index = heapq.heappop(ready)
        first, *others = components[index]
        begin = len(steps)
        if others or first in targets(first):
            _arrange(blocks, set(components[index]), first, steps)
            steps.append(Step(first, begin))
        else:
            steps.append(Step(first))
        for each in leads[index]:
            waits[each] -= 1
            if waits[each] == 0:
                heapq.heappush(ready, (min(components[each]), each))


def _components(members: set[int], head: int, targets: Callable[[int], Iterable[int]]) -> list[list[int]]:
    """Tarjan's strongly connected components; the first of each is where a walk from `head` came to it
    first."""
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: list[list[int]] = []
    for start in [head, *sorted(members - {head})]:
        if start in number:
            continue
        number[start] = low[start] = len(number)
        stack.append(start)
        on_stack.add(start)
        walk = [(start, iter(list(targets(start))))]
        while walk:
            block, rest = walk[-1]
            for each in rest:
                if each not in members:
                    continue
                if each not in number:
                    number[each] = low[each] = len(number)
                    stack.append(each)
                    on_stack.add(each)
                    walk.append((each, iter(list(targets(each)))))
                    break
                if each in on_stack:
                    low[block] = min(low[block], number[each])
            else:
                walk.pop()
                if walk:
                    low[walk[-1][0]] = min(low[walk[-1][0]], low[block])
                if low[block] == number[block]:
                    at = stack.index(block)
                    component = stack[at:]
                    del stack[at:]
                    on_stack.difference_update(component)
                    found.append(component)
    return found


def meeting_points(blocks: list[Block], reached: set[int]) -> dict[int, int]:
    """The block that all ways from a block lead to first: its immediate post-dominator. EXIT: none does."""
    exit_number = len(blocks)
    after: dict[int, set[int]] = {}
    everything = reached | {exit_number}
    full = sum(1 << each for each in everything)
    post: dict[int, int] = dict.fromkeys(reached, full)
    post[exit_number] = 1 << exit_number
    for block in reached:
        after[block] = {exit_number if each == EXIT else each for each in blocks[block].targets} or {
            exit_number
        }
    ordered = sorted(reached, reverse=True)
    changed = True
    while changed:
        changed = False
        for block in ordered:
            common = -1
            for each in after[block]:
                common &= post[each]
            common |= 1 << block
            if common != post[block]:
                post[block] = common
                changed = True
    # Of those that come after a block on every way, the nearest is the one that all others come after. A
    # block that comes to no end has none.
    owners = {after_it: block for block, after_it in post.items() if after_it != full}
    found = ((block, owners.get(post[block] & ~(1 << block), exit_number)) for block in reached)
    return {block: EXIT if nearest == exit_number else nearest for block, nearest in found}
