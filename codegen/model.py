"""The spec as typed, frozen values. No YAML, no output language and no function name in here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from .basics import Access as Access
from .basics import SpecError as SpecError
from .basics import Where as Where
from .expression import Call
from .nesting import Nesting

PER_THREAD_SUFFIX = re.compile(r"_pt[sd][sz]$")


class Class(Enum):
    """How a call behaves towards the wire (design D3)."""

    LOCAL = "local"
    ASYNC = "async"
    SYNC = "sync"
    UNSUPPORTED = "unsupported"


class By(Enum):
    """Who writes one side of an operation: the generator, or a person."""

    CUSTOM = "custom"
    GENERATED = "generated"
    NONE = "none"


class Needs(Enum):
    """What must exist before a call may do anything."""

    NONE = "none"
    DRIVER = "driver"
    CONTEXT = "context"
    OWNER = "owner"


class Kind(Enum):
    """What an argument means; `specs/README.md` explains each."""

    SCALAR = "scalar"
    ENUM = "enum"
    FLAGS = "flags"
    DEVICE = "device"
    POINTER = "pointer"
    HANDLE = "handle"
    IN = "in"
    OUT = "out"
    INOUT = "inout"
    STRING = "string"
    PAYLOAD = "payload"
    HOST = "host"
    IMAGE = "image"
    PARAMS = "params"
    OPTIONS = "options"
    IGNORED = "ignored"


class Use(Enum):
    """What a call does with a handle."""

    USE = "use"
    CREATE = "create"
    DESTROY = "destroy"


class Lasting(Enum):
    """What a call leaves behind, for a session that moves; `specs/README.md` explains each."""

    NONE = "none"
    CREATE = "create"
    DESTROY = "destroy"
    SET = "set"
    ADD = "add"
    CUSTOM = "custom"


class Step(Enum):
    """A part of what is generated for a function, in this order; an override replaces one."""

    CHECK = "check"  # arguments, as CUDA does at once
    SEND = "send"  # the request, and the wait for its answer
    CALL = "call"  # of the driver
    DECODE = "decode"  # what the answer means to the program


@dataclass(frozen=True)
class Param:
    """One parameter of a C signature."""

    ctype: str
    name: str
    count: int = 1

    @property
    def pointee(self) -> str | None:
        """The type behind one `*`, without const; None if this is not a pointer."""
        if not self.ctype.endswith("*"):
            return None
        return re.sub(r"\bconst\b", "", self.ctype[:-1]).strip()

    def __str__(self) -> str:
        blank = "" if self.ctype.endswith("*") else " "
        return f"{self.ctype}{blank}{self.name}{f'[{self.count}]' if self.count > 1 else ''}"


@dataclass(frozen=True)
class Signature:
    """The C prototype of an exported function."""

    returns: str
    name: str
    params: tuple[Param, ...]

    @property
    def parameters(self) -> str:
        """The parameter list as C text."""
        return ", ".join(map(str, self.params)) or "void"

    @property
    def arguments(self) -> str:
        """The names of the parameters, as a call passes them on."""
        return ", ".join(p.name for p in self.params)

    def prototype(self, name: str | None = None, leading: str = "") -> str:
        """C text of the prototype, under another name or with a leading parameter if wanted."""
        parameters = ", ".join(filter(None, [leading, ", ".join(map(str, self.params))])) or "void"
        return f"{self.returns} {name or self.name}({parameters})"


@dataclass(frozen=True)
class Arg:
    """The meaning of one parameter."""

    name: str
    kind: Kind
    param: Param
    where: Where
    of: tuple[str, ...] = ()
    use: Use = Use.USE
    nullable: bool = False
    size: str | None = None
    access: Access | None = None
    allow: tuple[str, ...] = ()
    min: str | None = None
    max: str | None = None
    clamp: tuple[str, str] | None = None
    absent: str | None = None
    inactive: bool = False
    bulk: bool = False
    error: str | None = None
    count: str | None = None
    values: str | None = None


class Capture(Enum):
    """What a call means while a stream is captured."""

    FREE = "free"  # as ever
    NODE = "node"  # on a captured stream it becomes part of the graph
    UNSAFE = "unsafe"  # the modes of captures and of the thread decide
    COPY = "copy"  # the same, and the legacy stream is used
    STREAM = "stream"  # it waits for its stream, or asks about it
    EVENT = "event"  # the same of an event
    CONTEXT = "context"  # the same of all streams


@dataclass(frozen=True)
class PerThread:
    """The twin of a function for the per-thread default stream (`_ptsz`, `_ptds`)."""

    symbol: str
    since: int


@dataclass(frozen=True)
class Lookup:
    """Another name under which cuGetProcAddress finds a symbol."""

    name: str
    since: int


@dataclass(frozen=True)
class Replay:
    """What is kept of an operation: `of` names the handle of what it changes, `by` tells changes apart. One
    that `lapses` may name what has ended when it is done again.
    """

    lasting: Lasting
    where: Where
    of: str | None = None
    by: tuple[str, ...] = ()
    lapses: bool = False


@dataclass(frozen=True)
class Early:
    """A result that a call has at once where a condition holds."""

    condition: str
    result: str
    where: Where


@dataclass(frozen=True)
class Assignment:
    """`target` becomes the value of an expression, or a struct of such values by member."""

    target: str
    value: str | tuple[Assignment, ...]
    where: Where


@dataclass(frozen=True)
class Effect:
    """A member that the guest remembers becomes the value of an expression; with `adds`, it grows by that."""

    target: str
    value: str
    adds: bool
    where: Where


@dataclass(frozen=True)
class Field:
    """A member of a packed wire struct."""

    name: str
    type: str
    count: int = 1


@dataclass(frozen=True)
class Variant:
    """One distinct ABI symbol, and everything that is true of it."""

    symbol: str
    base: str
    group: str
    since: int
    id: int
    klass: Class
    signature: Signature
    where: Where
    alias: str | None = None
    per_thread: PerThread | None = None
    lookup: tuple[Lookup, ...] = ()
    stream: str | None = None
    guest: By = By.NONE
    server: By = By.NONE
    via: tuple[str, ...] = ()
    blocking: bool = False
    needs: Needs = Needs.DRIVER
    replay: Replay | None = None
    restore: bool = False
    remember: bool = False
    forget: bool = False
    capture: Capture | None = None
    args: tuple[Arg, ...] = ()
    early: tuple[Early, ...] = ()
    ahead: tuple[Early, ...] = ()  # before what it needs is looked at
    answer: tuple[Assignment, ...] = ()
    effect: tuple[Effect, ...] = ()
    result: str | None = None
    calls: Call | None = None
    attribute: AttributeUse | None = None
    guest_steps: tuple[Step, ...] = ()
    server_steps: tuple[Step, ...] = ()
    why: str | None = None
    without: str | None = None
    quiet: str | None = None

    @property
    def fixed(self) -> bool:
        """Whether all that it ever does, of arguments that are right, is to answer one error."""
        return self.klass is Class.UNSUPPORTED or self.result not in (None, "CUDA_SUCCESS")

    @property
    def on_wire(self) -> bool:
        """Whether this operation has a message of its own."""
        return self.klass in (Class.ASYNC, Class.SYNC) and self.server is not By.NONE

    @property
    def required(self) -> Needs:
        """What must exist before a driver does anything: nothing, if gpuferry carries no such call."""
        return Needs.NONE if self.klass is Class.UNSUPPORTED else self.needs

    @property
    def streams(self) -> tuple[str, ...]:
        """The parameters that name a stream, where `stream: argument` holds."""
        if self.stream != "argument":
            return ()
        return tuple(p.name for p in self.signature.params if p.ctype == "CUstream")


@dataclass(frozen=True)
class Function:
    """A function by its base name: all its ABI variants, oldest first."""

    base: str
    group: str
    variants: tuple[Variant, ...]
    where: Where


# The owner of what no other object owns.
SESSION = "session"


class Rebuilt(Enum):
    """How a session that moves finds an object again."""

    REPLAY = "replay"  # from the frames that made and changed it
    CUSTOM = "custom"  # the engine knows
    NONE = "none"  # the server never had it


class ServerSide(Enum):
    """What the server has of an object."""

    GENERATED = "generated"  # the driver's handle alone
    CUSTOM = "custom"  # a struct of its own, in apiserver/core
    NONE = "none"  # nothing: the guest alone knows it


@dataclass(frozen=True)
class ObjectField:
    """What the guest knows of an object.

    `absent` is its value where a handle names no object (a default stream). With `counter` each new object
    gets the next number, from that one on."""

    name: str
    ctype: str
    where: Where
    count: str | None = None
    counter: int | None = None
    absent: str | None = None
    initial: str | None = None


@dataclass(frozen=True)
class Attribute:
    """What an object answers when asked for an attribute, and what changes when it is set.

    `get` and the values of `set` are expressions of the object's fields and of `value`, the one that is
    given; `condition` must hold of what is given.
    """

    name: str
    ctype: str
    get: str
    where: Where
    set: tuple[Assignment, ...] = ()
    condition: str | None = None


@dataclass(frozen=True)
class AttributeUse:
    """A function that gets or sets an attribute: of which object, named by which argument, and its value."""

    of: str
    by: str
    value: str
    where: Where


@dataclass(frozen=True)
class ServerObject:
    """The server's side of a kind: its struct, which member is the driver's handle, and its functions."""

    side: ServerSide
    struct: str = ""
    driver: str = ""
    functions: tuple[str, ...] = ()


@dataclass(frozen=True)
class ObjectKind:
    """One kind of object. `owners` are the kinds of which one owns it: it ends with its owner."""

    name: str
    id: int
    ctype: str
    owners: tuple[str, ...]
    destroy: str | None
    error: str
    rebuilt: Rebuilt
    server: ServerObject
    where: Where
    fields: tuple[ObjectField, ...] = ()
    attributes: tuple[Attribute, ...] = ()
    struct: str | None = None
    header: str | None = None
    look_up: bool = False
    ended: bool = False
    settle: bool = False

    @property
    def of_session(self) -> bool:
        """Whether it belongs to the session, and to no other object."""
        return self.owners == (SESSION,)

    def field(self, name: str) -> ObjectField | None:
        return next((f for f in self.fields if f.name == name), None)


@dataclass(frozen=True)
class Objects:
    """All kinds, by name, in the order of their ids."""

    kinds: dict[str, ObjectKind] = field(default_factory=dict)

    def __getitem__(self, name: str) -> ObjectKind:
        return self.kinds[name]

    def __contains__(self, name: str) -> bool:
        return name in self.kinds

    @property
    def all(self) -> tuple[ObjectKind, ...]:
        return tuple(self.kinds.values())

    def owned_by(self, name: str) -> tuple[ObjectKind, ...]:
        """The kinds that end with one of this kind, or with the session."""
        return tuple(kind for kind in self.all if name in kind.owners)


@dataclass(frozen=True)
class Types:
    """How C types travel, as types.yaml says."""

    scalars: dict[str, str]
    enums: dict[str, str]
    handles: dict[str, str]
    aliases: dict[str, str]
    where: dict[str, Where]
    nesting: Nesting = field(default_factory=Nesting)


@dataclass(frozen=True)
class Library:
    """One spec file: the functions of a library with their range of wire ids."""

    name: str
    file: str
    header: str | None
    version: int
    ids: tuple[int, int]
    functions: tuple[Function, ...]
    retired: tuple[int, ...] = ()

    @property
    def variants(self) -> Iterator[Variant]:
        for function in self.functions:
            yield from function.variants


@dataclass(frozen=True)
class Override:
    """A device attribute that the guest reports otherwise than the device does, and why."""

    attribute: str
    value: int
    why: str
    where: Where


class Destroys(Enum):
    """What says that a result ends its context."""

    HEADER = "header"
    PRACTICE = "practice"


@dataclass(frozen=True)
class Result:
    """A CUresult: its name, its text, and whether it ends its context."""

    name: str
    text: str
    where: Where
    destroys: Destroys | None = None


@dataclass(frozen=True)
class Spec:
    """Everything in `specs/` that code is generated from."""

    types: Types
    libraries: tuple[Library, ...]
    objects: Objects
    overrides: tuple[Override, ...] = ()
    results: tuple[Result, ...] = ()
    by_symbol: dict[str, Variant] = field(default_factory=dict)
    only: frozenset[int] | None = None  # wire ids of the operations that are spoken; None: all

    def library(self, name: str) -> Library:
        found = {library.name: library for library in self.libraries}
        if name not in found:
            raise LookupError(f"no library {name!r}; known: {', '.join(found)}")
        return found[name]

    @property
    def driver(self) -> Library:
        """The library whose symbols the guest and the simulated device export."""
        return next(library for library in self.libraries if library.header is not None)

    @property
    def operations(self) -> list[Variant]:
        """Every operation that has a message, by wire id."""
        found = [v for library in self.libraries for v in library.variants if v.on_wire]
        return sorted(found, key=lambda v: v.id)
