"""The text of one LLVM function while it grows."""

from __future__ import annotations

from ..errors import PtxError
from ..kernel import KernelContext
from ..model import Function, Instruction
from . import layout

# A thread's stack is smaller than this, and nothing else lies so near to a frame.
_SPREAD = 0x9E3779B1 - (1 << 32)  # odd, so that ways stay apart
_STACK = 1 << 18


class Writer:
    """Names, blocks and calls, and what thread and block hold. Values are LLVM value texts without type."""

    def __init__(self, kernel: KernelContext, function: Function) -> None:
        self.kernel = kernel
        self.function = function
        self.instruction = Instruction("", (), [], function.line)
        self.lines: list[str] = []
        self.entry: list[str] = []
        self.temporaries = 0
        self.closed = False
        self.cached: dict[str, str] = {}

    def temporary(self) -> str:
        self.temporaries += 1
        return f"%t{self.temporaries}"

    def label(self) -> str:
        self.temporaries += 1
        return f"b{self.temporaries}"

    def emit(self, text: str) -> None:
        if self.closed:
            # Unreachable code still has to be well-formed.
            self.open(self.label())
        self.lines.append(f"  {text}")

    def op(self, text: str) -> str:
        name = self.temporary()
        self.emit(f"{name} = {text}")
        return name

    def branch(self, label: str) -> None:
        if not self.closed:
            self.lines.append(f"  br label %{label}")
            self.closed = True

    def branch_if(self, condition: str, yes: str, no: str, rare: bool = False) -> None:
        weights = ", !prof !1" if rare else ""
        self.emit(f"br i1 {condition}, label %{yes}, label %{no}{weights}")
        self.closed = True

    def finish(self, text: str) -> None:
        """A terminator."""
        self.emit(text)
        self.closed = True

    def open(self, label: str) -> None:
        if not self.closed:
            self.lines.append(f"  br label %{label}")
        self.lines.append(f"{label}:")
        self.closed = False

    def fail(self, reason: str) -> PtxError:
        return PtxError(self.function.name, self.instruction.line, self.instruction.text, reason)

    def call(self, result: str, name: str, *arguments: str, attributes: str = "") -> str:
        """Calls a C function; arguments are "type value"."""
        types = ", ".join(argument.split(" ", 1)[0] for argument in arguments)
        self.kernel.declare(name, f"{result} @{name}({types}){attributes}")
        text = f"call {result} @{name}({', '.join(arguments)})"
        if result == "void":
            self.emit(text)
            return ""
        return self.op(text)

    def intrinsic(self, name: str, result: str, *arguments: str) -> str:
        types = ", ".join(_type_of(argument) for argument in arguments)
        self.kernel.declare(name, f"{result} @{name}({types})")
        return self.op(f"call {result} @{name}({', '.join(arguments)})")

    def alloca(self, text: str) -> str:
        name = self.temporary()
        self.entry.append(f"  {name} = alloca {text}")
        return name

    def variable(self, size: int, align: int) -> str:
        """Memory of the function's for what PTX declares. In a kernel that is held to its own it begins as
        zeros: what lies on the machine's stack are addresses of the process.
        """
        name = self.alloca(f"[{size} x i8], align {align}")
        if self.kernel.checked:
            memset = "@llvm.memset.p0.i64"
            self.kernel.declare(memset[1:], f"void {memset}(ptr, i8, i64, i1 immarg)")
            self.entry.append(f"  call void {memset}(ptr align {align} {name}, i8 0, i64 {size}, i1 false)")
        return name

    def copied(self, pointer: str, size: int, align: int) -> str:
        """Return the address of a copy that is the function's own."""
        copy = self.variable(size, align)
        self.kernel.declare("llvm.memcpy.p0.p0.i64", "void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1 immarg)")
        self.emit(f"call void @llvm.memcpy.p0.p0.i64(ptr {copy}, ptr {pointer}, i64 {size}, i1 false)")
        return copy

    def entry_value(self, key: str, text: str) -> str:
        """Return a value that is computed once, at the function's entry."""
        name = self.cached.get(key)
        if name is None:
            name = self.cached[key] = self.temporary()
            self.entry.append(f"  {name} = {text}")
        return name

    def way(self) -> str:
        """A number of this place and of the calls that led here, where functions are told about those."""
        site = self.kernel.next_site()
        if self.function.is_kernel or not self.kernel.program.asks_in_functions:
            return str(site)
        return self.op(f"add i32 {self.op(f'mul i32 %way, {_SPREAD}')}, {site}")

    # The thread and the block

    def block_field(self, name: str) -> str:
        offset, kind = layout.BLOCK[name]
        block = self.block()
        pointer = self.entry_value(f"&{name}", f"getelementptr i8, ptr {block}, i64 {offset}")
        return self.entry_value(
            name, f"load {kind}, ptr {pointer}, align {layout.ALIGN[kind]}, !invariant.load !0"
        )

    def block(self) -> str:
        if self.function.is_kernel:
            return "%block"
        return self.entry_value("block", "load ptr, ptr %thread, align 8")

    def thread_field(self, name: str) -> str:
        if self.function.is_kernel:
            return f"%{name}"
        pointer = self.entry_value(f"&{name}", f"getelementptr i8, ptr %thread, i64 {layout.THREAD[name]}")
        return self.entry_value(name, f"load i32, ptr {pointer}, align 4")

    def lanes_here(self) -> str:
        """The lanes that run here, a number, where a warp is what runs."""
        return "0"

    def local_bound(self, name: str) -> str:
        """One of the thread's bounds of local memory, as a number: local or local_end."""
        where = self.entry_value(f"&{name}", f"getelementptr i8, ptr %thread, i64 {layout.THREAD[name]}")
        return self.entry_value(f"{name}.bound", f"load i64, ptr {where}, align 8")

    def near_local(self) -> str:
        """An address at most 2 GiB from any of the thread's local memory, as a number."""
        if self.kernel.checked:
            return self.local_bound("local")
        return self.op(f"ptrtoint ptr {self.intrinsic('llvm.frameaddress.p0', 'ptr', 'i32 0')} to i64")

    def on_stack(self, address: str) -> str:
        """Whether an address is of the stack that the thread runs on."""
        frame = self.op(f"ptrtoint ptr {self.intrinsic('llvm.frameaddress.p0', 'ptr', 'i32 0')} to i64")
        distance = self.op(f"add i64 {self.op(f'sub i64 {address}, {frame}')}, {_STACK}")
        return self.op(f"icmp ult i64 {distance}, {2 * _STACK}")

    def shared_limit(self) -> str:
        """Bytes of shared memory, static and dynamic."""
        dynamic = self.block_field("shared_dynamic")
        wide = self.entry_value("dynamic64", f"zext i32 {dynamic} to i64")
        return self.entry_value("shared_limit", f"add i64 {wide}, {self.kernel.shared.dynamic}")

    def global_pointer(self, index: int) -> str:
        table = self.block_field("globals")
        slot = self.entry_value(f"&g{index}", f"getelementptr ptr, ptr {table}, i64 {index}")
        return self.entry_value(f"g{index}", f"load ptr, ptr {slot}, align 8, !invariant.load !0")


def _type_of(argument: str) -> str:
    """The type of "type value", where a vector type holds blanks."""
    if argument.startswith(("<", "{", "[")):
        closing = {"<": ">", "{": "}", "[": "]"}[argument[0]]
        return argument[: argument.index(closing) + 1]
    return argument.split(" ", 1)[0]
