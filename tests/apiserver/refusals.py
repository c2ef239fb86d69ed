"""Frames that break exactly one check of the spec, made from frames that break none."""

from __future__ import annotations

import struct
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations, product
from pathlib import Path
from typing import Any

from gpuferry.specs._generated import frames

from codegen import header
from codegen.checks import FRAMING, Check, What, names_in, stated
from codegen.expression import paths
from codegen.load import load
from codegen.model import Arg, Kind, Use
from codegen.wire import WIRE_SIZES
from tests.apiserver import arrays, kernels, links
from tests.apiserver.guest import PRIMARY, Guest, handle, operations

PAGE = 2 << 20
LIMITS = {What.MIN, What.MAX}
NOBODY = 0x7FFF_FF00  # no enumerator of any enum
SPEC = load()
FIRST_FUNCTION = min(v.id for v in SPEC.driver.variants)

TWO_MULTIPROCESSORS = bytes([3, *bytes(63)])
BETWEEN_ARRAYS = {"target_array": arrays.KEPT, "source_array": arrays.KEPT}
# A line of 64 bytes, as native/driver_interop/tensor_map.h lays it out and the simulated device encodes it.
TENSOR_MAP = struct.pack(
    "<Q8B4Q5I5H5BB6h28xI",
    1 << 40,
    1,
    0,
    1,
    *bytes(5),
    *[0] * 4,
    64,
    *[0] * 4,
    16,
    *[0] * 4,
    1,
    *bytes(5),
    *[0] * 6,
    0x70616D54,
)
# Where a valid value does not follow from the check of one argument alone.
VALID: dict[str, dict[str, Any]] = {
    "sessionMemMap": {"size": PAGE},
    "sessionMemMapOn": {"size": PAGE},
    "sessionMemUnmap": {"size": PAGE},
    "sessionMemAlias": {"size": PAGE},
    "sessionUnsupported": {"function": FIRST_FUNCTION},
    "sessionGetGlobal": {"payload": b"variable"},
    "sessionGetManaged": {"payload": b"managed"},
    "sessionTextureReference": {"payload": b"picture"},
    "sessionSurfaceReference": {"payload": b"canvas"},
    "sessionTextureBind": {"payload": b"\0"},
    "cuTexRefSetBorderColor": {"payload": bytes(16)},
    "sessionLaunch": {"params": 12},
    "sessionOccupancyClusters": {"block": (32, 1, 1)},
    "sessionImageData": {"hash": bytes(32), "payload": b"x"},
    "sessionLoadImage": {"hash": bytes(32)},
    "sessionLinkAdd": {"hash": bytes(32), "payload": links.NO_OPTIONS},
    "cuLinkCreate_v2": {"payload": links.NO_OPTIONS},
    "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags": {"blockSize": 32},
    "cuOccupancyAvailableDynamicSMemPerBlock": {"numBlocks": 1, "blockSize": 32},
    "sessionRestoreState": {"payload": b""},
    "sessionGraphKernel": {"params": 12},
    "sessionGraphSetKernel": {"params": 12},
    "sessionGraphBox": BETWEEN_ARRAYS,
    "sessionGraphSetBox": BETWEEN_ARRAYS,
    "cuArray3DCreate_v2": {"pAllocateArray": arrays.description(64)},
    "cuMipmappedArrayCreate": {"pMipmappedArrayDesc": arrays.description(64)},
    "sessionTextureCreate": {
        "resource": arrays.resource(arrays.KEPT),
        "texture": arrays.SAMPLER,
        "payload": arrays.NO_PART,
    },
    "sessionTensorMap": {"map": TENSOR_MAP},
    "sessionTensorMapMove": {"map": TENSOR_MAP},
    "sessionGreenContext": {"multiprocessors": TWO_MULTIPROCESSORS},
    "sessionSurfaceCreate": {"resource": arrays.resource(arrays.KEPT)},
}

FIRST_NODE = 2  # behind the empty ones that every graph has here
# What lies behind a request, where zeros are none.
BARRIER = frames.MemoryOperation(operation=6, flags=0, address=0, value=0).pack()
CONTENT = {
    "sessionGraphEdges": struct.pack("<II", 0, 1) + bytes(8),
    "sessionGraphBatch": BARRIER,
    "sessionGraphSetBatch": BARRIER,
}
# Nodes of the graph that may be launched, and the operation that changes each.
CHANGES = {
    "sessionGraphSetKernel": 0,
    "sessionGraphSetRows": 1,
    "sessionGraphSetBatch": 2,
    "sessionGraphSetBox": 3,
}


@cache
def constants() -> dict[str, int]:
    """What the checks name of cuda.h, as the compiler has it."""
    found = [c for op in operations() for c in checks(op)]
    names = {name for c in found if c.what is not What.HANDLE for name in c.names}
    names |= {c.error for c in found if c.error}
    names |= {n for c in found if c.what in LIMITS and c.arg for n in names_in(str(c.bound), c.arg)}
    names |= {
        n for c in found if c.what is What.EARLY for (n, *_) in paths(str(c.bound)) if n.startswith("CU")
    }
    prints = "".join(f'printf("{name} %lld\\n", (long long){name});' for name in sorted(names))
    source = f"#include <stdio.h>\n#include <cuda.h>\nint main(void) {{ {prints} return 0; }}\n"
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "constants"
        command = [header.compiler(), "-xc", f"-I{header.find(None)}", "-o", str(program), "-"]
        subprocess.run(command, input=source, text=True, check=True)
        lines = subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()
    return {name: int(value) for name, value in map(str.split, lines)}


@dataclass
class World:
    """A session that has one of every kind, and two pages."""

    guest: Guest
    address: int = 0
    made: dict[str, int] = field(default_factory=dict)
    slots: int = 10
    ready: int = 0  # a graph; the one in `made` is not yet

    def furnish(self) -> World:
        self.address = self.guest.map(2)
        self.made["context"] = self.make("context")
        self.made["kernel"] = kernels.bind(self.guest, "scale")
        self.made["library"] = kernels.LIBRARY
        arrays.create(self.guest, arrays.KEPT)
        self.made["array"] = arrays.KEPT
        for kind in (
            "stream",
            "event",
            "module",
            "function",
            "link",
            "graph_exec",
            "mipmapped_array",
            "texture_reference",
            "surface_reference",
            "texture_object",
            "surface_object",
            "green_context",
        ):
            self.made[kind] = self.make(kind)
        self.ready = self.ready_graph()
        reply = self.guest.sync()
        assert (reply.status, reply.latched) == (0, 0), reply
        return self

    def ready_graph(self) -> int:
        """One that may be launched: a kernel, a fill, what is done to words of memory, and a copy."""
        ready = self.make("graph_exec")
        for op in ("sessionGraphKernel", "sessionGraphRows", "sessionGraphBatch", "sessionGraphBox"):
            self.guest.send(op, **valid(self, op) | {"exec": ready})
        reply = self.guest.call("sessionGraphReady", exec=ready, flags=0)
        assert (reply.status, reply.latched) == (0, 0), reply
        self.guest.send(
            "sessionGraphSetNode", exec=ready, node=FIRST_NODE, kind=5, subject=0
        )  # it does not run
        return ready

    def condition(self, graph: int) -> int:
        """A value that a conditional node of the graph may decide by."""
        reply = self.guest.call("sessionGraphCondition", exec=graph, wanted=0, graph=0, initial=0, flags=0)
        assert reply.status == 0, reply
        value: int = reply.values["value"]
        return value

    def conditional(self, graph: int) -> None:
        """A conditional node with one body."""
        value = self.condition(graph)
        node = {"graph": 0, "type": 0, "size": 1}
        assert self.guest.call("sessionGraphConditional", exec=graph, value=value, **node).status == 0

    def make(self, kind: str) -> int:
        """One more."""
        self.slots += 1
        new, guest = handle(kind, self.slots), self.guest
        if kind == "context":
            guest.send("cuCtxCreate_v2", pctx=new, flags=0, dev=0)
        elif kind == "stream":
            guest.send("cuStreamCreateWithPriority", phStream=new, flags=0, priority=0)
        elif kind == "event":
            guest.send("cuEventCreate", phEvent=new, Flags=0)
            guest.send("cuEventRecordWithFlags", hEvent=new, hStream=0, flags=0)
        elif kind == "array":
            arrays.create(guest, new)
        elif kind == "mipmapped_array":
            arrays.create_mipmap(guest, new)
        elif kind == "green_context":
            values = {
                "device": 0,
                "flags": 0,
                "multiprocessors": TWO_MULTIPROCESSORS,
                "workloads": 0,
                "scope": 0,
            }
            assert guest.call("sessionGreenContext", green=new, **values).status == 0
        elif kind == "texture_object":
            assert arrays.texture(guest, new, arrays.KEPT).status == 0
        elif kind == "surface_object":
            assert arrays.surface(guest, new, arrays.KEPT).status == 0
        elif kind == "texture_reference":
            guest.send("cuTexRefCreate", pTexRef=new)
        elif kind == "surface_reference":
            found = guest.call(
                "sessionSurfaceReference", reference=new, module=self.made["module"], payload=b"canvas"
            )
            assert found.status == 0
        elif kind == "link":
            assert links.create(guest, new).status == 0
            links.add_all(guest, new)
            assert links.complete(guest, new).status == 0
        elif kind == "graph_exec":
            guest.send("sessionGraphBegin", exec=new)
            for _ in range(2):
                guest.send("sessionGraphNode", exec=new, kind=0, subject=0)
        elif kind == "function":
            guest.send("sessionGetFunction", function=new, owner=self.made["module"], index=0)
        else:
            digest = kernels.digest()
            assert guest.call("sessionLoadImage", hash=digest, handle=new, size=len(kernels.PTX)).status == 0
        return new


def width(op: str, name: str) -> tuple[int, bool]:
    """Bits of a member of a request, and whether it has a sign."""
    found = next(f for f in operations()[op].request if f.name == name)
    return 8 * WIRE_SIZES[found.type], found.type.startswith("i")


def count(op: str, name: str) -> int:
    return next(f.count for f in operations()[op].request if f.name == name)


def sized(op: str) -> list[Arg]:
    """What lies behind the request, as many bytes as its size says."""
    return [a for a in operations()[op].request_payload if a.size is not None]


def valid(world: World, op: str) -> dict[str, Any]:
    """Arguments that break no check, with context and payload."""
    values: dict[str, Any] = {"context": PRIMARY, "payload": b""}
    for arg in operations()[op].variant.args:
        if arg.kind is Kind.SCALAR:
            least = max(int(arg.min or 0), 0)
            number = count(op, arg.name)
            values[arg.name] = (least,) * number if number > 1 else least
            if number > 1 and width(op, arg.name) == (8, False):
                values[arg.name] = bytes(values[arg.name])
        elif arg.kind is Kind.ENUM:
            values[arg.name] = constants()[names[0]] if (names := allowed(op, arg)) else 0
        elif arg.kind is Kind.POINTER:
            values[arg.name] = world.address
        elif arg.kind is Kind.HANDLE and arg.use is Use.CREATE:
            world.slots += 1
            values[arg.name] = handle(arg.of[0], world.slots)
        elif arg.kind is Kind.HANDLE and arg.use is Use.DESTROY:
            values[arg.name] = world.make(arg.of[0])
        elif arg.kind is Kind.HANDLE:
            values[arg.name] = world.made[arg.of[-1]]
        elif arg.kind in (Kind.FLAGS, Kind.DEVICE):
            values[arg.name] = 0
    values |= VALID.get(op, {})
    if "address" in values and values["address"] == 0:
        world.slots += 1
        values["address"] = world.guest.window + world.slots * PAGE
    if op.startswith("sessionGraph"):
        named = {"target": world.address, "function": world.made["kernel"]}
        values |= {name: value for name, value in named.items() if name in values}
    if op in CHANGES or op in ("sessionGraphSetNode", "sessionGraphLaunch"):
        at = {"exec": world.ready, "node": FIRST_NODE + CHANGES.get(op, 0)}
        values |= {name: value for name, value in at.items() if name in values}
    elif op.startswith("sessionGraph") and "exec" in values and op != "sessionGraphBegin":
        values["exec"] = world.make("graph_exec")
    if op == "sessionGraphConditional":
        values["value"] = world.condition(values["exec"])
    elif op in ("sessionGraphPlace", "sessionGraphDropConditional"):
        world.conditional(values["exec"])
    if "home" in values:
        values["home"] = world.address
    return values | {"payload": payload(op, values)}


def changed(world: World, op: str, change: dict[str, Any]) -> dict[str, Any]:
    """A valid frame with this in place of what it says; as much payload as it then announces."""
    values = {**valid(world, op), **change}
    return values if "payload" in change else values | {"payload": payload(op, values)}


def payload(op: str, values: dict[str, Any]) -> bytes:
    """As long as the sizes say, then what has no size; or as given."""
    total = sum(eval(str(arg.size), {}, values) for arg in sized(op))
    if len(CONTENT.get(op, b"")) == total > 0:
        return CONTENT[op]
    rest: bytes = VALID.get(op, {}).get("payload", b"") if sized(op) else values["payload"]
    return bytes(total) + rest


def allowed(op: str, arg: Arg) -> tuple[str, ...]:
    return next((c.names for c in checks(op) if c.arg == arg and c.what is What.ENUM), ())


@cache
def checks(op: str) -> tuple[Check, ...]:
    return stated(SPEC, operations()[op])


def framing(op: str) -> bool:
    return any(c.what in FRAMING for c in checks(op))


def strange_handles(world: World, arg: Arg) -> Iterator[int]:
    """Of other kinds, of none, never made, ended, from an earlier life of a slot."""
    yield from (handle(kind, 900) for kind in arg.of)
    yield from (made for kind, made in world.made.items() if kind not in arg.of)
    yield handle(arg.of[0], 1 << 20)
    yield world.made[arg.of[0]] | 1 << 24  # its slot's next generation
    yield from (0x6766 << 48 | 99 << 40, 0x7FFF_0000_1234_5678, (1 << 64) - 1)
    if not arg.nullable:
        yield 0


def ranges(world: World, op: str, check: Check) -> Iterator[dict[str, Any]]:
    """Memory that is not the session's: nowhere, elsewhere, past the end; sizes that do not fit."""
    assert check.arg
    end = world.address + 2 * PAGE
    for address in (
        0,
        8,
        world.guest.window + 64 * PAGE,
        end,
        end - 1 if bytes_of(world, op, check) > 1 else end,
    ):
        yield {check.arg.name: address}
    yield {check.arg.name: (1 << 64) - 1}
    yield {check.arg.name: world.guest.window + world.guest.window_size}
    if framing(op):
        return
    numbers = names_in(str(check.bound), check.arg)
    for name in numbers:
        if width(op, name)[0] == 64:
            yield {**dict.fromkeys(numbers & wide(op), 2), name: 1 << 63}


def wide(op: str) -> set[str]:
    return {f.name for f in operations()[op].request if f.type == "u64"}


def bytes_of(world: World, op: str, check: Check) -> int:
    return int(eval(str(check.bound), {}, valid(world, op)))


def violations(world: World, op: str, check: Check) -> Iterator[dict[str, Any]]:
    """What to put in place of valid arguments so that just this check fails."""
    if check.what is What.CONTEXT:
        yield {"context": 0}
        return
    if check.what is What.EARLY:
        yield from conditions(world, op, check)
        return
    arg = check.arg
    assert arg
    name = arg.name
    if check.what is What.PAYLOAD:
        announced = len(valid(world, op)["payload"])
        yield from ({"payload": bytes(n)} for n in (announced - 1, announced + 1) if n >= 0)
    elif check.what is What.ANSWER:
        names = sorted(names_in(str(check.bound), arg))
        yield from ({name: value} for name in names for value in ((4 << 20) + 1, 1 << 63, (1 << 64) - 1))
    elif check.what is What.CARRIED:
        yield from ({name: constants()[refused]} for refused in check.names)
    elif check.what is What.ENUM:
        yield from ({name: value} for value in (NOBODY, (1 << 32) - 1))
    elif check.what is What.FLAGS:
        known = 0
        for flag in check.names:
            known |= constants()[flag]
        yield from ({name: 1 << bit} for bit in range(width(op, name)[0]) if not known >> bit & 1)
    elif check.what in (What.MIN, What.MAX):
        yield from bounds(op, check)
    elif check.what is What.DEVICE:
        yield from ({name: value} for value in (1, -1, 2**31 - 1))
    elif check.what is What.RANGE:
        yield from ranges(world, op, check)
    elif check.what is What.HANDLE:
        yield from ({name: value} for value in strange_handles(world, arg))


def choices(op: str, arg: Arg, valid: Any) -> list[Any]:
    """Values of an argument that no check of it alone refuses, most of them strange."""
    names = [constants()[name] for name in allowed(op, arg) or arg.allow]
    if arg.kind is Kind.ENUM:
        return names or [valid, 0]
    if arg.kind is Kind.FLAGS:
        return [sum(some) for n in range(len(names) + 1) for some in combinations(names, n)]
    bits, signed = width(op, arg.name)
    return [valid, -1, -2, 3, 101] if signed else [valid, 101, 1 << (bits - 1)]


def conditions(world: World, op: str, check: Check) -> Iterator[dict[str, Any]]:
    """Values of which a condition holds, and none before it."""
    values = valid(world, op)
    earlier = [c.bound for c in checks(op) if c.what is What.EARLY]
    earlier = earlier[: earlier.index(check.bound)]
    asked = {path[0] for path in paths(str(check.bound))}
    args = [a for a in operations()[op].variant.args if a.name in asked]
    for some in product(*(choices(op, a, values[a.name]) for a in args)):
        change = dict(zip((a.name for a in args), some, strict=True))
        known = {**constants(), **values, **change}
        if eval(str(check.bound), {}, known) and not any(eval(str(e), {}, known) for e in earlier):
            yield change


def bounds(op: str, check: Check) -> Iterator[dict[str, Any]]:
    assert check.arg
    name, number = check.arg.name, count(op, check.arg.name)
    limit = int(eval(str(check.bound), {}, constants()))
    least = -(1 << (width(op, name)[0] - 1)) if width(op, name)[1] else 0
    beyond = limit - 1 if check.what is What.MIN else limit + 1
    if beyond < least:
        return
    for place in range(number):
        values = [max(limit, 1)] * number
        values[place] = beyond
        yield {name: tuple(values) if number > 1 else beyond}
