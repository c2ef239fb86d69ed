"""Functions that an object brings along for accesses whose addresses do not follow each other."""

from __future__ import annotations

from ..emit import layout, reach
from ..kernel import KernelContext
from .widen import WARP, vector

OWN = "own"  # the state space of what is known to be a thread's own
_MASK = vector("i1")
_ATTRIBUTES = (
    'noinline nounwind null_pointer_is_valid "min-legal-vector-width"="512" "prefer-vector-width"="512" '
    '"probe-stack"="inline-asm"'
)


def helper(kernel: KernelContext, space: str, bits: int, load: bool) -> str:
    """The name of the function that loads or stores `bits` at each lane's address in a state space."""
    name = f"{'load' if load else 'store'}.{space}.i{bits}"
    if name not in kernel.helpers:
        kernel.helpers[name] = ""
        kernel.helpers[name] = _text(kernel, name, space, bits, load)
    return name


def _text(kernel: KernelContext, name: str, space: str, bits: int, load: bool) -> str:
    shared = space == "shared"
    address = "i32" if shared else "i64"
    t, size = f"i{bits}", bits // 8
    wide, wide_address = vector(t), vector(address)
    result = wide if load else "void"
    value = "" if load else f", {wide} %value"
    lines = [
        f"define internal {result} @{name}(ptr %warp, {wide_address} %a, {_MASK} %m{value}) {_ATTRIBUTES} {{",
        "entry:",
        f"  %thread = getelementptr i8, ptr %warp, i64 {layout.LANES['lane']}",
        "  %block = load ptr, ptr %warp, align 8",
        "  %bits = bitcast " + f"{_MASK} %m to i32",
        f"  %low = and {wide_address} %a, splat ({address} {size - 1})",
        f"  %crooked = icmp ne {wide_address} %low, zeroinitializer",
        f"  %crooked.here = and {_MASK} %crooked, %m",
        f"  %crooked.bits = bitcast {_MASK} %crooked.here to i32",
        "  %crooked.any = icmp ne i32 %crooked.bits, 0",
        "  br i1 %crooked.any, label %misaligned, label %aligned, !prof !1",
        *_failure(kernel, "misaligned", "%crooked.bits", address),
        "aligned:",
    ]
    if shared:
        lines += _in_shared(kernel, size)
    elif kernel.checked and space != OWN:
        lines += _reachable(kernel, space, size, load)
    else:
        lines.append(f"  %p = inttoptr {wide_address} %a to {vector('ptr')}")
    before = "inside" if shared else "reached" if kernel.checked and space != OWN else "aligned"
    if bits in (32, 64):
        lines += _halves(t, size, load, address)
        before = "apart"
    if bits in (8, 16, 128) or not kernel.gathers:
        first = lines.index("entry:") + 1
        lines[first:first] = [
            f"  %places = alloca {vector('ptr')}, align 64",
            f"  %values = alloca {wide}, align 64",
        ]
        lines += _each(kernel, t, size, load, before)
    else:
        lines += _at_once(kernel, t, size, load)
    return "\n".join([*lines, "}", ""])


def _failure(kernel: KernelContext, what: str, bits: str, address: str) -> list[str]:
    service = f"sim_rt_{what}"
    kernel.declare(service, f"void @{service}(ptr, i64) cold noreturn")
    kernel.declare("llvm.cttz.i32", "i32 @llvm.cttz.i32(i32, i1)")
    lane = f"%{what}.lane"
    return [
        f"{what}:",
        f"  {lane} = call i32 @llvm.cttz.i32(i32 {bits}, i1 true)",
        f"  {lane}.wide = zext i32 {lane} to i64",
        f"  {lane}.thread = getelementptr [{layout.THREAD_SIZE} x i8], ptr %thread, i64 {lane}.wide",
        f"  {lane}.narrow = extractelement {vector(address)} %a, i32 {lane}",
        f"  {lane}.at = {'zext i32' if address == 'i32' else 'add i64'} {lane}.narrow"
        + (" to i64" if address == "i32" else ", 0"),
        f"  call void @{service}(ptr {lane}.thread, i64 {lane}.at)",
        "  unreachable",
    ]


def _block_field(name: str, field: str) -> list[str]:
    offset, kind = layout.BLOCK[field]
    return [
        f"  {name}.at = getelementptr i8, ptr %block, i64 {offset}",
        f"  {name} = load {kind}, ptr {name}.at, align {layout.ALIGN[kind]}",
    ]


def _in_shared(kernel: KernelContext, size: int) -> list[str]:
    wide = vector("i32")
    zeros = f"<{WARP} x i32> zeroinitializer"
    kernel.declare("llvm.usub.sat.i64", "i64 @llvm.usub.sat.i64(i64, i64)")
    return [
        *_block_field("%dynamic", "shared_dynamic"),
        *_block_field("%shared", "shared"),
        "  %dynamic.wide = zext i32 %dynamic to i64",
        f"  %limit = add i64 %dynamic.wide, {kernel.shared.dynamic + 1}",
        f"  %beyond = call i64 @llvm.usub.sat.i64(i64 %limit, i64 {size})",
        "  %beyond.low = trunc i64 %beyond to i32",
        f"  %limit.one = insertelement {wide} poison, i32 %beyond.low, i64 0",
        f"  %limits = shufflevector {wide} %limit.one, {wide} poison, {zeros}",
        f"  %outside = icmp uge {wide} %a, %limits",
        f"  %outside.here = and {_MASK} %outside, %m",
        f"  %outside.bits = bitcast {_MASK} %outside.here to i32",
        "  %outside.any = icmp ne i32 %outside.bits, 0",
        "  br i1 %outside.any, label %illegal, label %inside, !prof !1",
        *_failure(kernel, "illegal", "%outside.bits", "i32"),
        "inside:",
        # What has been checked is less than 2^31: processors extend indices with the sign.
        f"  %a.wide = sext {wide} %a to {vector('i64')}",
        f"  %p = getelementptr i8, ptr %shared, {vector('i64')} %a.wide",
    ]


def _reachable(kernel: KernelContext, space: str, size: int, load: bool) -> list[str]:
    """Device memory, or what each lane that is elsewhere may use."""
    wide = vector("i64")
    kernel.declare("sim_rt_reach", "void @sim_rt_reach(ptr, i64, i32, i32)")
    kernel.declare("sim_rt_illegal", "void @sim_rt_illegal(ptr, i64) cold noreturn")
    kernel.declare("llvm.cttz.i32", "i32 @llvm.cttz.i32(i32, i1)")
    kernel.declare("llvm.usub.sat.i64", "i64 @llvm.usub.sat.i64(i64, i64)")
    local, end = (layout.THREAD[name] for name in ("local", "local_end"))
    device = "false" if space == "local" else "true"
    outside_local = "ask" if space in ("generic", "param") else "deny"
    in_local = "next" if space in ("generic", "param", "local") else "deny"
    return [
        f"  %device.offset = sub {wide} %a, splat (i64 {reach.BEGIN})",
        f"  %device = icmp ult {wide} %device.offset, splat (i64 {reach.END - reach.BEGIN})",
        f"  %device.may = and {_MASK} %device, splat (i1 {device})",
        f"  %elsewhere = xor {_MASK} %device.may, splat (i1 true)",
        f"  %elsewhere.here = and {_MASK} %elsewhere, %m",
        f"  %elsewhere.bits = bitcast {_MASK} %elsewhere.here to i32",
        "  br label %asked",
        "asked:",
        "  %asked.rest = phi i32 [ %elsewhere.bits, %aligned ], [ %asked.less, %next ]",
        "  %asked.none = icmp eq i32 %asked.rest, 0",
        "  br i1 %asked.none, label %reached, label %asking",
        "asking:",
        "  %asked.lane = call i32 @llvm.cttz.i32(i32 %asked.rest, i1 true)",
        "  %asked.lane.wide = zext i32 %asked.lane to i64",
        f"  %asked.thread = getelementptr [{layout.THREAD_SIZE} x i8], ptr %thread, i64 %asked.lane.wide",
        f"  %asked.at = extractelement {wide} %a, i32 %asked.lane",
        f"  %local.at = getelementptr i8, ptr %asked.thread, i64 {local}",
        f"  %local.end.at = getelementptr i8, ptr %asked.thread, i64 {end}",
        "  %local = load i64, ptr %local.at, align 8",
        "  %local.end = load i64, ptr %local.end.at, align 8",
        "  %local.size = sub i64 %local.end, %local",
        f"  %local.places = call i64 @llvm.usub.sat.i64(i64 %local.size, i64 {size - 1})",
        "  %local.offset = sub i64 %asked.at, %local",
        "  %local.in = icmp ult i64 %local.offset, %local.places",
        f"  br i1 %local.in, label %{in_local}, label %{outside_local}",
        "ask:",
        f"  call void @sim_rt_reach(ptr %asked.thread, i64 %asked.at, i32 {size}, i32 {int(not load)})",
        "  br label %next",
        "deny:",
        "  call void @sim_rt_illegal(ptr %asked.thread, i64 %asked.at)",
        "  unreachable",
        "next:",
        "  %asked.minus = sub i32 %asked.rest, 1",
        "  %asked.less = and i32 %asked.rest, %asked.minus",
        "  br label %asked",
        "reached:",
        f"  %p = inttoptr {wide} %a to {vector('ptr')}",
    ]


def _halves(t: str, size: int, load: bool, address: str) -> list[str]:
    """Each half of the lanes at one address, or at addresses that follow each other, as in blocks of 16
    columns. Goes on at `apart` where it is otherwise."""
    half = WARP // 2
    part, addresses, mask = f"<{half} x {t}>", f"<{half} x {address}>", f"<{half} x i1>"
    zeros = f"<{half} x i32> zeroinitializer"
    steps = "<" + ", ".join(f"{address} {lane * size}" for lane in range(half)) + ">"
    wide = vector(address)
    lines, ways = ["  %whole = icmp eq i32 %bits, -1"], ["%whole"]
    for name, first in (("low", 0), ("high", half)):
        chosen = ", ".join(f"i32 {first + lane}" for lane in range(half))
        lines += [
            f"  %{name}.a = shufflevector {wide} %a, {wide} poison, <{half} x i32> <{chosen}>",
            f"  %{name}.p = extractelement {vector('ptr')} %p, i32 {first}",
            f"  %{name}.all = shufflevector {addresses} %{name}.a, {addresses} poison, {zeros}",
            f"  %{name}.next = add {addresses} %{name}.all, {steps}",
            f"  %{name}.same.m = icmp eq {addresses} %{name}.a, %{name}.all",
            f"  %{name}.near.m = icmp eq {addresses} %{name}.a, %{name}.next",
        ]
        for how in ("same", "near"):
            lines += [
                f"  %{name}.{how}.bits = bitcast {mask} %{name}.{how}.m to i{half}",
                f"  %{name}.{how} = icmp eq i{half} %{name}.{how}.bits, -1",
            ]
        if load:
            lines.append(f"  %{name}.good = or i1 %{name}.same, %{name}.near")
        ways.append(f"%{name}.good" if load else f"%{name}.near")
    lines += [
        f"  %both = and i1 {ways[1]}, {ways[2]}",
        "  %good = and i1 %both, %whole",
        "  br i1 %good, label %halves, label %apart",
        "halves:",
    ]
    everyone = ", ".join(f"i32 {lane}" for lane in range(WARP))
    if load:
        for name in ("low", "high"):
            lines += [
                f"  br i1 %{name}.same, label %{name}.once, label %{name}.row",
                f"{name}.once:",
                f"  %{name}.v = load {t}, ptr %{name}.p, align {size}",
                f"  %{name}.first = insertelement {part} poison, {t} %{name}.v, i64 0",
                f"  %{name}.spread = shufflevector {part} %{name}.first, {part} poison, {zeros}",
                f"  br label %{name}.done",
                f"{name}.row:",
                f"  %{name}.read = load {part}, ptr %{name}.p, align {size}",
                f"  br label %{name}.done",
                f"{name}.done:",
                f"  %{name}.got = phi {part} [ %{name}.spread, %{name}.once ], [ %{name}.read, %{name}.row ]",
            ]
        lines += [
            f"  %joined = shufflevector {part} %low.got, {part} %high.got, <{WARP} x i32> <{everyone}>",
            f"  ret {vector(t)} %joined",
        ]
    else:
        for name, first in (("low", 0), ("high", half)):
            chosen = ", ".join(f"i32 {first + lane}" for lane in range(half))
            wide = vector(t)
            lines += [
                f"  %{name}.v = shufflevector {wide} %value, {wide} poison, <{half} x i32> <{chosen}>",
                f"  store {part} %{name}.v, ptr %{name}.p, align {size}",
            ]
        lines.append("  ret void")
    return [*lines, "apart:"]


def _at_once(kernel: KernelContext, t: str, size: int, load: bool) -> list[str]:
    pointers, wide = vector("ptr"), vector(t)
    if load:
        name = f"llvm.masked.gather.v{WARP}{t}.v{WARP}p0"
        kernel.declare(name, f"{wide} @{name}({pointers}, i32 immarg, {_MASK}, {wide})")
        given = f"{pointers} %p, i32 {size}, {_MASK} %m, {wide} zeroinitializer"
        return [f"  %got = call {wide} @{name}({given})", f"  ret {wide} %got"]
    name = f"llvm.masked.scatter.v{WARP}{t}.v{WARP}p0"
    kernel.declare(name, f"void @{name}({wide}, {pointers}, i32 immarg, {_MASK})")
    return [
        f"  call void @{name}({wide} %value, {pointers} %p, i32 {size}, {_MASK} %m)",
        "  ret void",
    ]


def _each(kernel: KernelContext, t: str, size: int, load: bool, before: str) -> list[str]:
    """A loop over the lanes, by way of memory: the processor gathers no such elements."""
    pointers, wide = vector("ptr"), vector(t)
    kernel.declare("llvm.cttz.i32", "i32 @llvm.cttz.i32(i32, i1)")
    access = [
        f"  %each.v = load {t}, ptr {'%each.p' if load else '%each.slot'}, align {size}",
        f"  store {t} %each.v, ptr {'%each.slot' if load else '%each.p'}, align {size}",
    ]
    return [
        f"  store {pointers} %p, ptr %places, align 64",
        f"  store {wide} {'zeroinitializer' if load else '%value'}, ptr %values, align 64",
        "  br label %each",
        "each:",
        f"  %each.rest = phi i32 [ %bits, %{before} ], [ %each.less, %each.do ]",
        "  %each.none = icmp eq i32 %each.rest, 0",
        "  br i1 %each.none, label %done, label %each.do",
        "each.do:",
        "  %each.lane = call i32 @llvm.cttz.i32(i32 %each.rest, i1 true)",
        "  %each.wide = zext i32 %each.lane to i64",
        "  %each.place = getelementptr ptr, ptr %places, i64 %each.wide",
        "  %each.p = load ptr, ptr %each.place, align 8",
        f"  %each.slot = getelementptr {t}, ptr %values, i64 %each.wide",
        *access,
        "  %each.minus = sub i32 %each.rest, 1",
        "  %each.less = and i32 %each.rest, %each.minus",
        "  br label %each",
        "done:",
        *([f"  %got = load {wide}, ptr %values, align 64", f"  ret {wide} %got"] if load else ["  ret void"]),
    ]
