"""The syntax tree of a PTX module, as the parser yields it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Union

from .types import Type

# Functions that PTX declares and never defines: what the CUDA runtime gives device code.
RUNTIME = frozenset({"vprintf", "malloc", "free", "__assertfail", "cudaGraphSetConditional"}) | {
    "__cuda_syscall_aligned_malloc",  # __nv_aligned_device_malloc, `new` of what is aligned above 16
    *("__gpuferry_launch_room", "__gpuferry_launch", "__gpuferry_launch_error"),
    "__gpuferry_asked",  # of the device runtime here, as those above
}


@dataclass(slots=True)
class Register:
    """A register or other name used as a value: `%r1`, `%tid.x`, a label, a variable."""

    name: str


@dataclass(slots=True)
class Immediate:
    """An integer, a float, or a float's exact (bits, width)."""

    value: int | float | tuple[int, int]


@dataclass(slots=True)
class Address:
    """`[base + offset]`, or `base[index]`, which counts in elements; base None: absolute."""

    base: str | None
    offset: int
    index: int = 0


@dataclass(slots=True)
class Vector:
    """`{a, b, …}`."""

    items: list[Operand]


@dataclass(slots=True)
class Pair:
    """`a|b`: two destinations."""

    first: Operand
    second: Operand


@dataclass(slots=True)
class Not:
    """`!%p`."""

    name: str


@dataclass(slots=True)
class Negative:
    """`-%r`, of vmad."""

    name: str


@dataclass(slots=True)
class Group:
    """A parenthesised operand list of a call."""

    items: list[Operand]


@dataclass(slots=True)
class Bracket:
    """`[a, b, …]`: texture and tensor operands."""

    items: list[Operand]


Operand = Union[Register, Immediate, Address, Vector, Pair, Not, Negative, Group, Bracket]  # noqa: UP007 (Python 3.10 alias)


@dataclass(slots=True)
class Instruction:
    opcode: str
    modifiers: tuple[str, ...]
    operands: list[Operand]
    line: int
    guard: str | None = None
    guard_negated: bool = False

    @property
    def text(self) -> str:
        return ".".join((self.opcode, *self.modifiers))


@dataclass(slots=True)
class Label:
    name: str
    line: int


@dataclass(slots=True)
class Targets:
    """`.branchtargets` and `.calltargets`: a labelled list of names."""

    name: str
    targets: list[str]


@dataclass(slots=True)
class Prototype:
    """`.callprototype`: sizes of return values and parameters."""

    name: str
    returns: list[Parameter]
    parameters: list[Parameter]
    noreturn: bool


@dataclass(slots=True)
class Registers:
    """`.reg .b32 %r<4>, %x;` as (name, count or 0) pairs; `vector` lanes for `.v2` and `.v4` registers."""

    type: Type
    names: list[tuple[str, int]]
    vector: int


@dataclass(slots=True)
class Local:
    """A variable declared in a function: space local, shared or param. Sizes are in bytes."""

    space: str
    name: str
    size: int
    align: int
    element: int


@dataclass(slots=True)
class ScopeBegin:
    line: int


@dataclass(slots=True)
class ScopeEnd:
    line: int


Item = Union[Instruction, Label, Targets, Prototype, Registers, Local, ScopeBegin, ScopeEnd]  # noqa: UP007


@dataclass(slots=True)
class Parameter:
    name: str
    type: Type
    size: int
    align: int
    register: bool


class Relocation(NamedTuple):
    """A place in a variable that holds `size` bytes of another one's address, from the `first` on."""

    offset: int
    variable: int
    addend: int
    first: int = 0
    size: int = 8


@dataclass(frozen=True)
class VariableInfo:
    """A module-scope .global or .const variable."""

    name: str
    size: int
    align: int
    initial: bytes | None
    relocations: tuple[Relocation, ...]
    is_const: bool
    is_managed: bool
    linkage: str
    reference: str = ""  # texref, surfref, or neither


@dataclass(frozen=True)
class KernelInfo:
    """What the driver tells about a kernel. `params` are (offset, size, align)."""

    name: str
    params: tuple[tuple[int, int, int], ...]
    param_bytes: int
    shared_static: int
    local_bytes: int
    const_bytes: int
    registers: int
    max_threads: int
    required: tuple[int, int, int]  # threads in each direction; zeros: any
    ptx_version: int
    binary_version: int
    cluster: tuple[int, int, int] = (0, 0, 0)  # blocks that it requires; zeros: none
    most_cluster: int = 0
    explicit_cluster: bool = False
    handle: int = 0  # its address in device code


@dataclass
class Function:
    """A function's head; its body is text[start:end], parsed on demand. start < 0: a declaration only."""

    name: str
    is_kernel: bool
    linkage: str
    returns: list[Parameter]
    parameters: list[Parameter]
    directives: dict[str, list[int]]
    line: int
    start: int
    end: int
    text: str = field(repr=False)
    index: int = 0
    body_line: int = 0  # where the body begins
    own: frozenset[str] = frozenset()  # its variables in .global and .const


@dataclass
class Variable:
    """A module-scope variable; `initial` is its initialiser's place in `text`."""

    name: str
    space: str
    element: int
    is_float: bool
    size: int
    align: int
    linkage: str
    managed: bool
    line: int
    text: str = field(repr=False)
    initial: tuple[int, int] | None
    index: int = -1
    reference: str = ""  # an opaque type
    vector: int = 1  # of so many elements in the initialiser, `a[1]` is the second
    extents: tuple[int | None, ...] = ()  # as declared; None: the initialiser decides

    @property
    def is_dynamic(self) -> bool:
        """Shared memory whose size the launch says. One of a size is the kernel's own, as ptxas takes it."""
        return self.space == "shared" and self.linkage == "extern" and self.size == 0


Symbol = Union[Function, Variable]  # noqa: UP007 (Python 3.10 alias)
