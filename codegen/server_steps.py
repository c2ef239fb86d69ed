"""The steps of one operation on the server, as Cython: check, translate, call, adopt (or roll back), answer.

Two keys of the spec replace steps by what is written by hand in apiserver/core: `override: {server: [call]}`
by `<symbol>_call`, and `server: custom` everything after translate by `on_<symbol>`. Both are given what was
translated: the session, the frame, the request (`custom`: the reply), the objects that handles name, what
follows the request, decoded (`bulk`: only how long it is), and where to put what the call yields (`custom`:
nothing of that).
"""

from __future__ import annotations

from dataclasses import dataclass

from .checks import stated
from .codec import ArgCodec, Form, in_reply, in_request, travels_behind
from .model import Arg, By, Class, Kind, Lasting, ServerSide, Spec, SpecError, Step, Use, Variant
from .server_checks import Test, test
from .wire import Message

VALUES = {Kind.ENUM, Kind.FLAGS, Kind.SCALAR, Kind.POINTER}
BEHIND = {Kind.IN, Kind.OUT, Kind.INOUT}


@dataclass(frozen=True)
class Lookup:
    """A handle to find, by `<finder>(s, f, q.<name>, &<name>)`. `optional`: 0 is no object."""

    name: str
    struct: str
    finder: str
    optional: bool


@dataclass(frozen=True)
class Made:
    """A new object to adopt, by `<adopter>(s, f, q.<name>, <name><owner>)`."""

    name: str
    adopter: str
    owner: str


@dataclass(frozen=True)
class Codec:
    """What is decoded from behind the request and encoded into the answer, as lines of Cython; empty:
    nothing nests.
    """

    begin: str = ""
    decode: tuple[str, ...] = ()
    room: tuple[str, ...] = ()
    encode: tuple[str, ...] = ()
    behind: bool = False

    def __bool__(self) -> bool:
        return bool(self.decode or self.room or self.encode)


@dataclass(frozen=True)
class Handler:
    """All that the template needs of one operation. `copies` is set from the request before the call."""

    message: Message
    bulk: bool
    tests: tuple[Test, ...]
    lookups: tuple[Lookup, ...]
    locals: tuple[str, ...]
    copies: tuple[str, ...]
    codec: Codec
    call: str
    made: tuple[Made, ...]
    answers: tuple[str, ...]
    configures: bool

    @property
    def variant(self) -> Variant:
        return self.message.variant

    @property
    def plain(self) -> bool:
        """Whether nothing is left to do after the driver was called."""
        return not (self.made or self.answers or self.codec or self.configures)


# Variables of the generated function.
LOCALS = {"s", "f", "q", "d", "out", "status", "behind", "request"}


def wrong(arg: Arg, cause: str, remedy: str) -> SpecError:
    return SpecError(arg.where, f"{arg.name}: {cause}", remedy)


def cython_type(name: str) -> str:
    const, base = ("const ", name.removeprefix("const ")) if name.startswith("const ") else ("", name)
    return f"{const}cu.{base}" if base.startswith(("CU", "cuuint")) else name


def pointee(arg: Arg) -> str:
    """The driver's type of what an argument points to, as Cython spells it."""
    return cython_type((arg.param.pointee or arg.param.ctype).removeprefix("const "))


# ---- translate


def function(spec: Spec, arg: Arg, name: str) -> str:
    """Name of the engine's function for the kind of an argument. Raises SpecError if the engine has none."""
    kind = spec.objects[arg.of[0]]
    if kind.server.side is ServerSide.NONE:
        raise wrong(arg, f"the server has no {kind.name}", "Say in objects.yaml what it has: 'server'")
    if name not in kind.server.functions:
        remedy = f"Write it, and list it under 'functions' of {kind.name} ({kind.where})"
        raise wrong(arg, f"the engine has no {name}", remedy)
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
    use = enqueues(variant) and f"use_{name}" in kinds[0].server.functions
    finder = function(spec, arg, f"{'use' if use else 'find'}_{name}")
    # Who looks up a kind by hand knows what its null handle is.
    return Lookup(arg.name, structs[0], finder, arg.nullable and not kinds[0].look_up)


def translated(spec: Spec, arg: Arg) -> str:
    """What the driver is given for a found object; of several kinds, the one whose type the parameter has."""
    kinds = [spec.objects[name] for name in arg.of]
    fitting = [kind for kind in kinds if kind.ctype == arg.param.ctype]
    if not fitting:
        raise wrong(arg, f"no kind of it has the type {arg.param.ctype}", "Override the server's step 'call'")
    member = f"{arg.name}.{fitting[0].server.driver}"
    return f"({member} if {arg.name} != NULL else NULL)" if arg.nullable and not kinds[0].look_up else member


# ---- what is behind pointers


def nests(spec: Spec, arg: Arg) -> ArgCodec | None:
    """The codec of an argument; None if it is one number or handle, in the request or reply itself."""
    if not travels_behind(arg):
        return None
    found = ArgCodec(spec.types, arg)
    forms = [found.form()] * in_request(arg) + [found.form(True)] * in_reply(arg)
    return None if all(form is Form.PLAIN for form in forms) else found


def payload(message: Message) -> list[tuple[str, str, str]]:
    """What follows the request as it is: type, name and value of its address and of its size."""
    fixed = f"sizeof(gf_req_{message.variant.symbol})" if message.request else "0"
    found = []
    for arg in message.request_payload:
        if arg.kind is not Kind.PAYLOAD:
            if (
                arg.bulk
                and message.variant.server is By.GENERATED
                and Step.CALL not in message.variant.server_steps
            ):
                raise wrong(
                    arg, "who reads it from the connection is written by hand", "Override the step 'call'"
                )
            continue
        if len(message.request_payload) > 1:
            raise wrong(arg, "what follows it, or it follows, has no place", "Let it be all that follows")
        if not arg.bulk:
            found.append(("const uint8_t *", arg.name, f"f.body + {fixed}"))
        if arg.size is None:
            found.append(("size_t ", f"{arg.name}_size", f"f.size - {fixed}"))
    return found


def codec(spec: Spec, message: Message, written: bool) -> tuple[Codec, list[str], list[str]]:
    """The codec's part, the declarations that it needs, and what a call by hand is given of it."""
    nested = [(a, c) for a in message.variant.args if not a.bulk and (c := nests(spec, a))]
    # Who writes the call by hand also writes an answer of many bytes, from where the device puts them; who
    # writes all that follows, every answer.
    custom = message.variant.server is By.CUSTOM
    nested = [
        (a, c)
        for a, c in nested
        if not (written and a.kind is Kind.OUT and (custom or c.form(True) is Form.BEHIND))
    ]
    lasting = message.variant.replay.lasting if message.variant.replay else Lasting.NONE
    behind = [a for a, c in nested if in_reply(a) and c.form(True) is Form.BEHIND]
    if behind and lasting is not Lasting.NONE:
        raise wrong(
            behind[0], "what the call leaves behind is not kept with such an answer", "Override 'call'"
        )
    fixed = f"sizeof(gf_req_{message.variant.symbol})" if message.request else "0"
    found = Codec(
        begin=f"begin_codec(s, f, &d, {fixed})",
        decode=tuple(c.server_decode for a, c in nested if in_request(a) or c.arg in message.request_payload),
        room=tuple(c.server_room for _, c in nested if c.server_room),
        encode=tuple(c.server_encode for a, c in nested if in_reply(a) and not custom),
        behind=bool(behind),
    )
    declared = [line.removeprefix("cdef ") for _, c in nested for line in c.server_declare]
    return found, declared, [c.server_argument for _, c in nested]


def single(spec: Spec, arg: Arg) -> bool:
    """Whether the driver is given the address of one number or handle."""
    made = arg.kind is Kind.HANDLE and arg.use is Use.CREATE
    return made or (arg.kind in BEHIND and nests(spec, arg) is None)


# ---- call


def argument(spec: Spec, arg: Arg) -> str:
    """What the driver is given for one parameter, as Cython."""
    nested = nests(spec, arg)
    if arg.kind is Kind.OPTIONS:
        return arg.name
    if nested is not None:
        return nested.server_argument
    if single(spec, arg):
        return f"&{arg.name}"
    if arg.kind is Kind.DEVICE:
        return f"device_of(s, q.{arg.name})"
    if arg.kind is Kind.HANDLE:
        return translated(spec, arg)
    if arg.kind in VALUES:
        return f"<{cython_type(arg.param.ctype)}>q.{arg.name}"
    if arg.kind is Kind.IGNORED:
        return f"<{cython_type(arg.param.ctype)}>0"
    remedy = "Override the server's step 'call', or teach codegen/server_steps.py"
    raise wrong(arg, f"the server has no argument of kind {arg.kind.value!r} for the driver", remedy)


def binding(spec: Spec, variant: Variant) -> str:
    """The name of the driver's function in the binding, which has the newest interface of each under its
    base name. Raises SpecError for an older one.
    """
    library = next(library for library in spec.libraries if variant in library.variants)
    if library.header is None:
        cause = f"{variant.symbol}: the driver has no such function"
        raise SpecError(variant.where, cause, "Override the server's step 'call'")
    newest = next(f for f in library.functions if variant in f.variants).variants[-1]
    if newest is not variant and newest.alias != variant.symbol:
        cause = f"{variant.symbol}: the driver's binding has {newest.symbol} in its place"
        raise SpecError(variant.where, cause, "Override the server's step 'call'")
    return f"cu.{variant.base}"


def alone(spec: Spec, variant: Variant, arg: Arg | None, verb: str) -> str:
    """The call of the engine's function that waits for an object, or ends it. Raises SpecError if the
    operation takes anything else.
    """
    if len(variant.args) > (arg is not None) or (arg is not None and len(arg.of) > 1):
        cause = f"{variant.symbol}: to {verb} takes one handle, or none, and nothing else"
        raise SpecError(variant.where, cause, "Override the server's step 'call'")
    if arg is None:
        return f"{verb}_context(s, f)"
    found = arg.name if arg.use is Use.USE else f"q.{arg.name}"
    return f"{function(spec, arg, f'{verb}_{arg.of[0]}')}(s, f, {found})"


def call(spec: Spec, variant: Variant) -> str:
    """The generated call of an operation: what ends an object, what waits for one, or the driver's
    function.
    """
    handles = [a for a in variant.args if a.kind is Kind.HANDLE]
    ended = next((a for a in handles if a.use is Use.DESTROY), None)
    if ended is not None:
        return alone(spec, variant, ended, "retire")
    if variant.blocking:
        return alone(spec, variant, handles[0] if handles else None, "await")
    return f"{binding(spec, variant)}({', '.join(argument(spec, a) for a in variant.args)})"


def by_hand(spec: Spec, message: Message, lookups: tuple[Lookup, ...], nested: list[str]) -> str:
    """The call of a step that is written by hand."""
    variant = message.variant
    custom = variant.server is By.CUSTOM
    given = ["s", "f"] + ["q"] * bool(message.request) + ["out"] * bool(custom and message.reply)
    given += [found.name for found in lookups] + [name for _, name, _ in payload(message)]
    given += nested
    if not custom:
        given += [f"&{a.name}" for a in variant.args if single(spec, a)]
    return f"{f'on_{variant.symbol}' if custom else f'{variant.symbol}_call'}({', '.join(given)})"


# ---- adopt


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
        raise wrong(
            arg, f"none of the arguments is its owner, a {' or '.join(inner)}", "Write 'server: custom'"
        )
    return Made(arg.name, adopter, f", &{owner.name}.base")


def handler(spec: Spec, message: Message) -> Handler:
    """All steps of one operation. Raises SpecError for what cannot be generated."""
    variant, args = message.variant, message.variant.args
    custom = variant.server is By.CUSTOM
    written = custom or Step.CALL in variant.server_steps
    handles = [a for a in args if a.kind is Kind.HANDLE]
    lookups = tuple(lookup(spec, variant, a) for a in handles if a.use is Use.USE)
    nested, declared, decoded = codec(spec, message, written)
    values = [] if custom else [a for a in args if single(spec, a)]
    lies = payload(message)
    for arg in (*handles, *values):
        if arg.name in LOCALS:
            raise wrong(
                arg, "a variable of the generated function has this name too", f"Rename that in {__name__}"
            )
    return Handler(
        message,
        bulk=any(arg.bulk for arg in message.request_payload),
        tests=tuple(found for check in stated(spec, message) if (found := test(message, check))),
        lookups=lookups,
        locals=(*declared, *(f"{pointee(a)} {a.name}" for a in values), *(f"{t}{n}" for t, n, _ in lies)),
        copies=(
            *(f"{a.name} = q.{a.name}" for a in values if in_request(a)),
            *(f"{name} = {value}" for _, name, value in lies),
        ),
        codec=nested,
        call=by_hand(spec, message, lookups, decoded) if written else call(spec, variant),
        made=() if custom else tuple(made(spec, variant, a) for a in handles if a.use is Use.CREATE),
        answers=() if custom else tuple(a.name for a in values if in_reply(a)),
        # What it sets in a context outlives the session, unless that is reset.
        configures=variant.replay is not None and variant.replay.of == "context",
    )
