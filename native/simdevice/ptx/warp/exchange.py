"""What lanes tell each other, and barriers of the block. Of the members that an instruction names those
take part that run together here: the others are elsewhere, which PTX leaves open."""

from __future__ import annotations

from ..emit import control, warp
from ..emit.integer import integer_type
from ..emit.modifiers import Modifiers
from ..model import Instruction, Operand, Pair
from ..types import B32, PRED, U32
from .function import IOTA, Unsuitable, WarpEmitter
from .registry import warp_opcode
from .widen import WARP, NotVector, vector

_MASK = vector("i1")
_WORDS = vector("i32")
_HALF = f"<{WARP // 2} x i32>"
_IDENTITY = {"add": 0, "and": -1, "or": 0, "xor": 0}


def _members(e: WarpEmitter, rest: list[Operand], sync: bool) -> str:
    """Lanes that take part, a number: one for all, or each lane's own."""
    here = e.bits(e.mask)
    return e.op(f"and i32 {e.read(rest[0], B32)}, {here}") if sync else here


def _wide(e: WarpEmitter, text: str, kind: str = "i32") -> str:
    return e.raw_op(text, kind)


def lanes(e: WarpEmitter) -> str:
    """Return a vector with the number of each lane."""
    return _wide(e, f"add {_WORDS} zeroinitializer, {IOTA}")


def permute(e: WarpEmitter, value: str, source: str) -> str:
    """The value of lane source % 32 for each lane."""
    wide = e.spread("i32", value)
    if not e.kernel.gathers:
        array = e.alloca(f"[{WARP} x i32], align 64")
        e.raw(f"store {_WORDS} {wide}, ptr {array}, align 64")
        low = _wide(e, f"and {_WORDS} {source}, splat (i32 {WARP - 1})")
        places = _wide(e, f"getelementptr i32, ptr {array}, {_WORDS} {low}", "ptr")
        whole, e.mask = e.mask, "splat (i1 true)"
        value = e.gather("i32", places, 4)
        e.mask = whole
        return value
    name = "llvm.x86.avx512.vpermi2var.d.512"
    e.kernel.declare(name, f"{_HALF} @{name}({_HALF}, {_HALF}, {_HALF})")

    def half(of: str, first: int) -> str:
        chosen = ", ".join(f"i32 {first + lane}" for lane in range(WARP // 2))
        return e.raw_op(f"shufflevector {_WORDS} {of}, {_WORDS} poison, <{WARP // 2} x i32> <{chosen}>")

    low, high = half(wide, 0), half(wide, WARP // 2)
    halves = [
        e.raw_op(f"call {_HALF} @{name}({_HALF} {low}, {_HALF} {half(source, first)}, {_HALF} {high})")
        for first in (0, WARP // 2)
    ]
    everyone = ", ".join(f"i32 {lane}" for lane in range(WARP))
    return _wide(e, f"shufflevector {_HALF} {halves[0]}, {_HALF} {halves[1]}, <{WARP} x i32> <{everyone}>")


@warp_opcode("shfl")
def shfl(e: WarpEmitter, i: Instruction, m: Modifiers) -> None:
    sync = m.flag("sync")
    mode = m.need(*warp.SHUFFLES)
    integer_type(e, m, 32)
    target, a, b, c, *rest = e.operands(5 if sync else 4)
    d, p = warp.destinations(target)
    members = _members(e, rest, sync)
    value = e.read(a, B32)
    known = e.constant(b), e.constant(c)
    if known[0] is not None and known[1] is not None:
        source, valid = known_sources(mode, known[0], known[1])
        given = f"{_WORDS} {e.spread('i32', value)}"
        chosen = _literal("i32", source)
        moved = _wide(e, f"shufflevector {given}, {_WORDS} poison, {_WORDS} {chosen}")
        asked = _literal("i32", [1 << lane for lane in source])
        member = _wide(e, f"and {_WORDS} {e.spread('i32', members)}, {asked}", "i32")
        everyone = _wide(e, f"or {_MASK} zeroinitializer, {_literal('i1', valid)}", "i1")
    else:
        found, everyone = _sources(e, mode, e.read(b, B32), e.read(c, B32))
        moved = permute(e, value, found)
        member = e.op(f"and i32 {e.op(f'lshr i32 {members}, {found}')}, 1")
    there = e.op(f"icmp ne i32 {member}, 0")
    e.write(d, B32, e.op(f"select i1 {there}, i32 {moved}, i32 {value}"))
    if p is not None:
        e.write(p, PRED, everyone)


def _sources(e: WarpEmitter, mode: str, by: str, limits: str) -> tuple[str, str]:
    """From which lane each has its value, and whether that is another's that it may have."""
    lane = lanes(e)
    by = e.op(f"and i32 {by}, 31")
    clamp = e.op(f"and i32 {limits}, 31")
    segment = e.op(f"and i32 {e.op(f'lshr i32 {limits}, 8')}, 31")
    others = e.op(f"xor i32 {segment}, -1")
    low = e.op(f"and i32 {lane}, {segment}")
    last = e.op(f"or i32 {low}, {e.op(f'and i32 {clamp}, {others}')}")
    if mode == "up":
        source = e.op(f"sub i32 {lane}, {by}")
        valid = e.op(f"icmp sge i32 {source}, {last}")
    else:
        if mode == "idx":
            source = e.op(f"or i32 {low}, {e.op(f'and i32 {by}, {others}')}")
        else:
            source = e.op(f"{'add' if mode == 'down' else 'xor'} i32 {lane}, {by}")
        valid = e.op(f"icmp sle i32 {source}, {last}")
    return e.op(f"select i1 {valid}, i32 {source}, i32 {lane}"), valid


def known_sources(mode: str, by: int, limits: int) -> tuple[list[int], list[int]]:
    """The same where all that decides it is known: LLVM then moves lanes without memory."""
    by, clamp, segment = by & 31, limits & 31, limits >> 8 & 31
    sources, valid = [], []
    for lane in range(WARP):
        low = lane & segment
        last = low | clamp & ~segment
        wanted = {"up": lane - by, "down": lane + by, "bfly": lane ^ by, "idx": low | by & ~segment}[mode]
        good = wanted >= last if mode == "up" else wanted <= last
        sources.append(wanted if good else lane)
        valid.append(int(good))
    return sources, valid


def _literal(kind: str, values: list[int]) -> str:
    return "<" + ", ".join(f"{kind} {value}" for value in values) + ">"


@warp_opcode("vote")
def vote(e: WarpEmitter, i: Instruction, m: Modifiers) -> None:
    sync = m.flag("sync")
    mode = m.need(*warp.VOTES)
    kind = m.type()
    d, a, *rest = e.operands(3 if sync else 2)
    members = _members(e, rest, sync)
    predicate = e.spread("i1", e.predicate(a))
    for_it = e.bits(e.raw_op(f"and {_MASK} {predicate}, {e.mask}"))
    ballot = e.op(f"and i32 {for_it}, {members}")
    if mode == "ballot":
        if kind.bits != 32:
            raise e.fail(".ballot is .b32")
        e.write(d, U32, ballot)
        return
    everyone, anyone = e.op(f"icmp eq i32 {ballot}, {members}"), e.op(f"icmp ne i32 {ballot}, 0")
    if mode == "uni":
        nobody = e.op(f"icmp eq i32 {ballot}, 0")
        everyone = e.op(f"or i1 {everyone}, {nobody}")
    e.write(d, PRED, anyone if mode == "any" else everyone)


@warp_opcode("match")
def match(e: WarpEmitter, i: Instruction, m: Modifiers) -> None:
    mode = m.need("any", "all")
    m.need("sync")
    kind = integer_type(e, m, 32, 64)
    target, a, mask = e.operands(3)
    d, p = warp.destinations(target)
    members = e.spread("i32", _members(e, [mask], True))
    t = vector(kind.llvm)
    values = e.spread(kind.llvm, e.read(a, kind))
    given, found = e.alloca(f"{t}, align 64"), e.alloca(f"{_WORDS}, align 64")
    e.raw(f"store {t} {values}, ptr {given}, align 64")
    e.raw(f"store {_WORDS} zeroinitializer, ptr {found}, align 64")

    def compare() -> None:
        assert e.turn is not None
        mine = e.raw_op(f"getelementptr {kind.llvm}, ptr {given}, i64 {e.turn.lane}")
        one = e.raw_op(f"load {kind.llvm}, ptr {mine}, align {kind.bytes}")
        first = e.raw_op(f"insertelement {t} poison, {kind.llvm} {one}, i64 0")
        all_of_it = e.raw_op(f"shufflevector {t} {first}, {t} poison, <{WARP} x i32> zeroinitializer")
        same = e.raw_op(f"icmp eq {t} {values}, {all_of_it}")
        bits = e.raw_op(f"bitcast {_MASK} {same} to i32")
        to = e.raw_op(f"getelementptr i32, ptr {found}, i64 {e.turn.lane}")
        e.raw(f"store i32 {bits}, ptr {to}, align 4")

    e.in_turns(compare)
    same = e.op(f"and i32 {_wide(e, f'load {_WORDS}, ptr {found}, align 64')}, {members}")
    everyone = e.op(f"icmp eq i32 {same}, {members}")
    if mode == "all":
        same = e.op(f"select i1 {everyone}, i32 {same}, i32 0")
    e.write(d, U32, same)
    if p is not None:
        e.write(p, PRED, everyone)


@warp_opcode("activemask")
def activemask(e: WarpEmitter, i: Instruction, m: Modifiers) -> None:
    integer_type(e, m, 32)
    (d,) = e.operands(1)
    e.write(d, U32, e.bits(e.mask))


@warp_opcode("redux")
def redux(e: WarpEmitter, i: Instruction, m: Modifiers) -> None:
    how = warp.take_reduction(e, m)
    d, a, mask = e.operands(3)
    members = _members(e, [mask], True)
    value = e.spread("i32", how.key(e, e.read_bits(a, 32)))
    name = how.operation
    if name in ("min", "max"):
        name = ("s" if how.signed else "u") + name
        extremes = {"smin": 2**31 - 1, "smax": -(2**31), "umin": -1, "umax": 0}
        identity = extremes[name]
    else:
        identity = _IDENTITY[name]
    function = f"llvm.vector.reduce.{name}.v{WARP}i32"
    e.kernel.declare(function, f"i32 @{function}({_WORDS})")

    def reduced(group: str) -> str:
        there = e.raw_op(f"bitcast i32 {group} to {_MASK}")
        given = e.raw_op(f"select {_MASK} {there}, {_WORDS} {value}, {_WORDS} splat (i32 {identity})")
        return e.raw_op(f"call i32 @{function}({_WORDS} {given})")

    if not e.varies(members):
        e.write_bits(d, 32, how.value(e, reduced(members)), how.signed)
        return
    # Each lane has its group's.
    groups, found = e.alloca(f"{_WORDS}, align 64"), e.alloca(f"{_WORDS}, align 64")
    e.raw(f"store {_WORDS} {members}, ptr {groups}, align 64")
    e.raw(f"store {_WORDS} zeroinitializer, ptr {found}, align 64")

    def reduce() -> None:
        assert e.turn is not None
        group = e.raw_op(f"getelementptr i32, ptr {groups}, i64 {e.turn.lane}")
        result = reduced(e.raw_op(f"load i32, ptr {group}, align 4"))
        to = e.raw_op(f"getelementptr i32, ptr {found}, i64 {e.turn.lane}")
        e.raw(f"store i32 {result}, ptr {to}, align 4")

    e.in_turns(reduce)
    results = _wide(e, f"load {_WORDS}, ptr {found}, align 64")
    e.write_bits(d, 32, how.value(e, results), how.signed)


@warp_opcode("elect")
def elect(e: WarpEmitter, i: Instruction, m: Modifiers) -> None:
    m.need("sync")
    target, mask = e.operands(2)
    d, p = warp.destinations(target)
    leader = e.intrinsic("llvm.cttz.i32", "i32", f"i32 {_members(e, [mask], True)}", "i1 false")
    e.write(d, U32, leader)
    if p is not None:
        e.write(p, PRED, e.op(f"icmp eq i32 {lanes(e)}, {leader}"))


@warp_opcode("bar", "barrier")
def bar(e: WarpEmitter, i: Instruction, m: Modifiers) -> None:
    if m.flag("warp"):
        m.need("sync")
        e.operands(1)
        return
    try:
        if "red" in m.flags:
            _reduce(e, m)
        else:
            control.bar(e, i, m)
    except NotVector:
        raise Unsuitable("a barrier whose number the lanes may not agree on") from None


def _reduce(e: WarpEmitter, m: Modifiers) -> None:
    m.flag("cta")
    m.flag("aligned")
    m.need("red")
    operation = m.need("popc", "and", "or")
    kind = m.type()
    d, number, *count, p = e.operands(3, 4)
    if isinstance(d, Pair):
        raise e.fail("one destination")
    predicate = e.spread("i1", e.predicate(p))
    if operation == "and":
        idle = e.raw_op(f"xor {_MASK} {e.mask}, splat (i1 true)")
        mask = e.bits(e.raw_op(f"or {_MASK} {predicate}, {idle}"))
    else:
        mask = e.bits(e.raw_op(f"and {_MASK} {predicate}, {e.mask}"))
    threads = f"i32 {e.read_bits(count[0], 32)}" if count else "i32 0"
    code = ("popc", "and", "or").index(operation)
    barrier = f"i32 {e.read_bits(number, 32)}"
    value = e.call("i32", "sim_rt_bar_red", "ptr %thread", barrier, threads, f"i32 {code}", f"i32 {mask}")
    if kind is PRED:
        e.write(d, PRED, e.op(f"icmp ne i32 {value}, 0"))
    else:
        e.write(d, U32, value)


@warp_opcode("nanosleep")
def nanosleep(e: WarpEmitter, i: Instruction, m: Modifiers) -> None:
    kind = m.type()
    (duration,) = e.operands(1)
    longest = e.element(e.read(duration, kind), e.first_lane(e.mask))
    e.call("void", "sim_rt_nanosleep", "ptr %thread", f"i32 {longest}")
