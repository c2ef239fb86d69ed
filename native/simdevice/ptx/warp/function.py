"""Emits one PTX function for the threads of a warp, which run in step (flow.py, uniform.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ..emit import layout
from ..emit.function import FunctionEmitter, Handler, Place, Scope, Slot
from ..emit.modifiers import Modifiers
from ..errors import PtxError
from ..kernel import KernelContext
from ..model import Address, Function, Immediate, Instruction, Item, Local, Operand, Register
from ..types import Type
from .uniform import Uniformity
from .widen import WARP, NotVector, Widener, names, store_of, vector

IOTA = "<" + ", ".join(f"i32 {lane}" for lane in range(WARP)) + ">"
ATTRIBUTES = (
    'nounwind null_pointer_is_valid "min-legal-vector-width"="512" "prefer-vector-width"="512" '
    '"probe-stack"="inline-asm"'
)
ENTRY = "sim_kernel_run_warp"
# Loads and stores of a function that has no more of them are inlined.
_SMALL = 64
# The lanes take turns in these, whatever the operands.
_IN_TURNS = {"atom", "call", "mbarrier", "red"}
# And where each lane changes an mbarrier, whatever else it does.
_COUNTING = {"mbarrier", "mbarrier::complete_tx::bytes"}
# Not worth a branch where no lane may be there.
_QUICK = {"add", "sub", "mul", "mad", "fma", "mov", "selp", "setp", "and", "or", "xor", "not", "shl", "shr"}
_QUICK |= {"neg", "abs", "min", "max", "cvt", "lop3", "bfe", "bfi", "prmt"}


class Unsuitable(Exception):
    """A kernel, or what is found in one, that runs a thread at a time instead."""


class Noting(Protocol):
    """Who emits more beside what an instruction writes."""

    def note(self, position: int, instruction: Instruction) -> None:
        """Is called when the instruction at a position has been emitted."""


@dataclass
class Turn:
    """While the lanes take turns: whose turn it is, and what lies in memory for all of them."""

    lane: str
    thread: str
    arrays: dict[str, str] = field(default_factory=dict)  # vector or register: its array
    spills: list[tuple[str, str, str]] = field(default_factory=list)  # array, vector, type of an element
    loaded: list[tuple[Slot, str]] = field(default_factory=list)  # registers and their arrays
    written: set[str] = field(default_factory=set)
    buffers: dict[str, tuple[str, Place]] = field(default_factory=dict)  # parameters: this lane's copy


class WarpEmitter(FunctionEmitter):
    """Values are vectors where lanes may differ (`kinds`), else as for one thread. `mask`: the lanes that
    run."""

    def __init__(
        self,
        kernel: KernelContext,
        function: Function,
        items: list[Item],
        yields: set[int],
        handler_of: Callable[[Instruction], Handler | None],
        plan: Uniformity,
        warp_handlers: Mapping[str, Callable[[WarpEmitter, Instruction, Modifiers], None]],
    ) -> None:
        super().__init__(kernel, function, items, yields, handler_of)
        self.plan = plan
        self.warp_handlers = warp_handlers
        self.kinds: dict[str, str] = {}
        accesses = sum(isinstance(item, Instruction) and item.opcode in ("ld", "st") for item in items)
        # Whether loads and stores are worth their code at each place.
        self.is_small = accesses <= _SMALL and not kernel.quick
        self.widener = Widener(self.spread, self.kinds.get)
        self.entry_name = ENTRY  # of a kernel
        self.mask = "%mask.in"
        self.narrowed = False
        self.repeats = False  # what is emitted is part of a loop
        self.turn: Turn | None = None
        self.numbers: Noting | None = None  # where lines are worth it (neighbours.py)
        self._spare_arrays: dict[str, list[str]] = {}
        self.visible: dict[int, list[Scope]] = {}  # what an instruction sees

    # Values

    def varies(self, value: str) -> bool:
        return value in self.kinds

    def raw(self, text: str) -> None:
        """Emits what is already of vectors."""
        super().emit(text)

    def raw_op(self, text: str, kind: str = "") -> str:
        """`kind`: the type of a lane's value, if the result is a vector."""
        name = self.temporary()
        self.raw(f"{name} = {text}")
        if kind:
            self.kinds[name] = kind
        return name

    def spread(self, kind: str, value: str) -> str:
        """Return a scalar as a vector that has it in every lane."""
        known = self.kinds.get(value)
        if known is not None:
            if known != kind:
                raise NotVector(f"{value} of {known}, not of {kind}")
            return value
        if not value.startswith("%"):
            return f"splat ({kind} {value})"
        first = self.raw_op(f"insertelement {vector(kind)} poison, {kind} {value}, i64 0")
        zeros = f"<{WARP} x i32> zeroinitializer"
        wide = f"shufflevector {vector(kind)} {first}, {vector(kind)} poison, {zeros}"
        return self.raw_op(wide, kind)

    def op(self, text: str) -> str:
        if self.turn is not None:
            return super().op(self._of_this_lane(text))
        if not any(name in self.kinds for name in names(text)):
            return super().op(text)
        wide = self.widener.instruction(text)
        return self.raw_op(wide.text, wide.kind)

    def emit(self, text: str) -> None:
        if self.turn is not None:
            self.raw(self._of_this_lane(text))
            return
        if not any(name in self.kinds for name in names(text)):
            self.raw(text)
            return
        store = store_of(text)
        if store is None or store[2] not in self.kinds:
            raise NotVector(text)
        self.scatter(*store)

    def gather(self, kind: str, pointers: str, align: int) -> str:
        """Load from each lane's pointer, in lanes of the mask; the others get zero."""
        name = f"llvm.masked.gather.v{WARP}{_letter(kind)}.v{WARP}p0"
        arguments = f"{vector('ptr')}, i32 immarg, {vector('i1')}, {vector(kind)}"
        self.kernel.declare(name, f"{vector(kind)} @{name}({arguments})")
        mask, nothing = f"{vector('i1')} {self.mask}", f"{vector(kind)} zeroinitializer"
        given = f"{vector('ptr')} {pointers}, i32 {align}, {mask}, {nothing}"
        return self.raw_op(f"call {vector(kind)} @{name}({given})", kind)

    def scatter(self, kind: str, value: str, pointers: str, align: int) -> None:
        """Stores to each lane's pointer; of lanes that share one the last wins."""
        name = f"llvm.masked.scatter.v{WARP}{_letter(kind)}.v{WARP}p0"
        arguments = f"{vector(kind)}, {vector('ptr')}, i32 immarg, {vector('i1')}"
        self.kernel.declare(name, f"void @{name}({arguments})")
        given = f"{vector(kind)} {self.spread(kind, value)}, {vector('ptr')} {pointers}, i32 {align}"
        self.raw(f"call void @{name}({given}, {vector('i1')} {self.mask})")

    def intrinsic(self, name: str, result: str, *arguments: str) -> str:
        if self.turn is not None or not any(self.varies(each.split(" ", 1)[-1]) for each in arguments):
            return super().intrinsic(name, result, *map(self._of_this_lane, arguments))
        wide_name, wide_result, wide, kind = self.widener.intrinsic(name, result, arguments)
        types = ", ".join(each[: each.index(">") + 1] if each[0] == "<" else each.split()[0] for each in wide)
        self.kernel.declare(wide_name, f"{wide_result} @{wide_name}({types})")
        return self.raw_op(f"call {wide_result} @{wide_name}({', '.join(wide)})", kind)

    def call(self, result: str, name: str, *arguments: str, attributes: str = "") -> str:
        if self.turn is None and any(self.varies(each.split(" ", 1)[-1]) for each in arguments):
            raise NotVector(name)
        return super().call(result, name, *map(self._of_this_lane, arguments), attributes=attributes)

    def branch_if(self, condition: str, yes: str, no: str, rare: bool = False) -> None:
        if self.turn is None and self.varies(condition):
            raise NotVector("a branch")
        super().branch_if(self._of_this_lane(condition), yes, no, rare)

    def bits(self, mask: str) -> str:
        """Return a mask as a 32-bit number: bit L for lane L."""
        return self.raw_op(f"bitcast {vector('i1')} {mask} to i32")

    def any(self, mask: str) -> str:
        return self.raw_op(f"icmp ne i32 {self.bits(mask)}, 0")

    def lanes_here(self) -> str:
        return self.bits(self.mask)

    def first_lane(self, mask: str) -> str:
        """The lowest lane of a mask that is not empty."""
        self.kernel.declare("llvm.cttz.i32", "i32 @llvm.cttz.i32(i32, i1)")
        return self.raw_op(f"call i32 @llvm.cttz.i32(i32 {self.bits(mask)}, i1 true)")

    def element(self, value: str, lane: str) -> str:
        """One lane's value."""
        kind = self.kinds.get(value)
        return self.raw_op(f"extractelement {vector(kind)} {value}, i32 {lane}") if kind else value

    def lane_thread(self, lane: str) -> str:
        """Return the address of a lane's struct sim_thread."""
        wide = self.raw_op(f"zext i32 {lane} to i64")
        return self.raw_op(f"getelementptr [{layout.THREAD_SIZE} x i8], ptr %thread, i64 {wide}")

    def stop(self, name: str, *arguments: str) -> None:
        """Ends the grid with an error, which is the first lane's."""
        if self.turn is not None:
            super().stop(name, *arguments)
            return
        self._stop_first(self.mask, name, arguments)

    def stop_if(self, condition: str, name: str, *arguments: str) -> None:
        if self.turn is not None or not self.varies(condition):
            super().stop_if(condition, name, *arguments)
            return
        bad = self.raw_op(f"and {vector('i1')} {condition}, {self.mask}", "i1")
        wrong, good = self.label(), self.label()
        super().branch_if(self.any(bad), wrong, good, rare=True)
        self.open(wrong)
        self._stop_first(bad, name, arguments)
        self.open(good)

    def _stop_first(self, lanes: str, name: str, arguments: tuple[str, ...]) -> None:
        lane = self.first_lane(lanes)
        thread = self.lane_thread(lane)
        given = []
        for argument in arguments:
            kind, value = argument.split(" ", 1)
            given.append(f"{kind} {self.element(value, lane)}")
        super().call("void", name, f"ptr {thread}", *given, attributes=" cold noreturn")
        self.finish("unreachable")

    # Registers

    def slot_type(self, pointer: str, kind: Type) -> str:
        return vector(kind.integer) if self.plan.is_varying(pointer) else kind.integer

    def load_slot(self, slot: Slot) -> str:
        if not self.plan.is_varying(slot.pointer):
            return self.raw_op(f"load {slot.type.integer}, ptr {slot.pointer}")
        if self.turn is not None:
            return self._load_element(self._slot_array(slot), slot.type.integer)
        return self.raw_op(f"load {vector(slot.type.integer)}, ptr {slot.pointer}", slot.type.integer)

    def store_slot(self, slot: Slot, value: str) -> None:
        kind = slot.type.integer
        if not self.plan.is_varying(slot.pointer):
            if self.turn is None and self.position in self.plan.same:
                value = self._of_first_lane(value)
            if self.turn is not None or self.varies(value):
                raise Unsuitable(f"{self.instruction.text}: a uniform register gets what is not")
            self.raw(f"store {kind} {value}, ptr {slot.pointer}")
        elif self.turn is not None:
            self._store_element(self._slot_array(slot), kind, self._of_this_lane(value))
            self.turn.written.add(slot.pointer)
        else:
            wide = self.spread(kind, value)
            if self.narrowed or self.plan.is_shared(slot.pointer):
                old = self.raw_op(f"load {vector(kind)}, ptr {slot.pointer}")
                both = f"{vector(kind)} {wide}, {vector(kind)} {old}"
                wide = self.raw_op(f"select {vector('i1')} {self.mask}, {both}")
            self.raw(f"store {vector(kind)} {wide}, ptr {slot.pointer}")

    def _of_first_lane(self, value: str) -> str:
        """Of what all lanes have, which was computed of what they do not have in common."""
        if not self.varies(value):
            return value
        self.kernel.declare("llvm.cttz.i32", "i32 @llvm.cttz.i32(i32, i1)")
        first = self.raw_op(f"call i32 @llvm.cttz.i32(i32 {self.bits(self.mask)}, i1 false)")
        return self.element(value, self.raw_op(f"and i32 {first}, 31"))

    def constant(self, operand: Operand) -> int | None:
        """What an operand is, if that is known: a number, or a register that is written once, with one."""
        if isinstance(operand, Register):
            found = self.lookup(operand.name)
            return self.plan.constants.get(found.pointer) if isinstance(found, Slot) else None
        if isinstance(operand, Immediate) and isinstance(operand.value, int):
            return operand.value
        return None

    # Turns

    def in_turns(self, body: Callable[[], None]) -> None:
        """Emits `body` as for one thread, in a loop over the lanes."""
        outer, self.lines = self.lines, []
        turn = self.turn = Turn(self.temporary(), self.temporary())
        body()
        for buffer, place in turn.buffers.values():
            self._copy_parameter(place, buffer, to_buffer=False)
        inner, self.lines = self.lines, outer
        ended = self.closed
        self.turn, self.closed = None, False
        for array, value, kind in turn.spills:
            self._spill(array, value, kind)
        rest = self.alloca("i32")
        self.raw(f"store i32 {self.bits(self.mask)}, ptr {rest}")
        again, inside, done = self.label(), self.label(), self.label()
        self.open(again)
        left = self.raw_op(f"load i32, ptr {rest}")
        super().branch_if(self.raw_op(f"icmp eq i32 {left}, 0"), done, inside)
        self.open(inside)
        self.kernel.declare("llvm.cttz.i32", "i32 @llvm.cttz.i32(i32, i1)")
        lane = self.raw_op(f"call i32 @llvm.cttz.i32(i32 {left}, i1 true)")
        self.raw(f"{turn.lane} = zext i32 {lane} to i64")
        self.raw(f"{turn.thread} = getelementptr [{layout.THREAD_SIZE} x i8], ptr %thread, i64 {turn.lane}")
        less = self.raw_op(f"and i32 {left}, {self.raw_op(f'sub i32 {left}, 1')}")
        self.raw(f"store i32 {less}, ptr {rest}")
        self.lines += [
            line.replace("ptr %thread,", f"ptr {turn.thread},").replace("ptr %thread)", f"ptr {turn.thread})")
            for line in inner
        ]
        self.closed = ended
        self.branch(again)
        self.open(done)
        for slot, array in turn.loaded:
            if slot.pointer in turn.written:
                kind = slot.type.integer
                self.raw(f"store {vector(kind)} {self._refill(array, kind)}, ptr {slot.pointer}")
        for array, _, kind in turn.spills:
            self._spare_arrays.setdefault(_stored(kind), []).append(array)

    def _array(self, kind: str) -> str:
        stored = _stored(kind)
        spare = self._spare_arrays.get(stored)
        return spare.pop() if spare else self.alloca(f"[{WARP} x {stored}], align 64")

    def _spill(self, array: str, value: str, kind: str) -> None:
        if value.startswith("%r") and value not in self.kinds:  # a register
            value = self.raw_op(f"load {vector(kind)}, ptr {value}")
        if kind == "i1":
            value = self.raw_op(f"zext {vector('i1')} {value} to {vector('i8')}")
        self.raw(f"store {vector(_stored(kind))} {value}, ptr {array}, align 64")

    def _refill(self, array: str, kind: str) -> str:
        value = self.raw_op(f"load {vector(_stored(kind))}, ptr {array}, align 64")
        return self.raw_op(f"trunc {vector('i8')} {value} to {vector('i1')}") if kind == "i1" else value

    def _slot_array(self, slot: Slot) -> str:
        assert self.turn is not None
        found = self.turn.arrays.get(slot.pointer)
        if found is None:
            kind = slot.type.integer
            found = self.turn.arrays[slot.pointer] = self._array(kind)
            self.turn.spills.append((found, slot.pointer, kind))
            self.turn.loaded.append((slot, found))
        return found

    def _element_pointer(self, array: str, kind: str) -> str:
        assert self.turn is not None
        return self.raw_op(f"getelementptr {_stored(kind)}, ptr {array}, i64 {self.turn.lane}")

    def _load_element(self, array: str, kind: str) -> str:
        value = self.raw_op(f"load {_stored(kind)}, ptr {self._element_pointer(array, kind)}")
        return self.raw_op(f"trunc i8 {value} to i1") if kind == "i1" else value

    def _store_element(self, array: str, kind: str, value: str) -> None:
        if kind == "i1":
            value = self.raw_op(f"zext i1 {value} to i8")
        self.raw(f"store {_stored(kind)} {value}, ptr {self._element_pointer(array, kind)}")

    def _of_this_lane(self, text: str) -> str:
        """A text for one thread, with vectors replaced by the lane's elements."""
        if self.turn is None:
            return text
        for name in dict.fromkeys(names(text)):
            kind = self.kinds.get(name)
            if kind is None:
                continue
            array = self.turn.arrays.get(name)
            if array is None:
                array = self.turn.arrays[name] = self._array(kind)
                self.turn.spills.append((array, name, kind))
            value = self._load_element(array, kind)
            text = _replace(text, name, value)
        return text

    # Instructions

    def instruct(self, instruction: Instruction) -> None:
        self.instruction = instruction
        try:
            if instruction.guard is None:
                self._emit_instruction(instruction)
                if self.numbers is not None and not self.closed:
                    self.numbers.note(self.position, instruction)
                return
            condition = self.guard_value(instruction)
            skip = instruction.opcode not in _QUICK
            if not self.varies(condition):
                inside, after = self.label(), self.label()
                self.branch_if(condition, inside, after)
                self.open(inside)
                self._emit_instruction(instruction)
                self.open(after)
                return
            whole = self.mask
            self.mask = self.raw_op(f"and {vector('i1')} {whole}, {condition}", "i1")
            self.narrowed = True
            if skip:
                inside, after = self.label(), self.label()
                self.branch_if(self.any(self.mask), inside, after)
                self.open(inside)
            self._emit_instruction(instruction)
            if skip:
                self.open(after)
            self.mask, self.narrowed = whole, False
        except PtxError as error:
            if error.kernel:
                raise
            raise PtxError(self.function.name, instruction.line, instruction.text, error.reason) from None

    def _emit_instruction(self, instruction: Instruction) -> None:
        own = self.warp_handlers.get(instruction.opcode)
        if own is not None:
            modifiers = Modifiers(instruction)
            own(self, instruction, modifiers)
            modifiers.finish()
            return
        self.emit_as_thread(instruction)

    def emit_as_thread(self, instruction: Instruction) -> None:
        """By the handler for one thread: once, with vectors for values, or else in turns."""
        handler = self.handler_of(instruction)
        if handler is None:
            raise self.fail("unknown instruction")

        def emit() -> None:
            modifiers = Modifiers(instruction)
            handler(self, instruction, modifiers)
            modifiers.finish()

        if instruction.opcode not in _IN_TURNS and not _COUNTING & set(instruction.modifiers):
            kept, closed = len(self.lines), self.closed
            try:
                emit()
            except NotVector:
                del self.lines[kept:]
                self.closed = closed
            else:
                return
        self.in_turns(emit)

    # Threads, memory

    def thread_field(self, name: str) -> str:
        if self.turn is not None:
            where = self.raw_op(f"getelementptr i8, ptr %thread, i64 {layout.THREAD[name]}")
            return self.raw_op(f"load i32, ptr {where}, align 4")
        if name != "linear":
            pointer = self.entry_value(f"&{name}", f"getelementptr i8, ptr %warp, i64 {layout.LANES[name]}")
            return self._wide_entry(name, f"load {vector('i32')}, ptr {pointer}, align 64", "i32")
        pointer = self.entry_value("&first", f"getelementptr i8, ptr %warp, i64 {layout.LANES['first']}")
        first = self.entry_value("first", f"load i32, ptr {pointer}, align 4")
        one = self.entry_value("first.one", f"insertelement {vector('i32')} poison, i32 {first}, i64 0")
        zeros = f"<{WARP} x i32> zeroinitializer"
        wide = self.entry_value(
            "first.all", f"shufflevector {vector('i32')} {one}, {vector('i32')} poison, {zeros}"
        )
        return self._wide_entry("linear", f"add {vector('i32')} {wide}, {IOTA}", "i32")

    def _wide_entry(self, key: str, text: str, kind: str) -> str:
        name = self.entry_value(key, text)
        self.kinds[name] = kind
        return name

    def local_bound(self, name: str) -> str:
        if self.turn is not None:
            where = self.raw_op(f"getelementptr i8, ptr %thread, i64 {layout.THREAD[name]}")
            return self.raw_op(f"load i64, ptr {where}, align 8")
        raise NotVector(name)

    def _of_warp(self, name: str, offset: int) -> str:
        where = self.entry_value(f"&{name}", f"getelementptr i8, ptr %warp, i64 {offset}")
        return self.entry_value(name, f"load i64, ptr {where}, align 8")

    def near_local(self) -> str:
        if self.kernel.checked:  # the lanes' memory lies side by side
            return self._of_warp("local", layout.LANES["lane"] + layout.THREAD["local"])
        return self._of_warp("stack", layout.LANES["stack"])

    def on_stack(self, address: str) -> str:
        bounds = [self._of_warp(name, layout.LANES[name]) for name in ("stack", "stack_end")]
        size = self.op(f"sub i64 {bounds[1]}, {bounds[0]}")
        return self.op(f"icmp ult i64 {self.op(f'sub i64 {address}, {bounds[0]}')}, {size}")

    def lookup(self, name: str) -> Slot | Place | None:
        found = super().lookup(name)
        if self.turn is None or not isinstance(found, Place) or found.space != "param":
            return found
        if name not in self.turn.buffers:
            buffer = self.alloca(f"[{_words(found.size) * 4} x i8], align 16")
            self.turn.buffers[name] = (buffer, found)
            self._copy_parameter(found, buffer, to_buffer=True)
        return Place(self.turn.buffers[name][0], "param", found.size, found.align)

    def _copy_parameter(self, place: Place, buffer: str, to_buffer: bool) -> None:
        """Between the lanes' parameters, word by word, and the copy that the lane has in one piece."""
        assert self.turn is not None
        for word in range(_words(place.size)):
            index = self.raw_op(f"add i64 {self.turn.lane}, {word * WARP}")
            ours = self.raw_op(f"getelementptr i32, ptr {place.pointer}, i64 {index}")
            theirs = self.raw_op(f"getelementptr i32, ptr {buffer}, i64 {word}")
            source, to = (ours, theirs) if to_buffer else (theirs, ours)
            self.raw(f"store i32 {self.raw_op(f'load i32, ptr {source}, align 4')}, ptr {to}, align 4")

    def symbol_value(self, operand: Address) -> str | None:
        place = self.place(operand.base or "")
        if place is not None and place.space == "param":
            raise Unsuitable(f"the address of {operand.base} is taken")
        return super().symbol_value(operand)

    def declare_local(self, item: Local) -> None:
        if item.space == "shared":
            super().declare_local(item)
            return
        names_here = self.scopes[-1].names
        if item.space == "param":
            pointer = self.variable(_words(item.size) * WARP * 4, 64)
            names_here[item.name] = Place(pointer, "param", item.size, item.align, item.element)
            return
        align = max(item.align, 8)
        offset = self.framed.get(self.position)
        if offset is not None:
            pointers = self._entry_pointers("%frame", offset)
            names_here[item.name] = Place(pointers, item.space, item.size, align, item.element)
            return
        align = max(align, 16)
        stride = -(-max(item.size, 1) // align) * align
        base = self.variable(stride * WARP, align)
        places = "<" + ", ".join(f"i64 {stride * lane}" for lane in range(WARP)) + ">"
        name = self.temporary()
        self.entry.append(f"  {name} = getelementptr i8, ptr {base}, {vector('i64')} {places}")
        self.kinds[name] = "ptr"
        names_here[item.name] = Place(name, item.space, item.size, align, item.element)

    def _entry_pointers(self, base: str, offset: int) -> str:
        name = self.temporary()
        self.entry.append(f"  {name} = getelementptr i8, {vector('ptr')} {base}, i64 {offset}")
        self.kinds[name] = "ptr"
        return name

    # The body

    def bind_parameters(self) -> None:
        if self.function.is_kernel:
            super().bind_parameters()
            return
        known = self.scopes[0].names
        function = self.function
        for index, parameter in enumerate((*function.returns, *function.parameters)):
            if not parameter.register:
                known[parameter.name] = Place(f"%a{index}", "param", parameter.size, parameter.align)
                continue
            raise Unsuitable("parameters in registers")

    def signature(self) -> str:
        if self.function.is_kernel:
            linkage, inlining = ("", "") if self.entry_name == ENTRY else ("internal ", "noinline ")
            return f"define {linkage}void @{self.entry_name}(ptr %warp) {inlining}{ATTRIBUTES}"
        count = len(self.function.returns) + len(self.function.parameters)
        arguments = "".join(f", ptr %a{index}" for index in range(count))
        mask = f"{vector('i1')} %mask.in"
        return f"define internal void @w{self.function.index}(ptr %warp, {mask}{arguments}) {ATTRIBUTES}"

    def exit(self) -> None:
        """The lanes that run end here: the block's last instruction (control.py)."""

    def declare(self) -> None:
        """Walks the body once for what is declared where."""
        self.prepare_scopes()
        self.enter(self.prepared[0])
        self.bind_parameters()
        for position, item in enumerate(self.items):
            self.position = position
            if isinstance(item, Instruction):
                self.visible[position] = list(self.scopes)
            else:
                self.declare_item(item)


def _letter(kind: str) -> str:
    return {"float": "f32", "double": "f64", "half": "f16", "ptr": "p0"}.get(kind, kind)


def _stored(kind: str) -> str:
    """A predicate has a byte of its own in memory."""
    return "i8" if kind == "i1" else kind


def _words(size: int) -> int:
    return max(-(-size // 4), 1)


def _replace(text: str, name: str, value: str) -> str:
    at = 0
    while (at := text.find(name, at)) >= 0:
        end = at + len(name)
        if end == len(text) or not (text[end].isalnum() or text[end] in "._$"):
            text = text[:at] + value + text[end:]
            at += len(value)
        else:
            at = end
    return text
