"""The API server's side of each operation: struct declarations and dispatch table, for Cython.

A handler that is `generated` reads the request, turns handles into the driver's own, and calls the driver or,
where a call creates, ends or waits for something, the session engine's function for that kind of handle.
A `custom` one is written by hand in apiserver/core/, as `on_<symbol>`.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..model import Arg, By, Class, Kind, Lasting, Needs, Spec, Use, Variant
from ..render import render
from ..wire import Message, messages

# What a handle of a kind is to the driver, once found.
FOUND = {
    ("stream",): ("Stream", "stream", "cu"),
    ("event",): ("Event", "event", "cu"),
    ("kernel",): ("Function", "kernel", "kernel.kernel"),
    ("function",): ("Function", "function", "cu"),
    ("function", "kernel"): ("Function", "function", "cu"),
}
BULK = {Kind.PAYLOAD, Kind.IN}


@dataclass(frozen=True)
class Lookup:
    """A handle to find: `<finder>(s, f, q.<name>, &<name>)`."""

    name: str
    type: str
    finder: str


@dataclass(frozen=True)
class Handler:
    """All that the template needs of one operation."""

    message: Message
    needs_context: bool
    devices: tuple[str, ...]
    lookups: tuple[Lookup, ...]
    created: tuple[Arg, ...]
    outputs: tuple[Arg, ...]
    arguments: str
    ends: Arg | None
    waits: str | None
    configures: bool

    @property
    def variant(self) -> Variant:
        return self.message.variant


def ctype(arg: Arg) -> str:
    """The driver's type of what an output points to, as Cython spells it."""
    return cython_type((arg.param.pointee or arg.param.ctype).removeprefix("const "))


def cython_type(name: str) -> str:
    return f"cu.{name}" if name.startswith("CU") else name


def argument(arg: Arg) -> str:
    """What the driver is given for one parameter."""
    if arg.kind is Kind.DEVICE:
        return "s.device.cu"
    if arg.kind is Kind.OUT:
        return f"&{arg.name}"
    if arg.kind is Kind.HANDLE:
        return f"&{arg.name}" if arg.use is Use.CREATE else f"{arg.name}.{FOUND[arg.of][2]}"
    if arg.kind in (Kind.ENUM, Kind.FLAGS, Kind.SCALAR):
        return f"<{cython_type(arg.param.ctype)}>q.{arg.name}"
    raise LookupError(f"{arg.where}: the server's emitter has no argument of kind {arg.kind.value}")


def lookup(arg: Arg, enqueues: bool) -> Lookup:
    if arg.of not in FOUND:
        raise LookupError(f"{arg.where}: the server's emitter cannot find a handle of {arg.of}")
    kind, finder, _ = FOUND[arg.of]
    verb = "use" if kind == "Stream" and enqueues else "find"
    return Lookup(arg.name, kind, f"{verb}_{finder}")


def handler(message: Message) -> Handler:
    variant = message.variant
    args = variant.args
    handles = [a for a in args if a.kind is Kind.HANDLE]
    ends = next((a for a in handles if a.use is Use.DESTROY), None)
    used = [a for a in handles if a.use is Use.USE]
    plain = ends is None and not variant.blocking
    return Handler(
        message,
        needs_context=variant.needs is Needs.CONTEXT and ends is None,
        devices=tuple(a.name for a in args if a.kind is Kind.DEVICE),
        lookups=tuple(lookup(a, variant.klass is Class.ASYNC) for a in used) if plain else (),
        created=tuple(a for a in handles if a.use is Use.CREATE),
        outputs=tuple(a for a in args if a.kind is Kind.OUT),
        arguments=", ".join(map(argument, args)) if plain else "",
        ends=ends,
        waits=(f"{used[0].of[0]}(s, f, q.{used[0].name})" if used else "context(s, f)")
        if variant.blocking
        else None,
        configures=plain and not handles,
    )


@dataclass(frozen=True)
class Kept:
    """Of an operation that leaves something behind: where its handle lies (None: the current context), what
    is kept once each, and which context must be current when it is replayed."""

    message: Message
    handle: int | None
    by: tuple[tuple[int, int | None], ...]
    context: str

    @property
    def variant(self) -> Variant:
        return self.message.variant


def kept(message: Message) -> Kept | None:
    """None: the frame itself need not be kept."""
    variant, replay = message.variant, message.variant.replay
    if replay is None or replay.lasting in (Lasting.NONE, Lasting.CUSTOM):
        return None
    name = replay.of
    if replay.lasting is not Lasting.SET:
        use = Use.CREATE if replay.lasting is Lasting.CREATE else Use.DESTROY
        name = next(a.name for a in variant.args if a.kind is Kind.HANDLE and a.use is use)
    handle = None if name is None or name == "context" else message.place(name)[0]
    context = "WITHOUT"
    if variant.needs is Needs.CONTEXT:
        # A kernel is its library's and no context's; what else a call sets is of the context that is current.
        of = next((a.of for a in variant.args if a.name == name), ())
        context = "IN_ANY" if of == ("kernel",) else "IN_ITS_OWN"
    return Kept(message, handle, tuple(map(message.place, replay.by)), context)


def is_bulk(message: Message) -> bool:
    """Whether the payload is read by the handler, past the receive buffer: it may be as large as a frame."""
    return any(
        a.kind in BULK and a.param.ctype == "const void *" and a.name == "data"
        for a in message.request_payload
    )


def outputs(spec: Spec) -> dict[str, str]:
    sources = ", ".join(library.file for library in spec.libraries)
    found = messages(spec)
    lasting = list(filter(None, map(kept, found)))
    return {
        "apiserver/_generated/messages.pxi": render(
            "server_messages.pxi.j2",
            __file__,
            sources,
            ("# ", ""),
            messages=found,
            spans=max(len(k.by) for k in lasting),
        ),
        "apiserver/_generated/dispatch.pxi": render(
            "server_dispatch.pxi.j2",
            __file__,
            sources,
            ("# ", ""),
            messages=found,
            handlers=[handler(m) for m in found if m.variant.server is By.GENERATED],
            kept=lasting,
            bulk={m.variant.symbol for m in found if is_bulk(m)},
            ctype=ctype,
        ),
    }
