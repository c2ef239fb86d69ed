"""The API server's side of each operation: struct declarations and dispatch table, for Cython.

Every operation is served in steps: check (what the spec states), translate (handles to what the engine has of them),
call (the driver), adopt (what was created, or roll back) and answer. Two keys replace steps by what is written by
hand in apiserver/core: `override: {server: [call]}` by `<symbol>_call`, and `server: custom` all after translate by
`on_<symbol>`. Both are given what was translated, so neither looks up a handle.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..checks import stated
from ..model import Arg, By, Class, Kind, Lasting, Needs, ServerSide, Spec, SpecError, Step, Use, Variant
from ..render import render
from ..server_checks import Test, size_of, test
from ..wire import Message, messages

VALUES = {Kind.ENUM, Kind.FLAGS, Kind.SCALAR, Kind.POINTER}


@dataclass(frozen=True)
class Lookup:
    """A handle to find: `<finder>(s, f, q.<name>, &<name>)`. `optional`: 0 is no object."""

    name: str
    struct: str
    finder: str
    optional: bool


@dataclass(frozen=True)
class Local:
    """A variable that the driver fills or reads: its type, its name; `source`: what it is at first."""

    ctype: str
    name: str
    source: str | None = None


@dataclass(frozen=True)
class Made:
    """A new object: `<adopter>(s, f, q.<name>, <name><owner>)`."""

    name: str
    adopter: str
    owner: str


@dataclass(frozen=True)
class Answer:
    """Bytes that follow the reply struct: who fills them, and how many they are."""

    name: str
    size: str


@dataclass(frozen=True)
class Handler:
    """All that the template needs of one operation."""

    message: Message
    bulk: bool
    sums: bool
    tests: tuple[Test, ...]
    lookups: tuple[Lookup, ...]
    locals: tuple[Local, ...]
    outcome: str
    made: tuple[Made, ...]
    answers: tuple[str, ...]
    answer: Answer | None
    configures: bool

    @property
    def variant(self) -> Variant:
        return self.message.variant

    @property
    def plain(self) -> bool:
        """Whether nothing follows the call."""
        return not self.made and not self.answers and self.answer is None and not self.configures


def wrong(arg: Arg, cause: str, remedy: str) -> SpecError:
    return SpecError(arg.where, f"{arg.name}: {cause}", remedy)


def cython_type(name: str) -> str:
    const, base = ("const ", name.removeprefix("const ")) if name.startswith("const ") else ("", name)
    return f"{const}cu.{base}" if base.startswith(("CU", "cuuint")) else name


def pointee(arg: Arg) -> str:
    """The driver's type of what an argument points to, as Cython spells it."""
    return cython_type((arg.param.pointee or arg.param.ctype).removeprefix("const "))


def function(spec: Spec, arg: Arg, name: str) -> str:
    """A function of the engine for the kind of an argument, which must be there."""
    kind = spec.objects[arg.of[0]]
    if kind.server.side is ServerSide.NONE:
        raise wrong(arg, f"the server has no {kind.name}", "Say in objects.yaml what it has: 'server'")
    if name not in kind.server.functions:
        where = f"{kind.where} lists {', '.join(kind.server.functions)}"
        raise wrong(arg, f"the engine has no {name}", f"Write it, and add it to 'functions' of {kind.name}: {where}")
    return name


def enqueues(variant: Variant) -> bool:
    """Whether a call gives its stream work: it is not waited for, or touches device memory."""
    return variant.klass is Class.ASYNC or any(a.kind is Kind.POINTER for a in variant.args)


def lookup(spec: Spec, variant: Variant, arg: Arg) -> Lookup:
    kinds = [spec.objects[name] for name in arg.of]
    structs = sorted({kind.server.struct for kind in kinds})
    if len(structs) != 1:
        raise wrong(arg, f"it is a {' or a '.join(structs)}", "Only kinds with one struct go together")
    name = "_or_".join(arg.of)
    use = f"use_{name}" in kinds[0].server.functions and enqueues(variant)
    finder = function(spec, arg, f"{'use' if use else 'find'}_{name}")
    # Who looks up a kind by hand knows what its null handle is.
    return Lookup(arg.name, structs[0], finder, arg.nullable and not kinds[0].look_up)


def found_driver(spec: Spec, arg: Arg) -> str:
    """What a found object is to the driver: of several kinds, the one whose type the parameter has."""
    kinds = [spec.objects[name] for name in arg.of]
    fitting = [kind for kind in kinds if kind.ctype == arg.param.ctype]
    if not fitting:
        raise wrong(arg, f"no kind of it has the type {arg.param.ctype}", "Override the server's step 'call'")
    member = f"{arg.name}.{fitting[0].server.driver}"
    return f"({member} if {arg.name} != NULL else NULL)" if arg.nullable and not kinds[0].look_up else member


def argument(spec: Spec, arg: Arg) -> str:
    """What the driver is given for one parameter."""
    if arg.kind is Kind.DEVICE:
        return "s.device"
    if arg.kind is Kind.HANDLE and arg.use is not Use.CREATE:
        return found_driver(spec, arg)
    if arg.kind in VALUES:
        return f"<{cython_type(arg.param.ctype)}>q.{arg.name}"
    if arg.kind is Kind.IGNORED:
        return f"<{cython_type(arg.param.ctype)}>0"
    if arg.size is not None and arg.kind in (Kind.IN, Kind.OUT):
        return f"<{cython_type(arg.param.ctype)}>{arg.name}"
    if arg.kind in (Kind.IN, Kind.OUT, Kind.INOUT, Kind.HANDLE):
        return f"&{arg.name}"
    remedy = "Override the server's step 'call', or teach codegen/emit/server.py"
    raise wrong(arg, f"the server has no argument of kind {arg.kind.value!r} for the driver", remedy)


def payload_locals(message: Message) -> list[Local]:
    """Where each part of the request's payload lies, and how long what has no stated size is."""
    found, at = [], f"sizeof(gf_req_{message.variant.symbol})" if message.request else "0"
    bulk = any(arg.bulk for arg in message.request_payload)
    for arg in message.request_payload:
        if not bulk:
            found.append(Local("const uint8_t *", arg.name, f"f.body + {at}"))
        if arg.size is None:
            found.append(Local("size_t ", f"{arg.name}_size", f"f.size - ({at})"))
        else:
            at = f"{at} + {size_of(arg.size, arg)}"
    return found


def value_locals(message: Message) -> list[Local]:
    """Variables for single values behind pointers, and for what is created."""
    found = []
    for arg in message.variant.args:
        single = arg.kind in (Kind.IN, Kind.INOUT, Kind.OUT) and arg.size is None
        if single and arg.nullable and arg.kind is not Kind.OUT:
            raise wrong(arg, "nothing in the request says that it is absent", "Send another operation without it")
        if single:
            source = None if arg.kind is Kind.OUT else f"q.{arg.name}"
            found.append(Local(f"{pointee(arg)} ", arg.name, source))
        elif arg.kind is Kind.HANDLE and arg.use is Use.CREATE:
            found.append(Local(f"{pointee(arg)} ", arg.name))
    return found


def made(spec: Spec, variant: Variant, arg: Arg) -> Made:
    if len(arg.of) != 1:
        raise wrong(arg, "the server cannot tell which of them is created", "Write 'server: custom'")
    kind = spec.objects[arg.of[0]]
    adopter = function(spec, arg, f"adopt_{kind.name}")
    inner = [owner for owner in kind.owners if owner not in ("session", "context")]
    if not inner:
        return Made(arg.name, adopter, "")
    owner = next((a for a in variant.args if a.use is Use.USE and set(a.of) & set(inner)), None)
    if owner is None:
        raise wrong(arg, f"none of the arguments is its owner, a {' or '.join(inner)}", "Override the step 'call'")
    return Made(arg.name, adopter, f", &{owner.name}.base")


def waits(spec: Spec, variant: Variant) -> str:
    """The call of an operation that may take as long as the device does."""
    used = [a for a in variant.args if a.kind is Kind.HANDLE]
    if len(variant.args) > 1 or (variant.args and not used):
        raise wrong(variant.args[-1], "who waits is told of one object", "Override the server's step 'call'")
    if used:
        return f"{function(spec, used[0], f'await_{used[0].of[0]}')}(s, f, {used[0].name})"
    return "await_context(s, f)"


def ends(spec: Spec, variant: Variant, arg: Arg) -> str:
    if len(variant.args) > 1 or len(arg.of) > 1:
        raise wrong(arg, "an object is ended by its handle alone", "Override the server's step 'call'")
    return f"{function(spec, arg, f'retire_{arg.of[0]}')}(s, f, q.{arg.name})"


def check_binding(spec: Spec, variant: Variant) -> None:
    """The driver's binding has the newest interface of each function, under its base name."""
    group = next(f for library in spec.libraries for f in library.functions if variant in f.variants)
    newest = group.variants[-1]
    if newest is not variant and newest.alias != variant.symbol:
        cause = f"{variant.symbol}: the binding has {newest.symbol} instead"
        raise SpecError(variant.where, cause, "Override the server's step 'call'")


def configures(variant: Variant) -> bool:
    """Whether it leaves a trace in a context that only a reset ends."""
    return variant.replay is not None and variant.replay.of == "context"


def by_hand(message: Message, lookups: tuple[Lookup, ...], values: list[Local]) -> str:
    """The call of a step that is written by hand: it is given what was translated."""
    variant = message.variant
    custom = variant.server is By.CUSTOM
    given = ["s", "f"] + ["q"] * bool(message.request) + ["out"] * bool(custom and message.reply)
    given += [found.name for found in lookups] + [local.name for local in payload_locals(message)]
    given += [f"&{value.name}" for value in values]
    return f"{f'on_{variant.symbol}' if custom else f'{variant.symbol}_call'}({', '.join(given)})"


def handler(spec: Spec, message: Message) -> Handler:
    variant, args = message.variant, message.variant.args
    custom = variant.server is By.CUSTOM
    written = custom or Step.CALL in variant.server_steps
    tests = tuple(found for check in stated(spec, message) if (found := test(message, check)))
    end = next((a for a in args if a.use is Use.DESTROY), None)
    handles = [a for a in args if a.kind is Kind.HANDLE]
    lookups = tuple(lookup(spec, variant, a) for a in handles if a.use is Use.USE)
    values = [] if custom else value_locals(message)
    answer = None
    if written:
        outcome = by_hand(message, lookups, values)
    elif end is not None:
        outcome = ends(spec, variant, end)
    elif variant.blocking:
        outcome = waits(spec, variant)
    else:
        check_binding(spec, variant)
        outcome = f"cu.{variant.base}({', '.join(argument(spec, a) for a in args)})"
        answer = sized_answer(message)
    single = [a for a in args if a.kind in (Kind.OUT, Kind.INOUT) and a.size is None]
    return Handler(
        message,
        bulk=any(arg.bulk for arg in message.request_payload),
        sums=any(found.before for found in tests) or answer is not None,
        tests=tests,
        lookups=lookups,
        locals=tuple(values + payload_locals(message)),
        outcome=outcome,
        made=() if custom else tuple(made(spec, variant, a) for a in handles if a.use is Use.CREATE),
        answers=() if custom else tuple(a.name for a in single),
        answer=answer,
        configures=configures(variant),
    )


def sized_answer(message: Message) -> Answer | None:
    """The one argument whose bytes follow the reply."""
    found = message.reply_payload
    if not found:
        return None
    if len(found) > 1 or found[0].size is None:
        raise wrong(found[-1], "the server answers with the bytes of one argument", "Override its step 'call'")
    lasting = message.variant.replay and message.variant.replay.lasting
    if lasting not in (Lasting.NONE, None):
        raise wrong(found[0], "what it leaves behind is not kept with such an answer", "Override its step 'call'")
    return Answer(found[0].name, size_of(found[0].size, found[0]))


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


def in_context(spec: Spec, name: str) -> bool:
    """Whether objects of a kind are a context's, by whatever way."""
    owners = spec.objects[name].owners
    return "context" in owners or any(in_context(spec, o) for o in owners if o in spec.objects)


def kept(spec: Spec, message: Message) -> Kept | None:
    """None: the frame itself need not be kept."""
    variant, replay = message.variant, message.variant.replay
    if replay is None or replay.lasting in (Lasting.NONE, Lasting.CUSTOM):
        return None
    name = replay.of
    if replay.lasting in (Lasting.CREATE, Lasting.DESTROY):
        use = Use.CREATE if replay.lasting is Lasting.CREATE else Use.DESTROY
        name = next(a.name for a in variant.args if a.kind is Kind.HANDLE and a.use is use)
    handle = None if name is None or name == "context" else message.place(name)[0]
    context = "WITHOUT"
    if variant.needs is Needs.CONTEXT:
        # What is no context's (a library's kernel) is changed in any; the rest in the context that is current.
        of = next((a.of for a in variant.args if a.name == name), ("context",))
        context = "IN_ITS_OWN" if any(kind == "context" or in_context(spec, kind) for kind in of) else "IN_ANY"
    return Kept(message, handle, tuple(map(message.place, replay.by)), context)


def outputs(spec: Spec) -> dict[str, str]:
    sources = ", ".join(library.file for library in spec.libraries)
    found = messages(spec)
    lasting = [k for m in found if (k := kept(spec, m))]
    handlers = [handler(spec, m) for m in found]
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
            "server_dispatch.pxi.j2", __file__, sources, ("# ", ""), handlers=handlers, kept=lasting
        ),
    }
