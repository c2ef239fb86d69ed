"""Random programs of driver calls: ideas that belong together, and any call of the spec between them.

A program is data: calls with tokens for their arguments (play.py says what each stands for). The same seed is
the same program.
"""

from __future__ import annotations

import re
from random import Random
from typing import Any

from codegen.model import Kind

from . import arguments
from .arguments import BLOCK, EDGES, MADE, SIZES, TOO_LARGE, Arguments, Token, constant, variants
from .rarer import RARER

Program = dict[str, Any]
# Attributes of an address that are a driver's own numbers: of buffers, of mappings.
OWN_NUMBERS = (5, 7, 18, 19, 20)
KERNELS = ("fill", "increase", "remember", "nothing", "bounded")
# What is not called at random: it leaves the process, asks about the machine, or is of 32 bits.
LEFT_OUT = re.compile(
    r"cu(Init|Coredump|Checkpoint|Logical|Import|External|Signal|WaitExternal|Graphics|EGL|GL|VDPAU|Fabric|Multicast"
    r"|Logs|GetExportTable|GetProcAddress|Profiler|Ipc|DeviceRegister|DeviceUnregister|Link|TensorMap|MemExport"
    r"|MemImport|MemPoolExport|MemPoolImport|GraphDebugDot|GraphAddExternal|GraphExternal|GraphExecExternal"
    r"|StreamBeginCaptureToCig|StreamBeginRecapture|MemcpyBatch|Memcpy3DBatch|MemBatchDecompress"
    r"|Memcpy3DWith|MemMapArray|ModuleLoad$|ModuleLoadFatBinary|LibraryLoadFromFile|GraphConditional"
    r"|MemGetHandleForAddressRange|MemGetLocationInfo|MemGetInfo$|DeviceGetLuid|LaunchCooperativeKernelMultiDevice"
    r"|Param|FuncSetBlockShape|FuncSetSharedSize|Launch$|LaunchGrid|StreamWaitValue|StreamBatchMemOp"
    r"|GraphAddBatchMemOp|GraphBatchMemOp|GraphExecBatchMemOp|MemHost(Un)?[Rr]egister|CtxDetach|CtxAttach"
    r"|DevicePrimaryCtxRe(set|lease)|PointerGetAttribute)"
)
NARROW = re.compile(r"CUdeviceptr_v1|_v1 \*|CUdevResource|CUgraphNodeParams")


def program(seed: int, devices: int = 1) -> Program:
    """The one of this seed."""
    return Maker(Random(seed), devices).made()


class Maker(Arguments):
    """Makes one program."""

    def __init__(self, random: Random, devices: int = 1) -> None:
        super().__init__(random, devices)
        self.steps: list[dict[str, Any]] = []
        # Whether each call is waited for. Else what several streams do to memory is in no order.
        self.orderly = random.random() < 0.75
        self.careless = random.choice((0.0, 0.02, 0.06))  # how often an argument is wrong
        self.capturing = False
        self.any = [v for v in variants().values() if not LEFT_OUT.match(v.symbol) and not narrow(v)]
        self.groups = sorted({v.group for v in self.any})

    def made(self) -> Program:
        self.begin()
        ideas: list[Any] = self.random.sample(IDEAS, self.random.randrange(2, 9))
        if self.devices > 1:
            ideas += [Maker.contexts, Maker.between_devices]
        several = Maker.contexts in ideas  # of which a wait is about one
        for _ in range(self.random.randrange(4, 40)):
            if self.random.random() < 0.3:
                self.anything()
            else:
                self.random.choice(ideas)(self)
        self.call("cuCtxSynchronize")
        return {"steps": self.steps, "contents": self.orderly and not several}

    def begin(self) -> None:
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", self.new("context"), 0)
        self.call("cuCtxSetCurrent", "context0")
        self.call("cuModuleLoadData", self.new("module"), ["image"])
        for kernel in self.random.sample(KERNELS, 3):
            self.call("cuModuleGetFunction", self.new("function"), "module1", ["text", kernel])
        for _ in range(2):
            self.allocate()

    # Steps

    def new(self, kind: str, size: int = 0) -> Token:
        """Where a call puts what it makes."""
        return ["out", 8, {"name": self.names.new(kind), **({"size": size} if size else {})}]

    def call(self, symbol: str, *tokens: Token, ends: tuple[Any, ...] = ()) -> None:
        tokens = tuple(self.perhaps_wrong(symbol, i, token) for i, token in enumerate(tokens))
        ended = [name for name in ends if isinstance(name, str)]
        for name in ended:
            self.names.ended(name)
        self.steps.append({"call": symbol, "args": list(tokens), **({"ends": ended} if ended else {})})
        waits = self.orderly and not self.capturing and symbol not in ("cuInit", "cuCtxSynchronize")
        if waits and variants()[symbol].klass.value != "local":
            self.steps.append({"call": "cuCtxSynchronize", "args": []})

    def perhaps_wrong(self, symbol: str, place: int, token: Token) -> Token:
        if self.random.random() >= self.careless or len(self.steps) < 8:
            return token
        if symbol.startswith("cuParamSet"):
            return token  # an address in pieces is another one natively
        arg = variants()[symbol].args[place]
        if arg.kind is Kind.HANDLE and isinstance(token, (str, int)):
            return self.random.choice((0, 0xDEADBEEF, self.names.some("event"), self.names.some("stream")))
        if arg.kind is Kind.SCALAR and isinstance(token, int):
            if arg.name == MADE:
                return TOO_LARGE
            return self.random.choice((0, 1, 3, 100) if SIZES.fullmatch(arg.name) else EDGES)
        if arg.kind in (Kind.ENUM, Kind.FLAGS) and isinstance(token, int):
            return self.random.choice((0, 1, 2, 3, 5, 9, 77))
        if arg.kind is Kind.POINTER:
            return self.random.choice((0, ["at", self.names.some("memory") or "none", BLOCK - 8]))
        if isinstance(token, list) and token[0] in ("out", "mem", "text"):
            return 0
        return token

    def anything(self) -> None:
        """Any call of the spec."""
        group = self.random.choice(self.groups)
        variant = self.random.choice([v for v in self.any if v.group == group])
        tokens, ends = self.of(variant)
        self.call(variant.symbol, *tokens, ends=tuple(ends))

    def chance(self, part: float) -> bool:
        return self.random.random() < part

    def stream(self) -> Token:
        """One, the legacy one or that of the thread."""
        if self.chance(0.4) or not self.names.some("stream"):
            return self.random.choice((0, 0, 1, 2))
        return self.names.some("stream")

    # Memory

    def allocate(self) -> None:
        kind = self.random.randrange(8)
        stream = self.stream()
        if kind < 4:
            self.call("cuMemAlloc_v2", self.new("memory", BLOCK), BLOCK)
        elif kind == 4:
            self.call("cuMemAllocAsync", self.new("memory", BLOCK), BLOCK, stream)
        elif kind == 5:
            self.call(
                "cuMemAllocManaged", self.new("managed", BLOCK), BLOCK, self.random.choice((1, 2, 1, 3))
            )
        elif kind == 6:
            self.call("cuMemHostAlloc", self.new("pinned", BLOCK), BLOCK, self.random.choice((0, 1, 2, 3, 4)))
        else:
            pool = self.names.some("memory_pool")
            self.call("cuMemAllocFromPoolAsync", self.new("memory", BLOCK), BLOCK, pool, stream)
        name = f"{('memory', 'managed', 'pinned')[max(0, min(kind, 6) - 4)]}{self.names.number - 1}"
        if kind == 7:
            name = f"memory{self.names.number - 1}"
        self.call("cuMemsetD8Async", name, self.random.randrange(255), BLOCK, stream)

    def free(self) -> None:
        graphs = self.capturing or self.names.some("graph", "graph_exec")
        if len(self.names.living.get("memory", ())) < 3 or graphs:
            return  # what graphs do with memory that is no more is left open
        name = self.names.some("memory", "managed")
        if self.chance(0.5):
            self.call("cuMemFree_v2", name, ends=(name,))
        else:
            self.call("cuMemFreeAsync", name, self.stream(), ends=(name,))

    def host_memory(self) -> None:
        name = self.names.some("pinned")
        choice = self.random.randrange(5)
        if not name or choice == 0:
            flags = self.random.choice((0, 1, 2, 4, 3, 8))
            self.call("cuMemHostAlloc", self.new("pinned", BLOCK), BLOCK, flags)
        elif choice == 1:
            self.call("cuMemHostGetDevicePointer_v2", self.new("mapped", BLOCK), name, 0)
        elif choice == 2:
            self.call("cuMemHostGetFlags", ["out", 4, None], name)
        elif choice == 3:
            self.call("cuMemFreeHost", name, ends=(name,))
        else:
            at = ["host", self.random.randrange(0, arguments.HOST, 4096)]
            self.call(
                "cuMemHostRegister_v2", at, self.random.choice((4096, 8192)), self.random.choice((0, 1, 2))
            )
            if self.chance(0.7):
                self.copy()
                self.call("cuMemHostUnregister", at)

    def copy(self) -> None:
        stream, count = self.stream(), self.random.choice((4, 64, 1000, 4096, 8192, 0))
        kind = self.random.randrange(10)
        if kind == 0:
            self.call("cuMemcpyHtoD_v2", self.address(), self.host(), count)
        elif kind == 1:
            self.call("cuMemcpyDtoH_v2", self.host(), self.address(), count)
        elif kind == 2:
            self.call("cuMemcpyDtoD_v2", self.address(), self.address(), count)
        elif kind == 3:
            self.call("cuMemcpyHtoDAsync_v2", self.address(), self.host(), count, stream)
        elif kind == 4:
            self.call("cuMemcpyDtoHAsync_v2", self.host(), self.address(), count, stream)
        elif kind == 5:
            self.call("cuMemcpyDtoDAsync_v2", self.address(), self.address(), count, stream)
        elif kind == 6:
            ends = [self.random.choice((self.address(), self.host())) for _ in range(2)]
            self.call("cuMemcpyAsync", *ends, count, stream)
        elif kind == 7:
            self.call("cuMemcpy2DAsync_v2", self.box(third=False), stream)
        elif kind == 8:
            self.call("cuMemcpy3DAsync_v2", self.box(third=True), stream)
        else:
            self.call("cuMemcpy2D_v2", self.box(third=False))

    def box(self, third: bool) -> Token:
        """What CUDA_MEMCPY2D or _3D says of a copy."""
        parts: list[Any] = []
        array_offset = 48 if third else 32
        for base in (0, 88 if third else 56):
            head = base + (32 if third else 16)
            kind = self.random.choice((1, 2, 2, 2, 3, 4))
            parts.append([base, 8, self.random.choice((0, 0, 4, 16))])
            parts.append([base + 8, 8, self.random.choice((0, 0, 1))])
            parts.append([head, 4, kind])
            if kind == 1:
                parts.append([head + 8, 8, self.host()])
            parts.append(
                [
                    head + 16,
                    8,
                    self.address() if kind != 4 else self.random.choice((self.address(), self.host())),
                ]
            )
            if kind == 3:
                parts.append([base + array_offset + 8, 8, self.names.some("array")])
            pitch = base + (72 if third else 48)
            parts.append([pitch, 8, self.random.choice((64, 128, 0))])
            if third:
                parts.append([pitch + 8, 8, self.random.choice((4, 8, 0))])
        end = 176 if third else 112
        sizes = [self.random.choice((16, 32, 64, 4)), self.random.choice((1, 4, 0))]
        parts += [
            [end + 8 * i, 8, n]
            for i, n in enumerate([*sizes, *([self.random.choice((1, 2))] if third else [])])
        ]
        return ["mem", end + (24 if third else 16), parts, False]

    def fill(self) -> None:
        stream = self.stream()
        kind = self.random.randrange(5)
        value = self.random.randrange(255)
        if kind == 0:
            self.call("cuMemsetD8_v2", self.address(), value, 100)
        elif kind == 1:
            self.call("cuMemsetD32Async", self.address(), value, self.random.choice((64, 0)), stream)
        elif kind == 2:
            self.call(
                "cuMemsetD2D8Async",
                self.address(),
                64,
                value,
                self.random.choice((16, 64, 0, 100)),
                4,
                stream,
            )
        elif kind == 3:
            self.call("cuMemsetD16Async", self.address(), value, 64, stream)
        else:
            self.call(
                "cuMemsetD2D32_v2",
                self.address(),
                256,
                value,
                self.random.choice((16, 0)),
                self.random.choice((4, 0)),
            )

    # Work

    def launch(self) -> None:
        function = self.names.some("function", "function", "kernel")
        grid, block = self.random.choice((1, 2, 3)), self.random.choice((1, 32, 64, 65))
        stream = self.stream()
        if self.chance(0.8):
            self.call("cuLaunchKernel", function, grid, 1, 1, block, 1, 1, 0, stream, self.launched(), 0)
        elif self.chance(0.5):
            self.call(
                "cuLaunchCooperativeKernel", function, grid, 1, 1, block, 1, 1, 0, stream, self.launched()
            )
        else:
            config = [[4 * i, 4, n] for i, n in enumerate((grid, 1, 1, block, 1, 1))]
            config += [[32, 8, stream]]
            self.call("cuLaunchKernelEx", ["mem", 56, config, False], function, self.launched(), 0)

    def events(self) -> None:
        event = self.names.some("event")
        kind = self.random.randrange(7)
        if not event or kind == 0:
            self.call("cuEventCreate", self.new("event"), self.random.choice((0, 1, 2, 3, 4)))
        elif kind in (1, 2):
            self.call("cuEventRecord", event, self.stream())
        elif kind == 3:
            self.call("cuStreamWaitEvent", self.stream(), event, self.random.choice((0, 0, 1)))
        elif kind == 4:
            self.call("cuEventSynchronize", event)
        elif kind == 5:
            self.call("cuEventQuery", event)
        else:
            self.call("cuEventElapsedTime_v2", ["out", 4, None], event, self.names.some("event"))

    def streams(self) -> None:
        stream = self.names.some("stream")
        kind = self.random.randrange(9)
        if not stream or kind < 2:
            self.call("cuStreamCreate", self.new("stream"), self.random.choice((0, 0, 1)))
        elif kind == 2:
            self.call("cuStreamSynchronize", self.stream())
        elif kind == 3:
            self.call("cuStreamQuery", self.stream())
        elif kind == 4:
            self.call("cuStreamDestroy_v2", stream, ends=(stream,))
        elif kind == 5:
            self.call(
                "cuStreamWriteValue32_v2", self.stream(), self.address(), 5, self.random.choice((0, 0, 1))
            )
        elif kind == 6:
            nor = constant("CU_STREAM_WAIT_VALUE_NOR")  # holds of all words but one
            self.call("cuStreamWaitValue32_v2", self.stream(), self.address(), 0, nor)
        elif kind == 7:
            self.call("cuStreamGetPriority", stream, ["out", 4, None])
        else:
            self.call("cuStreamCreateWithPriority", self.new("stream"), 1, self.random.choice((0, -1, -9, 4)))

    def host_functions(self) -> None:
        if self.chance(0.7):
            self.call("cuLaunchHostFunc", self.stream(), ["fn", self.random.randrange(100)], 0)
        else:
            self.call("cuStreamAddCallback", self.stream(), ["callback", self.random.randrange(100)], 0, 0)

    def work(self) -> None:
        self.random.choice((self.copy, self.copy, self.fill, self.launch, self.launch, self.host_functions))()

    # Graphs

    def capture(self) -> None:
        """Work of one stream, with another that forks from it and joins it again."""
        self.call("cuStreamCreate", self.new("stream"), self.random.choice((0, 1)))
        stream = f"stream{self.names.number - 1}"
        side = self.names.some("stream")
        event = self.names.some("event")
        self.capturing = True
        self.call("cuStreamBeginCapture_v2", stream, self.random.choice((0, 1, 2, 2)))
        living = self.names.living.get("stream", [])
        memory = list(self.names.living.get("memory", []))
        self.names.living["stream"] = [stream]
        for _ in range(self.random.randrange(1, 6)):
            kind = self.random.randrange(10)
            if kind == 0 and event and side:
                self.call("cuEventRecord", event, stream)
                self.call("cuStreamWaitEvent", side, event, 0)
                self.names.living["stream"].append(str(side))
            elif kind == 1 and event and side:
                self.call("cuEventRecord", event, side)
                self.call("cuStreamWaitEvent", stream, event, 0)
            elif kind == 2:
                self.allocate()
            elif kind == 3:
                self.anything()
            elif kind == 4:
                self.call("cuStreamIsCapturing", stream, ["out", 4, None])
            elif kind == 5:
                self.free()
            else:
                self.work()
        self.names.living["stream"] = living
        self.names.living["memory"] = memory  # that of the graph is there when the graph runs
        self.capturing = False
        self.call("cuStreamEndCapture", stream, self.new("graph"))
        self.executable(f"graph{self.names.number - 1}")

    def executable(self, graph: Token) -> None:
        if self.chance(0.3):
            self.call("cuGraphGetNodes", graph, 0, ["mem", 8, [], True])
        if self.chance(0.8):
            self.call(
                "cuGraphInstantiateWithFlags", self.new("graph_exec"), graph, self.random.choice((0, 0, 1, 8))
            )
            for _ in range(self.random.randrange(3)):
                self.call("cuGraphLaunch", f"graph_exec{self.names.number - 1}", self.stream())
        if self.chance(0.3):
            self.call("cuGraphExecUpdate_v2", self.names.some("graph_exec"), graph, ["out", 24, None])
        if self.chance(0.2):
            self.call("cuGraphDestroy", graph, ends=(graph,))

    def graph(self) -> None:
        """A graph that is built node by node."""
        graph = self.names.some("graph")
        if not graph or self.chance(0.3):
            self.call("cuGraphCreate", self.new("graph"), 0)
            graph = f"graph{self.names.number - 1}"
        for _ in range(self.random.randrange(1, 4)):
            self.node(graph)
        if self.chance(0.5):
            self.executable(graph)

    def node(self, graph: Token) -> None:
        count = self.random.choice((0, 0, 1, 2))
        behind = self.array([self.names.some("graph_node") for _ in range(count)]) if count else 0
        new = self.new("graph_node")
        context = self.random.choice(("context0", "context0", self.names.some("context")))
        kind = self.random.randrange(8)
        if kind == 0:
            self.call("cuGraphAddEmptyNode", new, graph, behind, count)
        elif kind == 1:
            self.call("cuGraphAddKernelNode_v2", new, graph, behind, count, self.kernel_node())
        elif kind == 2:
            self.call(
                "cuGraphAddMemsetNode",
                new,
                graph,
                behind,
                count,
                self.struct("CUDA_MEMSET_NODE_PARAMS"),
                context,
            )
        elif kind == 3:
            self.call("cuGraphAddMemcpyNode", new, graph, behind, count, self.box(third=True), context)
        elif kind == 4:
            self.call("cuGraphAddHostNode", new, graph, behind, count, self.struct("CUDA_HOST_NODE_PARAMS"))
        elif kind == 5:
            self.call("cuGraphAddEventRecordNode", new, graph, behind, count, self.names.some("event"))
        elif kind == 6:
            self.call("cuGraphAddChildGraphNode", new, graph, behind, count, self.names.some("graph"))
        else:
            nodes = [self.array([self.names.some("graph_node")]) for _ in range(2)]
            self.call("cuGraphAddDependencies", graph, *nodes, 1)

    def kernel_node(self) -> Token:
        grid = [[8 + 4 * i, 4, n] for i, n in enumerate((1, 1, 1, self.random.choice((1, 32, 65)), 1, 1))]
        function = self.names.some("function", "kernel")
        return ["mem", 72, [[0, 8, function], *grid, [40, 8, self.launched()]], False]

    def graph_calls(self) -> None:
        """Any call about graphs and nodes."""
        if not self.names.some("graph_node"):
            self.graph()
        variant = self.random.choice([v for v in self.any if v.group == "graph"])
        tokens, ends = self.of(variant)
        self.call(variant.symbol, *tokens, ends=tuple(ends))

    # The rest

    def arrays(self) -> None:
        array = self.names.some("array")
        kind = self.random.randrange(5)
        if not array or kind == 0:
            if self.chance(0.5):
                self.call("cuArray3DCreate_v2", self.new("array"), self.array_form(True))
            else:
                self.call("cuArrayCreate_v2", self.new("array"), self.array_form(False))
        elif kind == 1:
            self.call("cuMemcpyHtoA_v2", array, self.random.choice((0, 16)), self.host(), 64)
        elif kind == 2:
            self.call("cuMemcpyAtoH_v2", self.host(), array, 0, 64)
        elif kind == 3:
            self.call(
                "cuTexObjectCreate",
                self.new("texture_object"),
                self.struct("CUDA_RESOURCE_DESC"),
                self.struct("CUDA_TEXTURE_DESC"),
                0,
            )
        else:
            self.copy()

    def array_form(self, third: bool) -> Token:
        random = self.random
        width, height = random.choice((16, 64)), random.choice((0, 1, 16))
        form = random.choice((1, 0x20, 0x20, 3, 0x10, 8))
        channels = random.choice((1, 2, 4, 3))
        if not third:
            return ["mem", 24, [[0, 8, width], [8, 8, height], [16, 4, form], [20, 4, channels]], False]
        depth, flags = random.choice((0, 0, 2, 6)), random.choice((0, 0, 1, 2, 4, 6, 8))
        return [
            "mem",
            40,
            [[0, 8, width], [8, 8, height], [16, 8, depth], [24, 4, form], [28, 4, channels], [32, 4, flags]],
            False,
        ]

    def virtual_memory(self) -> None:
        """Physical memory and addresses of the program's own."""
        size = 2 << 20
        location = [[0, 4, 1], [4, 4, 0]]
        self.call(
            "cuMemCreate", self.new("memory_allocation"), size, ["mem", 32, [[0, 4, 1], [8, 4, 1]], False], 0
        )
        handle = f"memory_allocation{self.names.number - 1}"
        self.call("cuMemAddressReserve", self.new("reserved", size), size, 0, 0, 0)
        name = f"reserved{self.names.number - 1}"
        self.call("cuMemMap", name, self.random.choice((size, size, size // 2)), 0, handle, 0)
        access = ["mem", 12, [*location, [8, 4, self.random.choice((3, 3, 1, 0))]], False]
        self.call("cuMemSetAccess", name, size, access, 1)
        self.call("cuMemsetD8Async", name, 3, 1000, self.stream())
        if self.chance(0.5):
            self.call("cuMemGetAccess", ["out", 8, None], ["mem", 8, location, False], name)
            self.call("cuMemcpyDtoH_v2", self.host(), name, 64)
        if self.chance(0.5):
            self.call("cuMemRelease", handle, ends=(handle,))
        if self.chance(0.8):
            self.call("cuMemUnmap", name, size)
            self.call("cuMemAddressFree", name, size, ends=(name,))

    def contexts(self) -> None:
        context = self.names.some("context")
        kind = self.random.randrange(9)
        if kind == 0:
            self.call("cuCtxCreate_v2", self.new("context"), self.random.choice((0, 1, 4, 8)), self.device())
        elif kind == 1:
            self.call("cuCtxPushCurrent_v2", context)
        elif kind == 2:
            self.call("cuCtxPopCurrent_v2", ["out", 8, None])
        elif kind == 3:
            self.call("cuCtxSetCurrent", self.random.choice((context, context, 0)))
        elif kind == 4 and context != "context0" and not self.names.some("graph", "graph_exec"):
            self.call("cuCtxDestroy_v2", context, ends=(context,))
        elif kind == 5:
            resets = self.chance(0.2)
            self.call(
                "cuDevicePrimaryCtxReset_v2" if resets else "cuDevicePrimaryCtxRelease_v2", self.device()
            )
        elif kind == 6:
            self.call("cuDevicePrimaryCtxRetain", self.new("context"), self.device())
        else:
            variant = self.random.choice([v for v in self.any if v.group == "context"])
            tokens, ends = self.of(variant)
            self.call(variant.symbol, *tokens, ends=tuple(ends))

    def between_devices(self) -> None:
        """Work of another context, on memory of both, with or without leave."""
        context, other = self.names.some("context"), self.names.some("context")
        kind = self.random.randrange(6)
        if kind == 0:
            self.call("cuCtxEnablePeerAccess", context, 0)
        elif kind == 1:
            self.call("cuMemcpyPeer", self.address(), context, self.address(), other, 64)
        elif kind == 2:
            self.call("cuMemcpyPeerAsync", self.address(), context, self.address(), other, 64, self.stream())
        elif kind == 3:
            self.call("cuDeviceCanAccessPeer", ["out", 4, None], self.device(), self.device())
        else:
            self.call("cuCtxPushCurrent_v2", context)
            if self.chance(0.5):
                self.call("cuModuleLoadData", self.new("module"), ["image"])
                module = f"module{self.names.number - 1}"
                name = ["text", self.random.choice(KERNELS)]
                self.call("cuModuleGetFunction", self.new("function"), module, name)
            self.allocate()
            self.work()
            self.events()
            if self.chance(0.8):
                self.call("cuCtxPopCurrent_v2", ["out", 8, None])

    def libraries(self) -> None:
        library = self.names.some("library")
        if not library:
            self.call("cuLibraryLoadData", self.new("library"), ["image"], 0, 0, 0, 0, 0, 0)
        elif self.chance(0.5):
            self.call(
                "cuLibraryGetKernel", self.new("kernel"), library, ["text", self.random.choice(KERNELS)]
            )
        else:
            group = self.random.choice(("library", "kernel", "function", "module", "occupancy"))
            variant = self.random.choice([v for v in self.any if v.group == group])
            tokens, ends = self.of(variant)
            self.call(variant.symbol, *tokens, ends=tuple(ends))

    def pools(self) -> None:
        if not self.names.some("memory_pool"):
            form = ["mem", 88, [[0, 4, 1], [8, 4, 1]], False]
            self.call("cuMemPoolCreate", self.new("memory_pool"), form)
        elif self.chance(0.4):
            self.call(
                "cuMemAllocFromPoolAsync",
                self.new("memory", BLOCK),
                BLOCK,
                self.names.some("memory_pool"),
                self.stream(),
            )
            self.call("cuMemsetD8Async", f"memory{self.names.number - 1}", 1, BLOCK, self.stream())
        elif self.chance(0.5):
            self.free()
        else:
            variant = self.random.choice([v for v in self.any if v.group == "memory_pool"])
            tokens, ends = self.of(variant)
            self.call(variant.symbol, *tokens, ends=tuple(ends))

    def pointers(self) -> None:
        """What an address is."""
        attribute = self.random.choice([n for n in range(1, 24) if n not in OWN_NUMBERS])
        where = self.random.choice((self.address(), self.address(), self.host(), 0x1000))
        pool: Token = {} if attribute == constant("CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE") else None
        self.call("cuPointerGetAttribute", ["out", 8, pool], attribute, where)
        self.call("cuMemGetAddressRange_v2", ["out", 8, None], ["out", 8, None], self.address())
        if self.chance(0.2):
            sync = constant("CU_POINTER_ATTRIBUTE_SYNC_MEMOPS")
            self.call("cuPointerSetAttribute", ["mem", 4, [[0, 4, 1]], False], sync, self.address())


def narrow(variant: Any) -> bool:
    """Whether it is of 32 bits, or takes a struct that the spec leaves open."""
    return any(NARROW.search(arg.param.ctype) for arg in variant.args)


IDEAS: list[Any] = [
    Maker.allocate,
    Maker.free,
    Maker.host_memory,
    Maker.copy,
    Maker.work,
    Maker.fill,
    Maker.launch,
    Maker.events,
    Maker.streams,
    Maker.host_functions,
    Maker.capture,
    Maker.graph,
    Maker.graph_calls,
    Maker.arrays,
    Maker.virtual_memory,
    Maker.contexts,
    Maker.libraries,
    Maker.pools,
    Maker.pointers,
    *RARER,
]
