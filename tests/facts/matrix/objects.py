"""Values for the tokens of a case: objects of every kind, and structs that fit."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any

from tests.facts.scope import HOST_FUNCTION, STREAM_CALLBACK, Function

ROOM = 4096  # bytes behind any pointer
MEMORY = 65536


def room(content: bytes = b"") -> Any:
    """Memory that begins with this; aligned as tensor maps must be."""
    memory = ctypes.create_string_buffer(ROOM + 128)
    begin = -ctypes.addressof(memory) % 128
    ctypes.memmove(ctypes.addressof(memory) + begin, content, len(content))
    return (ctypes.c_char * ROOM).from_buffer(memory, begin)


class Objects:
    """What calls are given. Objects are made when first asked for, and again once a call has ended them."""

    def __init__(self, cu: Any, image: bytes, constants: dict[str, int]) -> None:
        self.cu = cu
        self.image = image
        self.constants = constants
        self.known: dict[tuple[str, str], int] = {}
        self.keep: list[Any] = []
        self.room = ctypes.create_string_buffer(ROOM)
        current = ctypes.c_uint64()
        self.call("cuCtxGetCurrent", ctypes.byref(current))
        self.current = current.value

    def call(self, name: str, *arguments: Any) -> int:
        return Function(getattr(self.cu, name), self.keep)(*arguments)

    def new(self, name: str, *arguments: Any) -> int:
        """What a call made and gave back through its first argument."""
        made = ctypes.c_uint64()
        result = self.call(name, ctypes.byref(made), *arguments)
        if result:
            raise RuntimeError(f"{name} -> {result}")
        return made.value

    def pack(self, layout: str, *values: int | bytes) -> Any:
        made = room(struct.pack("@" + layout, *values))
        self.keep.append(made)
        return made

    # What a token stands for

    def value(self, token: list[Any]) -> Any:
        kind, *rest = token
        if kind == "value":
            return rest[0]
        if kind == "constant":
            return self.constants[rest[0]]
        if kind == "float":
            return rest[0]
        if kind == "memory":
            return self.get("memory") + rest[0]
        if kind == "freed":
            return MAKERS["freed"](self)
        if kind == "text":
            return self.pack("256s", rest[0].encode())
        if kind == "image":
            return self.image
        if kind == "params":
            return self.params()
        if kind == "ones":
            return room(b"\xff" * 512)
        if kind == "behind":
            return STRUCTS[rest[0]](self) if rest[0] in STRUCTS else room()
        if kind == "other":
            return OTHERS[rest[0]](self) if rest[0] in OTHERS else 0
        of, how, symbol = rest
        return self.get(of, how, symbol)

    def function(self, kind: Any) -> int:
        """One of the program's, which does nothing."""
        made = kind(lambda *_: None)
        self.keep.append(made)
        return ctypes.cast(made, ctypes.c_void_p).value or 0

    def params(self) -> Any:
        cells = [ctypes.c_uint64(self.get("memory")), ctypes.c_uint64(5)]
        self.keep.append(cells)
        return (ctypes.c_void_p * 2)(*[ctypes.addressof(cell) for cell in cells])

    # Objects

    def get(self, kind: str, how: str = "valid", symbol: str = "") -> int:
        kind = next((k for part, k in NODES.items() if kind == "graph_node" and part in symbol), kind)
        if how == "ended" and (kind, how) not in self.known:
            self.known[kind, how] = Objects(self.cu, self.image, self.constants).ended(kind)
        if (kind, how) not in self.known:
            self.known[kind, how] = MAKERS[kind](self) if kind in MAKERS else 0
        return self.known[kind, how]

    def ended(self, kind: str) -> int:
        """The handle of an object that is no more, with all that was made for it."""
        handle = self.get(kind)
        for name in ENDERS:
            if (name, "valid") in self.known:
                self.call(ENDERS[name], self.known[name, "valid"])
        return handle

    def forget(self, value: int) -> None:
        """A call has ended the object."""
        for key in [key for key, handle in self.known.items() if handle == value and key[1] == "valid"]:
            del self.known[key]
            if key[0] == "graph":
                self.known = {
                    k: v for k, v in self.known.items() if k[1] != "valid" or not k[0].endswith("node")
                }
            for part in {"module": ("function",), "library": ("kernel",)}.get(key[0], ()):
                self.known.pop((part, "valid"), None)

    def afresh(self) -> None:
        """Graphs are new ones: calls have changed those that were."""
        self.drop("graph")
        self.drop("node")

    def drop(self, kinds: str) -> None:
        """Forgets valid objects of the kinds that end so."""
        for kind, how in list(self.known):
            if how == "valid" and kind.endswith(kinds):
                del self.known[kind, how]

    def all(self) -> None:
        """Every kind, so that whatever comes next finds it made before."""
        for kind in MAKERS:
            self.get(kind)


def _context(o: Objects) -> int:
    made = o.new("cuCtxCreate_v2", 0, 0)
    o.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_uint64()))
    return made


def _freed(o: Objects) -> int:
    made = o.new("cuMemAlloc_v2", 4 << 20)
    o.call("cuMemFree_v2", made)
    return made


def _link(o: Objects) -> int:
    made = ctypes.c_uint64()
    o.call("cuLinkCreate_v2", 0, 0, 0, ctypes.byref(made))
    return made.value


def _resources(o: Objects) -> int:
    """A descriptor of all multiprocessors."""
    return o.new("cuDevResourceGenerateDesc", STRUCTS["const CUdevResource"](o), 1)


def _made(name: str, *arguments: Any) -> Callable[[Objects], int]:
    """By a call that takes these; the name of an object or a struct stands for one."""

    def make(o: Objects) -> int:
        found = [named(o, a) if isinstance(a, str) else a for a in arguments]
        return o.new(name, *found)

    return make


def named(o: Objects, name: str) -> Any:
    if name in STRUCTS:
        return STRUCTS[name](o)
    if name in OTHERS:
        return OTHERS[name](o)
    return {"image": o.image, "current": o.current}.get(name) or o.get(name)


MAKERS: dict[str, Callable[[Objects], int]] = {
    "memory": _made("cuMemAlloc_v2", MEMORY),
    "freed": _freed,
    "context": _context,
    "module": _made("cuModuleLoadData", "image"),
    "function": lambda o: o.new("cuModuleGetFunction", o.get("module"), b"nothing"),
    "library": _made("cuLibraryLoadData", "image", 0, 0, 0, 0, 0, 0),
    "kernel": lambda o: o.new("cuLibraryGetKernel", o.get("library"), b"nothing"),
    "stream": _made("cuStreamCreate", 1),
    "event": _made("cuEventCreate", 0),
    "memory_pool": _made("cuMemPoolCreate", "CUmemPoolProps"),
    "memory_allocation": _made("cuMemCreate", 2 << 20, "CUmemAllocationProp", 0),
    "link": _link,
    "array": _made("cuArray3DCreate_v2", "surface"),
    "mipmapped_array": _made("cuMipmappedArrayCreate", "surface", 2),
    "texture_object": _made("cuTexObjectCreate", "CUDA_RESOURCE_DESC", "CUDA_TEXTURE_DESC", 0),
    "surface_object": _made("cuSurfObjectCreate", "CUDA_RESOURCE_DESC"),
    "graph": _made("cuGraphCreate", 0),
    "graph_node": _made("cuGraphAddEmptyNode", "graph", 0, 0),
    "kernel_node": _made("cuGraphAddKernelNode_v2", "graph", 0, 0, "CUDA_KERNEL_NODE_PARAMS"),
    "memset_node": _made("cuGraphAddMemsetNode", "graph", 0, 0, "CUDA_MEMSET_NODE_PARAMS", "current"),
    "memcpy_node": _made("cuGraphAddMemcpyNode", "graph", 0, 0, "CUDA_MEMCPY3D", "current"),
    "event_node": _made("cuGraphAddEventRecordNode", "graph", 0, 0, "event"),
    "wait_node": _made("cuGraphAddEventWaitNode", "graph", 0, 0, "event"),
    "source": _made("cuGraphCreate", 0),
    "graph_exec": _made("cuGraphInstantiateWithFlags", "source", 0),
    "resources": _resources,
    "green_context": _made("cuGreenCtxCreate", "resources", 0, 1),
    "user_object": _made("cuUserObjectCreate", 0, "CUhostFn", 1, 1),
}
# A node that a function is about, by a part of the function's name.
NODES = {
    "KernelNode": "kernel_node",
    "MemsetNode": "memset_node",
    "MemcpyNode": "memcpy_node",
    "EventRecordNode": "event_node",
    "EventWaitNode": "wait_node",
}
# Who ends what, the first first.
ENDERS: dict[str, str] = {
    "memory": "cuMemFree_v2",
    "context": "cuCtxDestroy_v2",
    "module": "cuModuleUnload",
    "library": "cuLibraryUnload",
    "stream": "cuStreamDestroy_v2",
    "event": "cuEventDestroy_v2",
    "memory_pool": "cuMemPoolDestroy",
    "memory_allocation": "cuMemRelease",
    "link": "cuLinkDestroy",
    "green_context": "cuGreenCtxDestroy",
    "array": "cuArrayDestroy",
    "mipmapped_array": "cuMipmappedArrayDestroy",
    "texture_object": "cuTexObjectDestroy",
    "surface_object": "cuSurfObjectDestroy",
    "graph": "cuGraphDestroy",
    "graph_exec": "cuGraphExecDestroy",
}


def _copy(o: Objects, third: bool, context: bool = False) -> Any:
    """A copy within the memory of this process, of rows of 16 bytes."""
    layout = "QQQQiQQQQQQ" if third else "QQiQQQQ"
    sides: list[int | bytes] = []
    for offset in (0, 1024):
        where = [2, 0, o.get("memory") + offset, 0]
        middle = [o.current if context else 0] if third else []
        sides += [*([0] * (4 if third else 2)), *where, *middle, 64, *([4] if third else [])]
    return o.pack(layout * 2 + ("QQQ" if third else "QQ"), *sides, 16, 4, *([1] if third else []))


def _resource(o: Objects) -> Any:
    found = o.pack("200x")
    o.call("cuDeviceGetDevResource", 0, ctypes.byref(found), 1)
    return found


def _kernel_node(o: Objects) -> list[int]:
    return [o.get("function"), 1, 1, 1, 1, 1, 1, 0, ctypes.addressof(o.params()), 0]


STRUCTS: dict[str, Callable[[Objects], Any]] = {
    "CUDA_MEMCPY2D": lambda o: _copy(o, third=False),
    "CUDA_MEMCPY3D": lambda o: _copy(o, third=True),
    "CUDA_MEMCPY3D_PEER": lambda o: _copy(o, third=True, context=True),
    "CUDA_KERNEL_NODE_PARAMS_v1": lambda o: o.pack("Q7IQQ", *_kernel_node(o)),
    "CUDA_KERNEL_NODE_PARAMS": lambda o: o.pack("Q7IQQQQ", *_kernel_node(o), 0, 0),
    "CUgraphNodeParams": lambda o: o.pack("iiiiQ7IQQQQ128x", 0, 0, 0, 0, *_kernel_node(o), 0, 0),
    "CUDA_MEMSET_NODE_PARAMS": lambda o: o.pack("QQIIQQ", o.get("memory"), 0, 7, 4, 4, 1),
    "CUDA_HOST_NODE_PARAMS": lambda o: o.pack("QQ", o.function(HOST_FUNCTION), 0),
    "CUlaunchConfig": lambda o: o.pack("7IQQI", 1, 1, 1, 1, 1, 1, 0, 0, 0, 0),
    "surface": lambda o: o.pack("QQQiII", 16, 16, 0, 0x20, 1, 2),
    "CUDA_ARRAY_DESCRIPTOR": lambda o: o.pack("QQiI", 16, 16, 0x20, 1),
    "CUDA_ARRAY3D_DESCRIPTOR": lambda o: o.pack("QQQiII", 16, 16, 2, 0x20, 1, 0),
    "CUmemAllocationProp": lambda o: o.pack("iiiiQ8x", 1, 0, 1, 0, 0),
    "CUmemAccessDesc": lambda o: o.pack("iii", 1, 0, 3),
    "CUmemPoolProps": lambda o: o.pack("iiiiQQH54x", 1, 0, 1, 0, 0, 0, 0),
    "CUmemLocation": lambda o: o.pack("ii", 1, 0),
    "CUDA_RESOURCE_DESC": lambda o: o.pack("iQ128x", 0, o.get("array")),
    "CUDA_TEXTURE_DESC": lambda o: o.pack("104x"),
    "CUgraphNode": lambda o: o.pack("Q", o.get("graph_node")),
    "CUpointer_attribute": lambda o: o.pack("i", 2),
}
STRUCTS["const CUdevResource"] = STRUCTS["CUdevResource"] = _resource
OTHERS: dict[str, Callable[[Objects], Any]] = {
    "CUhostFn": lambda o: o.function(HOST_FUNCTION),
    "CUstreamCallback": lambda o: o.function(STREAM_CALLBACK),
    "CUmemLocation": lambda o: 1,
    "CUdevResourceDesc": lambda o: o.get("resources"),
}
