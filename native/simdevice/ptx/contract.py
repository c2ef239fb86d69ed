"""A multiplication and an addition become one fused operation, where PTX permits it and as ptxas does it.

Without a rounding modifier, and only then, a product and a sum may be fused. Which of them are, PTX leaves
open; results are compared with what a GPU gives, so NVIDIA's compiler is followed. Its rules were found by
comparing the code that ptxas 13.0 makes of two texts, never by reading it (tests/ptx/test_contraction.py):

- both flush subnormals, or neither; there is no guard before the product;
- both stand in one basic block (a label that nothing else branches to begins none), or a factor is a
  constant: a literal, a parameter of the kernel, what ld.const loads from a fixed address, a copy or negative
  of one;
- every use of the product is the operand of such a sum, by itself, negated or moved, else it is not fused;
  where ways meet and the register may hold something else, that is another use;
- of two products that are added the first is fused, if it can be; a product added to itself is not.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field

from .model import Immediate, Instruction, Item, Operand, Register, Registers, ScopeBegin, ScopeEnd
from .types import TYPES, Type
from .warp.flow import Block, blocks_of, reached_from
from .warp.record import Recorder

_FUSED = frozenset({"f16", "f16x2", "bf16", "bf16x2", "f32", "f32x2", "f64"})
_SIGNS = 0x8000000080000000  # of both halves of f32x2
_OTHER = -1  # what is no product

# Of each block the positions and the blocks that follow it.
Flow = list[tuple[list[int], list[int]]]


@dataclass(eq=False)
class Product:
    """A product, perhaps negated or moved, and where its value is used."""

    position: int
    multiplication: int  # position
    kind: tuple[str, bool]  # type, whether subnormals are flushed
    negative: bool = False
    base: Product | None = None  # of which it is a copy or the negative
    fused: bool = True  # as far as is known
    uses: list[int] = field(default_factory=list)


def contract(items: list[Item], record: Recorder) -> list[Item] | None:
    """The items with sums fused; None: there are none to fuse. `record`: of the same items."""
    kinds = {kind for item in items if (kind := _kind(item, "mul")) is not None}
    if not kinds or not any(_kind(item, "add", "sub") in kinds for item in items):
        return None
    return _Contraction(items, record).result()


def _kind(item: Item, *opcodes: str) -> tuple[str, bool] | None:
    """Type and flushing of an instruction that leaves open how it rounds; None: it is no such one."""
    if not isinstance(item, Instruction) or item.opcode not in opcodes or len(item.operands) != 3:
        return None
    name = item.modifiers[-1] if item.modifiers else ""
    rest = set(item.modifiers[:-1])
    if name not in _FUSED or not rest <= {"ftz", "sat"} or ("sat" in rest and item.opcode == "mul"):
        return None
    return name, "ftz" in rest


def _is_product(item: Instruction) -> bool:
    return _kind(item, "mul") is not None and item.guard is None and isinstance(item.operands[0], Register)


def _groups(blocks: list[Block]) -> list[int]:
    """For each block the first of those that always run one after the other with it."""
    reached = reached_from(0, blocks)
    sources: dict[int, set[int]] = {}
    for index in reached:
        for target in blocks[index].targets:
            sources.setdefault(target, set()).add(index)
    groups = list(range(len(blocks)))
    for index in sorted(reached):
        follow = index
        while len(set(blocks[follow].targets)) == 1:
            following = blocks[follow].targets[0]
            if following <= 0 or len(sources[following]) > 1 or groups[following] != following:
                break
            groups[following] = groups[index]
            follow = following
    return groups


class _Contraction:
    def __init__(self, items: list[Item], record: Recorder) -> None:
        self.block_of: dict[int, int] = {}  # by position
        self.constants: set[str] = set()
        self.tracked: set[str] = set()  # registers that may hold a product
        self.items = items
        self.record = record
        self.products: dict[int, Product] = {}  # by position
        self.sums: dict[int, list[Product | None]] = {}  # what the two operands of a sum are
        self.scopes = self._scopes()
        self._find()
        self._choose()

    def _scopes(self) -> list[int]:
        """The scope that each item is in."""
        scopes, stack, number = [], [0], 0
        for item in self.items:
            if isinstance(item, ScopeBegin):
                number += 1
                stack.append(number)
            elif isinstance(item, ScopeEnd):
                stack.pop()
            scopes.append(stack[-1])
        return scopes

    # Which products there are, and what uses them

    def _find(self) -> None:
        blocks = blocks_of(self.items, ())
        groups = _groups(blocks)
        self.block_of = {at: groups[index] for index, block in enumerate(blocks) for at in block.positions}
        self.constants = self._constants()
        self.tracked = self._tracked()
        live = self._live_before([(block.positions, block.targets) for block in blocks])
        flow = [
            (
                [at for at in block.positions if self.record.writes.get(at, set()) & self.tracked],
                block.targets,
            )
            for block in blocks
        ]
        before = self._held_before(flow, [each & self.tracked for each in live])
        # A product's base: of which it is a copy or the negative.
        bases: dict[int, int | None] = {}
        behind = [self._after(writing, held, bases) for (writing, _), held in zip(flow, before, strict=True)]
        self._make(bases)
        for index, block in enumerate(blocks):
            known = {pointer: self.products[made] for pointer, made in before[index].items() if made >= 0}
            self._scan(block.positions, known)
            for target in (each for each in block.targets if each >= 0):
                for pointer, made in behind[index].items():
                    if made >= 0 and pointer in live[target] and before[target][pointer] != made:
                        self.products[made].fused = False

    def _constants(self) -> set[str]:
        """The registers that are written once, with a constant."""
        writers: dict[str, list[int]] = {}
        for position, written in self.record.writes.items():
            for pointer in written:
                writers.setdefault(pointer, []).append(position)
        once = {pointer: found[0] for pointer, found in writers.items() if len(found) == 1}
        known: set[str] = set()
        for pointer, position in sorted(once.items(), key=lambda each: each[1]):
            item = self._instruction(position)
            if item.guard is not None or not item.modifiers:
                continue
            loads = item.opcode == "ld" and not self.record.reads.get(position)
            of_kernel = self.record.function.is_kernel and {"param", "param::entry"} & set(item.modifiers)
            copies = item.opcode in ("mov", "neg") and len(item.operands) == 2
            if (loads and ("const" in item.modifiers or of_kernel)) or (
                copies and (isinstance(item.operands[1], Immediate) or self._name(position, 1) in known)
            ):
                known.add(pointer)
        return known

    def _reaches(self, product: Product, position: int) -> bool:
        """Whether a sum there can be fused with it, as far as the blocks matter."""
        first = product.multiplication
        if self.block_of[first] == self.block_of[position]:
            return True
        factors = self._instruction(first).operands[1:3]
        return any(
            isinstance(factor, Immediate) or self._name(first, index) in self.constants
            for index, factor in enumerate(factors, 1)
        )

    def _tracked(self) -> set[str]:
        """The registers that hold a product somewhere, or a copy of one."""
        tracked: set[str] = set()
        copies: list[tuple[str, set[str]]] = []
        for position, item in enumerate(self.items):
            written = self.record.writes.get(position)
            if not written or not isinstance(item, Instruction):
                continue
            if _is_product(item):
                tracked |= written
            elif self._passes_on(item):
                copies.append((self._name(position, 1), written))
        changed = True
        while changed:
            changed = False
            for name, written in copies:
                if name in tracked and not written <= tracked:
                    tracked |= written
                    changed = True
        return tracked

    def _held_before(self, flow: Flow, live: list[set[str]]) -> list[dict[str, int]]:
        """What tracked registers that are read from there on hold in front of each block: the product of a
        position, or something else. What was never written is whatever it needs to be."""
        sources: list[list[int]] = [[] for _ in flow]
        for index, (_, targets) in enumerate(flow):
            for target in targets:
                if target >= 0:
                    sources[target].append(index)
        before: list[dict[str, int]] = [{} for _ in flow]
        before[0] = dict.fromkeys(self.record.arguments & self.tracked, _OTHER)
        behind = [self._after(writing, held, {}) for (writing, _), held in zip(flow, before, strict=True)]
        changed = True
        while changed:
            changed = False
            for index, (writing, _) in enumerate(flow):
                merged = dict(before[index])
                for source in sources[index]:
                    for pointer, made in behind[source].items():
                        if pointer in live[index] and merged.setdefault(pointer, made) != made:
                            merged[pointer] = _OTHER
                if merged != before[index]:
                    changed = True
                    before[index] = merged
                    behind[index] = self._after(writing, merged, {})
        return before

    def _after(
        self, writing: list[int], held: dict[str, int], bases: dict[int, int | None]
    ) -> dict[str, int]:
        """What registers hold behind these positions; notes the bases of the products that are made there."""
        held = dict(held)
        for position in writing:
            item, written = self._instruction(position), self.record.writes[position]
            made = _OTHER
            if _is_product(item):
                made, bases[position] = position, None
            elif self._passes_on(item) and (name := self._name(position, 1)) in self.tracked:
                if name not in held:
                    for pointer in written:
                        held.pop(pointer, None)
                    continue
                if held[name] >= 0:
                    made, bases[position] = position, held[name]
            held.update(dict.fromkeys(written, made))
        return held

    def _make(self, bases: dict[int, int | None]) -> None:
        for position in bases:
            chain: list[int] = []
            at: int | None = position
            while at is not None and at not in self.products:
                chain.append(at)
                at = bases[at]
            for each in reversed(chain):
                item, base = self._instruction(each), bases[each]
                if base is None:
                    kind = _kind(item, "mul")
                    assert kind is not None
                    self.products[each] = Product(each, each, kind)
                    continue
                of = self.products[base]
                negative = of.negative ^ (item.opcode == "neg")
                self.products[each] = Product(each, of.multiplication, of.kind, negative, of)
                if not _keeps(item, of):
                    of.fused = self.products[each].fused = False

    def _live_before(self, blocks: Flow) -> list[set[str]]:
        """For each block the registers that it or what follows it may read before it is written."""
        reads, writes = [], []
        for positions, _ in blocks:
            read: set[str] = set()
            written: set[str] = set()
            for position in positions:
                item = self.items[position]
                read |= self.record.reads.get(position, set()) - written
                if isinstance(item, Instruction) and item.guard is None:
                    written |= self.record.writes.get(position, set())
            reads.append(read)
            writes.append(written)
        before = [set(read) for read in reads]
        behind: list[set[str]] = [set() for _ in blocks]
        changed = True
        while changed:
            changed = False
            for index in range(len(blocks) - 1, -1, -1):
                after = set().union(*(before[target] for target in blocks[index][1] if target >= 0))
                if after != behind[index]:
                    behind[index] = after
                    before[index] = reads[index] | (after - writes[index])
                    changed = True
        return before

    def _scan(self, positions: list[int], current: dict[str, Product]) -> None:
        """`current`: what registers hold in front of them."""
        for position in positions:
            item = self.items[position]
            if not isinstance(item, Instruction):
                continue
            self._use(position, item, current)
            product = self.products.get(position)
            for pointer in self.record.writes.get(position, ()):
                before = current.pop(pointer, None)
                if before is not None and item.guard is not None:
                    before.fused = False  # what is read from here on may still be it
                if product is not None:
                    current[pointer] = product

    def _use(self, position: int, item: Instruction, current: dict[str, Product]) -> None:
        """Notes what an instruction does with the products that it reads."""
        read = [current[each] for each in self.record.reads.get(position, ()) if each in current]
        if not read:
            return
        kind = _kind(item, "add", "sub")
        operands: list[Product | None] = [None, None]
        if kind is not None:
            held = [self._held(position, index, current) for index in (1, 2)]
            operands = [
                each if each is not None and each.kind == kind and self._reaches(each, position) else None
                for each in held
            ]
            if None not in operands and len({each.multiplication for each in operands if each}) == 1:
                operands = [None, None]
            self.sums[position] = operands
        for product in read:
            product.uses.append(position)
            if product not in operands and not self._passes_on(item):
                product.fused = False

    def _name(self, position: int, index: int) -> str:
        """The register that is an operand, or another name; empty if there is none."""
        named = self.record.named.get(position, [])
        name = named[index] if index < len(named) else None
        return name if isinstance(name, str) else ""

    def _held(self, position: int, index: int, current: dict[str, Product]) -> Product | None:
        return current.get(self._name(position, index))

    def _passes_on(self, item: Instruction) -> bool:
        """Whether the result is the operand, or its negative."""
        if item.guard is not None or len(item.operands) != 2:
            return False
        return item.opcode in ("mov", "neg") and isinstance(item.operands[1], Register)

    # Which of them are fused

    def _choose(self) -> None:
        changed = True
        while changed:
            changed = False
            for product in self.products.values():
                if product.fused and not self._is_fused(product):
                    product.fused = False
                    changed = True

    def _chosen(self, position: int) -> Product | None:
        return next((each for each in self.sums[position] if each is not None and each.fused), None)

    def _is_fused(self, product: Product) -> bool:
        if not product.uses or (product.base is not None and not product.base.fused):
            return False
        return all(
            self._chosen(use) is product if use in self.sums else self.products[use].fused
            for use in product.uses
        )

    # What becomes of them

    def result(self) -> list[Item] | None:
        fused = {position: found for position in self.sums if (found := self._chosen(position)) is not None}
        if not fused:
            return None
        gone = {each.position for each in self.products.values() if each.fused}
        kept = self._kept(fused)
        declared: list[Item] = []
        made: list[Item] = []

        def register(name: str) -> Register:
            found = Register(f"%contracted${len(declared)}")
            declared.append(Registers(_bits(name), [(found.name, 0)], 1))
            return found

        copies = {place: register(self.products[place[0]].kind[0]) for place in sorted(kept)}
        for position, item in enumerate(self.items):
            if position in gone:
                for place in (place for place in copies if place[0] == position):
                    made.append(self._copy(place, copies[place]))
            elif position in fused:
                made += self._fuse(position, fused[position], copies, register)
            else:
                made.append(item)
        return [*declared, *made]

    def _kept(self, fused: dict[int, Product]) -> set[tuple[int, int]]:
        """Operands of multiplications that have changed, or are not seen, where they are needed."""
        writers: dict[str, list[int]] = {}
        for position in sorted(self.record.writes):
            for pointer in self.record.writes[position]:
                writers.setdefault(pointer, []).append(position)
        kept = set()
        for position, product in fused.items():
            first = product.multiplication
            for index in (1, 2):
                name = self.record.named[first][index]
                if not isinstance(name, str):
                    continue
                at = writers.get(name, [])
                changes = bisect_right(at, first) < bisect_left(at, position)
                if (
                    changes
                    or self.block_of[first] != self.block_of[position]
                    or self.scopes[first] != self.scopes[position]
                ):
                    kept.add((first, index))
        return kept

    def _copy(self, place: tuple[int, int], to: Register) -> Instruction:
        multiplication = self._instruction(place[0])
        modifiers = (_bits(self.products[place[0]].kind[0]).name,)
        return Instruction("mov", modifiers, [to, multiplication.operands[place[1]]], multiplication.line)

    def _fuse(
        self,
        position: int,
        product: Product,
        copies: dict[tuple[int, int], Register],
        register: Callable[[str], Register],
    ) -> list[Item]:
        item = self._instruction(position)
        name = product.kind[0]
        operands = self._instruction(product.multiplication).operands
        a, b = (copies.get((product.multiplication, index), operands[index]) for index in (1, 2))
        is_first = self.sums[position][0] is product
        c = item.operands[2 if is_first else 1]
        negative = product.negative
        made: list[Item] = []

        def negated(operand: Operand) -> Operand:
            to = register(name)
            if name == "f32x2":
                made.append(Instruction("xor", ("b64",), [to, operand, Immediate(_SIGNS)], item.line))
            else:
                made.append(Instruction("neg", (name,), [to, operand], item.line))
            return to

        if item.opcode == "sub":
            if is_first:
                c = negated(c)
            else:
                negative = not negative
        if negative:
            a = negated(a)
        fma = Instruction(
            "fma",
            ("rn", *item.modifiers),
            [item.operands[0], a, b, c],
            item.line,
            item.guard,
            item.guard_negated,
        )
        return [*made, fma]

    def _instruction(self, position: int) -> Instruction:
        item = self.items[position]
        assert isinstance(item, Instruction)
        return item


def _keeps(item: Instruction, product: Product) -> bool:
    """Whether a move, or a change of sign, leaves all else of a product as it is."""
    name, flushes = product.kind
    if item.opcode == "neg":
        return item.modifiers == (name,) or (flushes and item.modifiers == ("ftz", name))
    return len(item.modifiers) == 1 and _width(item.modifiers[0]) == _width(name)


def _width(name: str) -> int:
    found = TYPES.get(name)
    return found.bits if found is not None else 0


def _bits(name: str) -> Type:
    """The type of a register that holds bits of a type."""
    return TYPES[f"b{TYPES[name].bits}"]
