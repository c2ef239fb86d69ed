"""Emits one PTX function as LLVM IR text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from ..errors import PtxError
from ..kernel import KernelContext
from ..lexer import float_bits
from ..model import (
    Address,
    Function,
    Immediate,
    Instruction,
    Item,
    Label,
    Local,
    Not,
    Operand,
    Prototype,
    Register,
    Registers,
    ScopeBegin,
    ScopeEnd,
    Targets,
    Variable,
    Vector,
)
from ..module import parameter_offsets
from ..types import PRED, Type
from ..usage import Usage, taken
from . import reach
from .modifiers import Modifiers
from .special import special_register
from .unwritten import read_first
from .writer import Writer

_NUMBERED = re.compile(r"(.*?)(\d+)\Z", re.DOTALL)
_MAX_RANGE = 1 << 24


@dataclass(slots=True)
class Slot:
    """A virtual register: an alloca, which LLVM turns into SSA values."""

    pointer: str
    type: Type


@dataclass(slots=True)
class Place:
    """A variable in memory: `pointer` is an LLVM pointer, or for shared memory the constant offset."""

    pointer: str
    space: str
    size: int
    align: int
    element: int = 1

    def offset(self, operand: Address) -> int:
        """Return the operand's distance in bytes from the begin of the variable."""
        return operand.offset + operand.index * self.element


@dataclass(slots=True)
class Scope:
    number: int
    names: dict[str, Slot | Place | Registers]
    labels: dict[str, str]
    tables: dict[str, Targets | Prototype]


class FunctionEmitter(Writer):
    """Emits a body: the PTX type at hand says which LLVM type a value has. `handler_of` finds who emits an
    instruction."""

    def __init__(
        self,
        kernel: KernelContext,
        function: Function,
        items: list[Item],
        yields: set[int],
        handler_of: Callable[[Instruction], Handler | None],
    ) -> None:
        super().__init__(kernel, function)
        self.items = items
        self.yields = yields
        self.handler_of = handler_of
        self.position = 0
        formals = (*function.returns, *function.parameters)
        self.usage = Usage(items, (each.name for each in formals if each.register))
        self.scopes: list[Scope] = []
        self.prepared: list[Scope] = []
        self._parameters: list[str] = []
        self.frame = reach.Frame()
        self.framed: dict[int, int] = {}
        self.shared: Counter[str] = Counter()  # variables that were declared so far, by name
        self.short_pointers = False  # an address of local memory was taken in 32 bits
        self.return_registers: list[tuple[Slot, str]] = []
        self.zeros: dict[str, str] = {}  # of each register the line by which it begins as zero

    # Names

    def lookup(self, name: str) -> Slot | Place | None:
        """A register or a variable of this function."""
        for scope in reversed(self.scopes):
            entity = scope.names.get(name)
            if entity is not None and not isinstance(entity, Registers):
                return entity
            numbered = _NUMBERED.match(name)
            if numbered is None:
                continue
            declared = scope.names.get(numbered[1] + "<")
            digits = numbered[2]
            if isinstance(declared, Registers) and (digits == "0" or digits[0] != "0") and len(digits) < 9:
                counts = [count for prefix, count in declared.names if prefix == numbered[1] and count]
                if counts and int(digits) < counts[0]:
                    return self.new_slot(scope, name, declared.type)
        return None

    def new_slot(self, scope: Scope, name: str, kind: Type) -> Slot:
        plain = re.sub(r"[^\w.$]", "", name)
        if not name.startswith("%"):  # %a and a are two registers
            plain += "."
        pointer = f"%r{scope.number}.{plain}"
        held = self.slot_type(pointer, kind)
        self.entry.append(f"  {pointer} = alloca {held}")
        self.zeros[pointer] = f"  store {held} zeroinitializer, ptr {pointer}"
        self.entry.append(self.zeros[pointer])
        slot = Slot(pointer, kind)
        scope.names[name] = slot
        return slot

    def hidden_slot(self, name: str, kind: Type) -> Slot:
        """A register that PTX does not name, such as the carry: by a name that no text can spell."""
        entity = self.prepared[0].names.get(name)
        return entity if isinstance(entity, Slot) else self.new_slot(self.prepared[0], name, kind)

    def slot_type(self, pointer: str, kind: Type) -> str:
        """The LLVM type of what a register's alloca holds."""
        return kind.integer

    def load_slot(self, slot: Slot) -> str:
        return self.op(f"load {slot.type.integer}, ptr {slot.pointer}")

    def store_slot(self, slot: Slot, value: str) -> None:
        self.emit(f"store {slot.type.integer} {value}, ptr {slot.pointer}")

    def register(self, name: str) -> Slot | None:
        entity = self.lookup(name)
        return entity if isinstance(entity, Slot) else None

    def target(self, name: str) -> str:
        """The LLVM label of a PTX label."""
        for scope in reversed(self.scopes):
            if name in scope.labels:
                return scope.labels[name]
        raise self.fail(f"there is no label {name}")

    def table(self, name: str) -> Targets | Prototype:
        for scope in reversed(self.scopes):
            if name in scope.tables:
                return scope.tables[name]
        raise self.fail(f"there is no table {name}")

    def place(self, name: str) -> Place | None:
        """A variable of the function or of the module."""
        entity = self.lookup(name)
        if isinstance(entity, Place):
            return entity
        symbol = self.kernel.module.unit_of(self.function).find(self.function, name)
        if not isinstance(symbol, Variable):
            return None
        if symbol.space == "shared":
            offset = self.kernel.module.shared_offset(self.kernel.shared, self.function, symbol)
            return Place(str(offset), "shared", symbol.size, symbol.align, symbol.element * symbol.vector)
        pointer = self.global_pointer(symbol.index)
        return Place(pointer, symbol.space, symbol.size, symbol.align, symbol.element * symbol.vector)

    def symbol_value(self, operand: Address) -> str | None:
        """The address of a variable, of a part of it, or of a function as an i64."""
        assert operand.base is not None
        place = self.place(operand.base)
        if place is None:
            symbol = self.kernel.module.unit_of(self.function).find(self.function, operand.base)
            if isinstance(symbol, Function):
                return str(self.kernel.module.handle(symbol))
            return None
        offset = place.offset(operand)
        if place.space == "shared":
            return str(int(place.pointer) + offset)
        value = self.op(f"ptrtoint ptr {place.pointer} to i64")
        return self.op(f"add i64 {value}, {offset}") if offset else value

    # Operands

    def read_bits(self, operand: Operand, bits: int, signed: bool = False) -> str:
        """An operand as an integer of `bits`. A wider register is truncated, as PTX allows in places."""
        if isinstance(operand, Register):
            slot = self.lookup(operand.name)
            if isinstance(slot, Slot):
                return self.resize(self.load_slot(slot), slot.type.bits, bits, signed)
            return self._read_name(operand.name, bits)
        if isinstance(operand, Immediate):
            return self._immediate(operand, bits, False)
        if isinstance(operand, Not):
            slot = self.register(operand.name)
            if slot is None or slot.type is not PRED or bits != 1:
                raise self.fail(f"!{operand.name} is not a predicate")
            return self.op(f"xor i1 {self.load_slot(slot)}, true")
        if isinstance(operand, Address) and operand.base is not None:
            address = self._symbol_bits(operand, bits)
            if address is not None:
                return address
        if isinstance(operand, Vector):
            return self.pack(operand, bits)
        raise self.fail("an operand has the wrong form")

    def pack(self, operand: Vector, bits: int) -> str:
        count = len(operand.items)
        if count == 0 or bits % count:
            raise self.fail("a vector does not fit its type")
        part = bits // count
        result = "0"
        for index, item in enumerate(operand.items):
            value = self.resize(self.read_bits(item, part), part, bits, False)
            if index:
                value = self.op(f"shl i{bits} {value}, {part * index}")
            result = value if index == 0 else self.op(f"or i{bits} {result}, {value}")
        return result

    def _read_name(self, name: str, bits: int) -> str:
        special = special_register(self, name)
        if special is not None:
            value, width = special
            return self.resize(value, width, bits, False)
        address = self._symbol_bits(Address(name, 0), bits)
        if address is None:
            raise self.fail(f"{name} is not declared")
        return address

    def _symbol_bits(self, operand: Address, bits: int) -> str | None:
        address = self.symbol_value(operand)
        if address is None:
            return None
        place = self.place(operand.base or "")
        self.short_pointers |= bits == 32 and place is not None and place.space == "local"
        return self.resize(address, 64, bits, False)

    def _immediate(self, operand: Immediate, bits: int, is_float: bool) -> str:
        value = operand.value
        if isinstance(value, int):
            if is_float:
                return str(float_bits(float(max(min(value, 1 << 1000), -1 << 1000)), bits))
            if bits == 1:
                return "true" if value else "false"
            return str(value & ((1 << bits) - 1))
        if bits not in (16, 32, 64):
            raise self.fail("a float where an integer is expected")
        return str(float_bits(value, bits))

    def read(self, operand: Operand, kind: Type) -> str:
        """An operand as a value of kind.llvm."""
        if kind.kind != "f":
            if isinstance(operand, Immediate) and not isinstance(operand.value, int) and kind.kind in "us":
                raise self.fail("a float where an integer is expected")
            return self.read_bits(operand, kind.bits, kind.signed)
        if isinstance(operand, Immediate):
            bits = self._immediate(operand, kind.bits, True)
        else:
            bits = self.read_bits(operand, kind.bits)
        return self.op(f"bitcast {kind.integer} {bits} to {kind.llvm}")

    def resize(self, value: str, source: int, bits: int, signed: bool) -> str:
        if source == bits:
            return value
        if bits == 1 or source == 1:
            raise self.fail("a predicate where a number is expected, or the reverse")
        if source > bits:
            return self.op(f"trunc i{source} {value} to i{bits}")
        return self.op(f"{'sext' if signed else 'zext'} i{source} {value} to i{bits}")

    def behind(self, pointer: str, offset: int) -> str:
        """So many bytes behind it."""
        return self.op(f"getelementptr i8, ptr {pointer}, i64 {offset}") if offset else pointer

    def predicate(self, operand: Operand) -> str:
        return self.read_bits(operand, 1)

    def write(self, operand: Operand, kind: Type, value: str) -> None:
        """Stores a value of kind.llvm; a wider register is extended."""
        if kind.kind == "f":
            value = self.op(f"bitcast {kind.llvm} {value} to {kind.integer}")
        self.write_bits(operand, kind.bits, value, kind.signed)

    def write_bits(self, operand: Operand, bits: int, value: str, signed: bool = False) -> None:
        if isinstance(operand, Vector):
            self.unpack(operand, bits, value)
            return
        if not isinstance(operand, Register):
            raise self.fail("a destination must be a register")
        if operand.name == "_":
            return
        slot = self.register(operand.name)
        if slot is None:
            raise self.fail(f"{operand.name} is not a register")
        self.store_slot(slot, self.resize(value, bits, slot.type.bits, signed))

    def unpack(self, operand: Vector, bits: int, value: str) -> None:
        count = len(operand.items)
        if count == 0 or bits % count:
            raise self.fail("a vector does not fit its type")
        part = bits // count
        for index, item in enumerate(operand.items):
            shifted = self.op(f"lshr i{bits} {value}, {part * index}") if index else value
            self.write_bits(item, part, self.resize(shifted, bits, part, False))

    def operands(self, minimum: int, maximum: int | None = None) -> list[Operand]:
        """The instruction's operands, whose number must be right."""
        found = self.instruction.operands
        if not minimum <= len(found) <= (minimum if maximum is None else maximum):
            raise self.fail(f"{len(found)} operands")
        return found

    # The body

    def text(self) -> str:
        """The whole function as LLVM IR."""
        self.prepare_scopes()
        self.enter(self.prepared[0])
        if self.kernel.checked:
            self.framed = reach.place_locals(self, self.items, self.frame)
        self.bind_parameters()
        self.closed = False
        for position, item in enumerate(self.items):
            self.position = position
            if isinstance(item, Instruction):
                self.instruct(item)
            elif isinstance(item, Label):
                self.open(self.target(item.name))
            else:
                self.declare_item(item)
        if not self.closed:
            self.leave()
        return self.whole(self.frame.prologue(self.function.is_kernel))

    def whole(self, prologue: list[str]) -> str:
        """The function's text. `prologue` takes its frame, if it needs one."""
        entry = self.entry
        if self.frame.size:
            self.kernel.take_frame(self.function, self.frame.taken(reach.LARGEST_ALIGN))
            self.kernel.declare("sim_rt_overflow", "void @sim_rt_overflow(ptr) cold noreturn")
            # It branches, and of the stack LLVM keeps in registers, and aligns, what the first block takes.
            taken = [line for line in entry if " = alloca " in line]
            entry = taken + prologue + [line for line in entry if " = alloca " not in line]
        lines = [*entry, "  br label %body", "body:", *self.lines]
        # Programs read registers that they never wrote; undefined values would let LLVM delete code. Others
        # do not begin as anything: each that does costs LLVM a walk over all blocks.
        zeros = set(self.zeros.values())
        kept = {self.zeros[pointer] for pointer in read_first(lines, zeros) if pointer in self.zeros}
        text = "\n".join(line for line in lines if line in kept or line not in zeros)
        return f"{self.signature()} {{\nentry:\n{text}\n}}\n"

    def declare_item(self, item: Item) -> None:
        """What a declaration, or the begin or end of a scope, says of names from here on."""
        if isinstance(item, Registers):
            self.declare_registers(item)
        elif isinstance(item, Local):
            self.declare_local(item)
        elif isinstance(item, ScopeBegin):
            self.enter(self.prepared[self.begun])
            self.begun += 1
        elif isinstance(item, ScopeEnd):
            self.scopes.pop()

    def signature(self) -> str:
        if self.function.is_kernel:
            return (
                "define internal void @kernel(ptr %thread, ptr noalias readonly %block, "
                "i32 %tid.x, i32 %tid.y, i32 %tid.z, i32 %linear) "
                'alwaysinline nounwind null_pointer_is_valid "probe-stack"="inline-asm"'
            )
        count = len(self.function.returns) + len(self.function.parameters)
        arguments = "".join(f", ptr %a{index}" for index in range(count))
        if self.kernel.program.asks_in_functions:
            arguments += ", i32 %way"
        name = f"@f{self.function.index}"
        attributes = 'nounwind null_pointer_is_valid "probe-stack"="inline-asm"'
        return f"define internal void {name}(ptr %thread{arguments}) {attributes}"

    def prepare_scopes(self) -> None:
        """Labels are known before the code that branches to them."""
        stack = [Scope(0, {}, {}, {})]
        self.prepared = [stack[0]]
        self.begun = 1  # of these, by the walk over the body
        for item in self.items:
            if isinstance(item, ScopeBegin):
                scope = Scope(len(self.prepared), {}, {}, {})
                self.prepared.append(scope)
                stack.append(scope)
            elif isinstance(item, ScopeEnd):
                stack.pop()
            elif isinstance(item, Label):
                scope = stack[-1]
                if item.name in scope.labels:
                    raise PtxError(self.function.name, item.line, item.name, "a label is defined twice")
                scope.labels[item.name] = f"L{scope.number}.{re.sub(r'[^A-Za-z0-9_$]', '.', item.name)}"
            elif isinstance(item, (Targets, Prototype)):
                stack[-1].tables[item.name] = item

    def enter(self, scope: Scope) -> None:
        self.scopes.append(scope)

    def bind_parameters(self) -> None:
        names = self.scopes[0].names
        function = self.function
        if function.is_kernel:
            for offset, parameter in zip(parameter_offsets(function), function.parameters, strict=True):
                base = self.block_field("params")
                pointer = self.entry_value(f"p{offset}", f"getelementptr i8, ptr {base}, i64 {offset}")
                align = min(parameter.align, 16)
                names[parameter.name] = Place(pointer, "kernel_param", parameter.size, align)
            return
        for index, parameter in enumerate((*function.returns, *function.parameters)):
            if not parameter.register:
                pointer = self._own_argument(index) if self.kernel.checked else f"%a{index}"
                names[parameter.name] = Place(pointer, "param", parameter.size, parameter.align)
                continue
            slot = self.new_slot(self.scopes[0], parameter.name, parameter.type)
            if index < len(function.returns):
                self.return_registers.append((slot, f"%a{index}"))
                continue
            value = self.temporary()
            kind = slot.type.integer
            self.entry.append(f"  {value} = load {kind}, ptr %a{index}, align {parameter.type.bytes}")
            self.entry.append(f"  store {kind} {value}, ptr {slot.pointer}")

    def _own_argument(self, index: int) -> str:
        """An argument whose address is taken is copied: what was given may lie on the machine's stack."""
        function = self.function
        parameter = (*function.returns, *function.parameters)[index]
        if parameter.name not in taken(self.items):
            return f"%a{index}"
        if index < len(function.returns):
            raise self.fail(f"the address of {parameter.name}, which is returned, is not supported here")
        offset = self.frame.place(parameter.size, max(parameter.align, reach.ALIGN))
        pointer = self.temporary()
        self.entry.append(f"  {pointer} = getelementptr i8, ptr %frame, i64 {offset}")
        self.kernel.declare("llvm.memcpy.p0.p0.i64", "void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1 immarg)")
        copy = f"(ptr {pointer}, ptr %a{index}, i64 {parameter.size}, i1 false)"
        self.entry.append(f"  call void @llvm.memcpy.p0.p0.i64{copy}")
        return pointer

    def leave(self) -> None:
        """Returns from the function."""
        if self.frame.size and not self.function.is_kernel:
            self.emit("store ptr %frame.free, ptr %frame.top, align 8")
        for slot, pointer in self.return_registers:
            self.emit(f"store {slot.type.integer} {self.load_slot(slot)}, ptr {pointer}")
        self.finish("ret void")

    def declare_registers(self, item: Registers) -> None:
        names = self.scopes[-1].names
        for name, count in item.names:
            if count:
                names[name + "<"] = item
                if count > _MAX_RANGE:
                    raise self.fail(f"too many registers {name}")
            elif not isinstance(names.get(name), Slot):
                self.new_slot(self.scopes[-1], name, item.type)

    def declare_local(self, item: Local) -> None:
        names = self.scopes[-1].names
        if item.space == "shared":
            offset = self.kernel.shared.offsets[self.function.index, item.name, self.shared[item.name]]
            self.shared[item.name] += 1
            names[item.name] = Place(str(offset), "shared", item.size, item.align, item.element)
            return
        align = max(item.align, 8)
        if self.position in self.framed:
            pointer = self.temporary()
            self.entry.append(f"  {pointer} = getelementptr i8, ptr %frame, i64 {self.framed[self.position]}")
            names[item.name] = Place(pointer, item.space, item.size, align, item.element)
            return
        pointer = self.variable(max(item.size, 1), align)
        names[item.name] = Place(pointer, item.space, item.size, align, item.element)

    def instruct(self, instruction: Instruction) -> None:
        self.instruction = instruction
        handler = self.handler_of(instruction)
        if handler is None:
            raise self.fail("unknown instruction")
        modifiers = Modifiers(instruction)
        try:
            if instruction.guard is None or instruction.opcode in ("bra", "brx"):
                handler(self, instruction, modifiers)
            else:
                condition = self.guard(instruction)
                inside, after = self.label(), self.label()
                if instruction.guard_negated:
                    self.branch_if(condition, after, inside)
                else:
                    self.branch_if(condition, inside, after)
                self.open(inside)
                handler(self, instruction, modifiers)
                self.open(after)
            modifiers.finish()
        except PtxError as error:
            if error.kernel:
                raise
            raise PtxError(self.function.name, instruction.line, instruction.text, error.reason) from None

    def guard(self, instruction: Instruction) -> str:
        assert instruction.guard is not None
        return self.predicate(Register(instruction.guard))

    def guard_value(self, instruction: Instruction) -> str:
        """The guard with its negation applied."""
        value = self.guard(instruction)
        return self.op(f"xor i1 {value}, true") if instruction.guard_negated else value

    # Frequently needed

    def exit(self) -> None:
        """Ends the thread."""
        if self.function.is_kernel:
            self.leave()
        else:
            self.stop("sim_rt_exit")

    def stop(self, name: str, *arguments: str) -> None:
        """Ends the grid with an error."""
        self.call("void", name, "ptr %thread", *arguments, attributes=" cold noreturn")
        self.finish("unreachable")

    def stop_if(self, condition: str, name: str, *arguments: str) -> None:
        bad, good = self.label(), self.label()
        self.branch_if(condition, bad, good, rare=True)
        self.open(bad)
        self.stop(name, *arguments)
        self.open(good)


Handler = Callable[[FunctionEmitter, Instruction, Modifiers], None]
