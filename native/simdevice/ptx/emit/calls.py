"""Calls of functions, direct and through addresses, and of the runtime."""

from __future__ import annotations

from ..analysis import call_target, called
from ..model import Function, Group, Immediate, Instruction, Operand, Parameter, Register
from ..types import U64
from . import reach
from .function import FunctionEmitter, Place, Slot
from .modifiers import Modifiers
from .registry import opcode


@opcode("call")
def call(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    m.flag("uni")
    returns, arguments = groups(e, i)
    name, _ = call_target(i)
    symbol = called(e.kernel.module.unit_of(e.function), i)
    if isinstance(symbol, Function) and symbol.start < 0:
        _runtime(e, symbol, returns, arguments)
        return
    callees = e.kernel.callees(e.function, e.position)
    if isinstance(symbol, Function):
        _expect_other_returns(e, symbol, returns)
        pointers, finish = _pass(e, symbol.returns, symbol.parameters, returns, arguments)
        _emit_call(e, symbol, pointers)
        _collect(e, finish)
        return
    if e.register(name) is None:
        raise e.fail(f"{name} is not a function")
    if not callees:
        e.stop("sim_rt_illegal", f"i64 {e.read(Register(name), U64)}")
        return
    pointers, finish = _pass(e, callees[0].returns, callees[0].parameters, returns, arguments)
    _switch(e, name, callees, pointers)
    _collect(e, finish)


def groups(e: FunctionEmitter, i: Instruction) -> tuple[list[Operand], list[Operand]]:
    """(return values, arguments)."""
    operands = list(i.operands)
    returns = operands.pop(0) if operands and isinstance(operands[0], Group) else None
    groups = [each for each in operands if isinstance(each, Group)]
    if len(groups) > 1:
        raise e.fail("not a call")
    return (returns.items if isinstance(returns, Group) else []), (groups[0].items if groups else [])


def _expect_other_returns(e: FunctionEmitter, symbol: Function, returns: list[Operand]) -> None:
    """A linker joins names, not prototypes: what another text declares to be returned and is not, is zero."""
    unit_of = e.kernel.module.unit_of
    if unit_of(symbol) is unit_of(e.function):
        return
    for operand in returns[len(symbol.returns) :]:
        place = _place(e, operand)
        if place is None:
            e.write_bits(operand, 64, "0")
        else:
            e.emit(f"store [{place.size} x i8] zeroinitializer, ptr {place.pointer}, align 1")
    del returns[len(symbol.returns) :]


def _emit_call(e: FunctionEmitter, function: Function, pointers: list[str]) -> None:
    arguments = ["ptr %thread", *(f"ptr {each}" for each in pointers)]
    if e.kernel.program.asks_in_functions:
        arguments.append(f"i32 {e.way()}")
    e.emit(f"call void @f{function.index}({', '.join(arguments)})")


def _switch(e: FunctionEmitter, register: str, callees: list[Function], pointers: list[str]) -> None:
    """A function's address is a number: the call is a switch over those it may be."""
    address = e.read(Register(register), U64)
    nowhere, done = e.label(), e.label()
    labels = [e.label() for _ in callees]
    handles = [e.kernel.module.handle(each) for each in callees]
    cases = " ".join(f"i64 {handle}, label %{label}" for handle, label in zip(handles, labels, strict=True))
    e.finish(f"switch i64 {address}, label %{nowhere} [ {cases} ]")
    for label, function in zip(labels, callees, strict=True):
        e.open(label)
        _emit_call(e, function, pointers)
        e.branch(done)
    e.open(nowhere)
    e.stop("sim_rt_illegal", f"i64 {address}")
    e.open(done)


def _pass(
    e: FunctionEmitter,
    results: list[Parameter],
    parameters: list[Parameter],
    returns: list[Operand],
    arguments: list[Operand],
) -> tuple[list[str], list[tuple[Operand, Parameter, str]]]:
    """Pointers to return values and arguments; registers go through memory of their own."""
    if len(returns) != len(results) or len(arguments) != len(parameters):
        raise e.fail("the arguments do not match the function")
    pointers: list[str] = []
    finish: list[tuple[Operand, Parameter, str]] = []
    for operand, parameter in zip(returns, results, strict=True):
        place = _place(e, operand)
        if place is None:
            pointer = e.variable(max(parameter.size, 8), 16)
            finish.append((operand, parameter, pointer))
            pointers.append(pointer)
        else:
            pointers.append(_fitting(e, place, parameter))
    for operand, parameter in zip(arguments, parameters, strict=True):
        place = _place(e, operand)
        if place is None:
            pointer = e.variable(max(parameter.size, 8), 16)
            kind = parameter.type
            value = e.read_bits(operand, kind.bits)
            e.emit(f"store {kind.integer} {value}, ptr {pointer}, align 16")
        else:
            pointer = _fitting(e, place, parameter)
            if pointer in pointers[: len(results)]:  # which the function may write before it reads this
                pointer = e.copied(pointer, place.size, 16)
        pointers.append(pointer)
    return pointers, finish


def _place(e: FunctionEmitter, operand: Operand) -> Place | None:
    if isinstance(operand, Register):
        entity = e.lookup(operand.name)
        if isinstance(entity, Place) and entity.space == "param":
            return entity
        if not isinstance(entity, Slot) and operand.name != "_":
            raise e.fail(f"{operand.name} is not declared")
        return None
    if isinstance(operand, Immediate):
        return None
    raise e.fail("an argument has the wrong form")


def _fitting(e: FunctionEmitter, place: Place, parameter: Parameter) -> str:
    if place.size < parameter.size:
        raise e.fail("an argument is smaller than the parameter")
    return place.pointer


def _collect(e: FunctionEmitter, finish: list[tuple[Operand, Parameter, str]]) -> None:
    for operand, parameter, pointer in finish:
        kind = parameter.type
        e.write_bits(operand, kind.bits, e.op(f"load {kind.integer}, ptr {pointer}, align 16"))


# Bytes of what they return and take.
_RUNTIME = {
    "vprintf": (([4], [8, 8]), ([], [8, 8])),  # Taichi declares it without a result
    "malloc": (([8], [8]),),
    "__cuda_syscall_aligned_malloc": (([8], [8, 8]),),
    "free": (([], [8]),),
    "__assertfail": (([], [8, 8, 4, 8, 8]), ([], [8, 8, 4, 8])),
    "cudaGraphSetConditional": (([], [8, 4]),),
    "__gpuferry_launch_room": (([8], [8, 4, 4, 4, 4, 4, 4, 4]),),
    "__gpuferry_launch": (([4], [8, 8]),),
    "__gpuferry_launch_error": (([4], [4]),),
    "__gpuferry_asked": (([8], [4, 8, 8, 8]),),
}

_TAKING = {"malloc": "sim_rt_malloc", "__cuda_syscall_aligned_malloc": "sim_rt_aligned_malloc"}


def _set_conditional(e: FunctionEmitter, handle: str, value: str) -> None:
    """A conditional value's handle is the address of its word."""
    if e.kernel.checked:
        reach.check(e, handle, handle, 0, "global", 4, True)
    e.emit(f"store atomic {value}, ptr {e.op(f'inttoptr i64 {handle} to ptr')} monotonic, align 4")


def _runtime(e: FunctionEmitter, symbol: Function, returns: list[Operand], arguments: list[Operand]) -> None:
    """What the CUDA runtime gives device code."""
    sizes = [each.size for each in symbol.returns], [each.size for each in symbol.parameters]
    if sizes not in _RUNTIME.get(symbol.name, ()):
        raise e.fail(f"{symbol.name} is not declared as the runtime has it")
    pointers, finish = _pass(e, symbol.returns, symbol.parameters, returns, arguments)
    results, sources = pointers[: len(returns)], pointers[len(returns) :]

    def argument(index: int, kind: str) -> str:
        if index >= len(sources):
            raise e.fail(f"{symbol.name} needs more arguments")
        return f"{kind} {e.op(f'load {kind}, ptr {sources[index]}, align 4')}"

    if symbol.name == "vprintf":
        value = e.call("i32", "sim_rt_vprintf", "ptr %thread", argument(0, "ptr"), argument(1, "ptr"))
        if results:
            e.emit(f"store i32 {value}, ptr {results[0]}, align 4")
    elif symbol.name in _TAKING:
        wanted = [argument(index, "i64") for index in range(len(sources))]
        value = e.call("ptr", _TAKING[symbol.name], "ptr %thread", *wanted)
        e.emit(f"store ptr {value}, ptr {results[0]}, align 8")
    elif symbol.name == "free":
        e.call("void", "sim_rt_free", "ptr %thread", argument(0, "ptr"))
    elif symbol.name == "cudaGraphSetConditional":
        _set_conditional(e, argument(0, "i64").split()[1], argument(1, "i32"))
    elif symbol.name == "__gpuferry_launch_room":
        extents = [argument(index, "i32") for index in range(1, 8)]
        value = e.call("ptr", "sim_rt_launch_room", "ptr %thread", argument(0, "i64"), *extents)
        e.emit(f"store ptr {value}, ptr {results[0]}, align 8")
    elif symbol.name == "__gpuferry_launch":
        value = e.call("i32", "sim_rt_launch", "ptr %thread", argument(0, "ptr"), argument(1, "i64"))
        e.emit(f"store i32 {value}, ptr {results[0]}, align 4")
    elif symbol.name == "__gpuferry_launch_error":
        value = e.call("i32", "sim_rt_launch_error", "ptr %thread", argument(0, "i32"))
        e.emit(f"store i32 {value}, ptr {results[0]}, align 4")
    elif symbol.name == "__gpuferry_asked":
        more = [argument(index, "i64") for index in range(1, 4)]
        value = e.call("i64", "sim_rt_asked", "ptr %thread", argument(0, "i32"), *more)
        e.emit(f"store i64 {value}, ptr {results[0]}, align 8")
    elif symbol.name == "__assertfail":
        message, file = argument(0, "ptr"), argument(1, "ptr")
        line, function = argument(2, "i32"), argument(3, "ptr")
        e.call("void", "sim_rt_assertfail", "ptr %thread", message, file, line, function)
        e.exit()  # this thread alone: others say what they find
    else:
        raise e.fail(f"{symbol.name} is not defined")
    _collect(e, finish)
