"""Which registers of a function may be read before they are written, found in its LLVM IR."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from dataclasses import dataclass, field

_REGISTER = re.compile(r"%r\d+\.[\w.$]+")
_TARGET = re.compile(r"label %([\w.$]+)")


@dataclass(slots=True)
class _Block:
    """`reads`: registers that it reads before it writes them."""

    label: str
    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)
    targets: list[str] = field(default_factory=list)


def read_first(lines: Iterable[str], ignored: Container[str] = ()) -> set[str]:
    """The allocas of registers (`%r0.name`) that some path from the first line reads before it writes them.
    Lines that are `ignored` count as if they were not there."""
    blocks = _blocks(lines, ignored)
    numbers = {name: number for number, name in enumerate(set().union(*(block.reads for block in blocks)))}
    steps = []
    for block in reversed(blocks):
        reads = sum(1 << numbers[name] for name in block.reads)
        writes = sum(1 << numbers[name] for name in block.writes if name in numbers)
        steps.append((block.label, reads, ~writes, block.targets))
    live = dict.fromkeys((block.label for block in blocks), 0)
    changed = True
    while changed:
        changed = False
        for label, reads, kept, targets in steps:
            behind = 0
            for target in targets:
                behind |= live[target]
            found = reads | behind & kept
            if found != live[label]:
                live[label], changed = found, True
    return {name for name, number in numbers.items() if live[blocks[0].label] >> number & 1}


def _blocks(lines: Iterable[str], ignored: Container[str]) -> list[_Block]:
    blocks = [_Block("")]
    block = blocks[0]
    for line in lines:
        if not line.startswith(" "):
            block = _Block(line.rstrip(":"))
            blocks.append(block)
        elif "%r" in line and line not in ignored:
            written = _written(line)
            if written:
                block.writes.add(written)
            else:
                used = _REGISTER.findall(line.partition(" = ")[2] or line)
                block.reads.update(name for name in used if name not in block.writes)
        if "label %" in line:
            block.targets += _TARGET.findall(line)
    return blocks


def _written(line: str) -> str:
    """The register that a line stores to and does not read, or nothing."""
    if not line.startswith("  store "):
        return ""
    value, _, pointer = line.partition(", ptr ")
    register = _REGISTER.match(pointer)
    return register[0] if register and "%r" not in value else ""
