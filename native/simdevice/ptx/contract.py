"""A multiplication and an addition become one fused operation, where PTX permits it and as ptxas does it.

Without a rounding modifier, and only then, a product and a sum may be fused. Which of them are, PTX leaves
open; results are compared with what a GPU gives, so NVIDIA's compiler is followed. Its rules were found by
comparing the code that ptxas 13.0 makes of two texts, never by reading it (tests/ptx/test_contraction.py):

- both stand in one basic block, with no guard before the product; both flush subnormals, or neither;
- every use of the product is the operand of such a sum, by itself, negated or moved, else it is not fused;
- of two products that are added the first is fused, if it can be; a product added to itself is not.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field

from .model import Immediate, Instruction, Item, Operand, Register, Registers, ScopeBegin, ScopeEnd
from .types import TYPES, Type
from .warp.flow import blocks_of
from .warp.record import Recorder

_FUSED = frozenset({"f16", "f16x2", "bf16", "bf16x2", "f32", "f32x2", "f64"})
_SIGNS = 0x8000000080000000  # of both halves of f32x2


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


class _Contraction:
    def __init__(self, items: list[Item], record: Recorder) -> None:
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
        blocks = blocks_of(self.items, lambda item: False)
        live = self._live_behind([(block.positions, block.targets) for block in blocks])
        for block, needed in zip(blocks, live, strict=True):
            self._scan(block.positions, needed)

    def _live_behind(self, blocks: list[tuple[list[int], list[int]]]) -> list[set[str]]:
        """For each block the registers that what follows it may read."""
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
        return behind

    def _scan(self, positions: list[int], needed: set[str]) -> None:
        current: dict[str, Product] = {}  # what registers hold
        for position in positions:
            item = self.items[position]
            if not isinstance(item, Instruction):
                continue
            self._use(position, item, current)
            written = self.record.writes.get(position, set())
            product = self._product(position, item, current)
            for pointer in written:
                before = current.pop(pointer, None)
                if before is not None and item.guard is not None:
                    before.fused = False  # what is read from here on may still be it
            if product is not None:
                current.update(dict.fromkeys(written, product))
        for pointer, held in current.items():
            if pointer in needed:
                held.fused = False

    def _use(self, position: int, item: Instruction, current: dict[str, Product]) -> None:
        """Notes what an instruction does with the products that it reads."""
        read = [current[each] for each in self.record.reads.get(position, ()) if each in current]
        if not read:
            return
        kind = _kind(item, "add", "sub")
        operands: list[Product | None] = [None, None]
        if kind is not None:
            held = [self._held(position, index, current) for index in (1, 2)]
            operands = [each if each is not None and each.kind == kind else None for each in held]
            if None not in operands and len({each.multiplication for each in operands if each}) == 1:
                operands = [None, None]
            self.sums[position] = operands
        for product in read:
            product.uses.append(position)
            if product not in operands and not self._passes_on(item):
                product.fused = False

    def _held(self, position: int, index: int, current: dict[str, Product]) -> Product | None:
        names = self.record.named.get(position, [])
        name = names[index] if index < len(names) else None
        return current.get(name) if isinstance(name, str) else None

    def _passes_on(self, item: Instruction) -> bool:
        """Whether the result is the operand, or its negative."""
        if item.guard is not None or len(item.operands) != 2:
            return False
        return item.opcode in ("mov", "neg") and isinstance(item.operands[1], Register)

    def _product(self, position: int, item: Instruction, current: dict[str, Product]) -> Product | None:
        kind = _kind(item, "mul")
        if kind is not None and item.guard is None and isinstance(item.operands[0], Register):
            found = Product(position, position, kind)
        elif self._passes_on(item) and (base := self._held(position, 1, current)) is not None:
            if not _keeps(item, base):
                base.fused = False
                return None
            negates = item.opcode == "neg"
            found = Product(position, base.multiplication, base.kind, base.negative ^ negates, base)
        else:
            return None
        self.products[position] = found
        return found

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
                if changes or self.scopes[first] != self.scopes[position]:
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
