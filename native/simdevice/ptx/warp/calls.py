"""Calls of functions by a warp: with the lanes that call, and parameters word by word (memory.py)."""

from __future__ import annotations

from dataclasses import replace

from ..analysis import call_target, called
from ..emit.calls import groups
from ..emit.function import Place
from ..emit.modifiers import Modifiers
from ..model import Function, Instruction, Operand, Parameter, Register
from ..types import U64
from .function import Unsuitable, WarpEmitter
from .memory import load_parameter, store_parameter
from .registry import warp_opcode
from .widen import WARP, vector

_MASK = vector("i1")


@warp_opcode("call")
def call(e: WarpEmitter, i: Instruction, m: Modifiers) -> None:
    m.flag("uni")
    returns, arguments = groups(e, i)
    name, _ = call_target(i)
    symbol = called(e.kernel.module.unit_of(e.function), i)
    if isinstance(symbol, Function) and symbol.start < 0:
        e.in_turns(lambda: _as_thread(e, i))
        return
    callees = [symbol] if isinstance(symbol, Function) else e.kernel.callees(e.function, e.position)
    if not callees:
        e.in_turns(lambda: _as_thread(e, i))
        return
    first = callees[0]
    if len(returns) != len(first.returns):
        raise Unsuitable("a function that returns something else than is declared")
    if len(arguments) != len(first.parameters):
        raise e.fail("the arguments do not match the function")
    results = [_place(e, operand, each) for operand, each in zip(returns, first.returns, strict=True)]
    places = [
        _argument(e, operand, each, results)
        for operand, each in zip(arguments, first.parameters, strict=True)
    ]
    for operand, place, parameter in zip(arguments, places, first.parameters, strict=True):
        if not _in_memory(e, operand):
            value = e.read_bits(operand, parameter.type.bits)
            store_parameter(e, place, 0, parameter.type.bits, value)
    pointers = "".join(f", ptr {place.pointer}" for place in (*results, *places))
    if isinstance(symbol, Function):
        e.raw(f"call void @w{symbol.index}(ptr %warp, {_MASK} {e.mask}{pointers})")
    else:
        _by_address(e, name, callees, pointers)
    for operand, place, parameter in zip(returns, results, first.returns, strict=True):
        if not _in_memory(e, operand):
            bits = parameter.type.bits
            e.write_bits(operand, bits, load_parameter(e, place, 0, bits))


def _as_thread(e: WarpEmitter, i: Instruction) -> None:
    modifiers = Modifiers(i)
    handler = e.handler_of(i)
    assert handler is not None
    handler(e, i, modifiers)
    modifiers.finish()


def _in_memory(e: WarpEmitter, operand: Operand) -> bool:
    return isinstance(operand, Register) and isinstance(e.lookup(operand.name), Place)


def _place(e: WarpEmitter, operand: Operand, parameter: Parameter) -> Place:
    """Where the lanes' values of an argument are: the caller's own, or room for what a register holds."""
    if isinstance(operand, Register):
        known = e.lookup(operand.name)
        if isinstance(known, Place):
            if known.space != "param":
                raise e.fail("an argument has the wrong form")
            if known.size < parameter.size:
                raise e.fail("an argument is smaller than the parameter")
            return known
    return Place(e.variable(_room(parameter.size), 64), "param", parameter.size, parameter.align)


def _room(size: int) -> int:
    """Bytes of a parameter of all lanes."""
    return max(-(-size // 4), 1) * WARP * 4


def _argument(e: WarpEmitter, operand: Operand, parameter: Parameter, results: list[Place]) -> Place:
    """As _place, but apart from the results, which the function may write before it reads this."""
    place = _place(e, operand, parameter)
    if all(place.pointer != each.pointer for each in results):
        return place
    return replace(place, pointer=e.copied(place.pointer, _room(place.size), 64))


def _by_address(e: WarpEmitter, register: str, callees: list[Function], pointers: str) -> None:
    """A function's address is a number. Lanes that call the same go together, the lowest lane's first."""
    address = e.spread("i64", e.read(Register(register), U64))
    rest = e.alloca(_MASK)
    e.raw(f"store {_MASK} {e.mask}, ptr {rest}")
    again, chosen, nowhere, done = e.label(), e.label(), e.label(), e.label()
    e.open(again)
    left = e.raw_op(f"load {_MASK}, ptr {rest}", "i1")
    e.branch_if(e.any(left), chosen, done)
    e.open(chosen)
    lane = e.first_lane(left)
    target = e.element(address, lane)
    same = e.raw_op(f"icmp eq {vector('i64')} {address}, {e.spread('i64', target)}", "i1")
    lanes = e.raw_op(f"and {_MASK} {same}, {left}", "i1")
    e.raw(f"store {_MASK} {e.raw_op(f'xor {_MASK} {left}, {lanes}')}, ptr {rest}")
    labels = [e.label() for _ in callees]
    handles = [e.kernel.module.handle(each) for each in callees]
    cases = " ".join(f"i64 {handle}, label %{label}" for handle, label in zip(handles, labels, strict=True))
    e.finish(f"switch i64 {target}, label %{nowhere} [ {cases} ]")
    for label, function in zip(labels, callees, strict=True):
        e.open(label)
        e.raw(f"call void @w{function.index}(ptr %warp, {_MASK} {lanes}{pointers})")
        e.branch(again)
    e.open(nowhere)
    e.call(
        "void", "sim_rt_illegal", f"ptr {e.lane_thread(lane)}", f"i64 {target}", attributes=" cold noreturn"
    )
    e.finish("unreachable")
    e.open(done)
