"""What entries of the spec say together: ids, references, and combinations of keys that make sense."""

from __future__ import annotations

from . import codec, expression
from .model import Arg, By, Capture, Class, Kind, Lasting, Library, Needs, Spec, SpecError, Use, Variant
from .wire import BY_VALUE, Message, UnknownType, message

TRAVELS = BY_VALUE | {Kind.IN, Kind.OUT, Kind.INOUT, Kind.PAYLOAD, Kind.OPTIONS, Kind.IGNORED}
NUMBERS = {Kind.SCALAR, Kind.FLAGS, Kind.ENUM}


def fail(variant: Variant, cause: str, remedy: str) -> SpecError:
    return SpecError(variant.where, f"{variant.symbol}: {cause}", remedy)


def check_objects(spec: Spec) -> None:
    for kind in spec.objects.all:
        if spec.types.handles.get(kind.ctype) != kind.name:
            cause = f"{kind.name}: its type {kind.ctype} is no handle of that name in types.yaml"
            raise SpecError(kind.where, cause, f"Add '{kind.ctype}: {kind.name}' to 'handles' there")
        if kind.destroy is None:
            continue
        target = spec.by_symbol.get(kind.destroy)
        ends = [a for a in target.args if a.use is Use.DESTROY] if target else []
        if (
            target is not None
            and target.klass is not Class.UNSUPPORTED
            and [a.of for a in ends] != [(kind.name,)]
        ):
            raise SpecError(
                kind.where, f"{kind.name}: {kind.destroy} does not destroy it", "Name the call that does"
            )
        if target is None:
            raise SpecError(
                kind.where, f"{kind.name}: unknown function {kind.destroy!r}", "Name the one that ends it"
            )


def check_ids(spec: Spec) -> None:
    seen: dict[int, Variant] = {}
    names: dict[str, Variant] = {}
    for library in spec.libraries:
        low, high = library.ids
        for variant in library.variants:
            if variant.id in seen:
                other = seen[variant.id]
                cause = f"id {variant.id} is taken by {other.symbol} ({other.where})"
                raise fail(variant, cause, f"Use {next_id(library)}, the next free one; ids are never reused")
            if variant.id in library.retired:
                cause = f"id {variant.id} is retired"
                raise fail(variant, cause, f"Use {next_id(library)}, the next free one; ids are never reused")
            if not low <= variant.id <= high:
                raise fail(
                    variant, f"id {variant.id} is outside {low}…{high}", "Take one from 'codegen next-id'"
                )
            if variant.symbol in names:
                where = names[variant.symbol].where
                raise fail(variant, f"the symbol is listed twice (first: {where})", "Remove one of the two")
            seen[variant.id] = names[variant.symbol] = variant


def next_id(library: Library) -> int:
    """The lowest wire id in the library's range that no entry ever had."""
    taken = {*library.retired, *(v.id for v in library.variants)}
    first, last = library.ids
    return next((number for number in range(first, last + 1) if number not in taken), last + 1)


def check_class(variant: Variant, exported: bool) -> None:
    silent = variant.klass is Class.UNSUPPORTED or variant.alias is not None
    spoken = [
        key
        for key, given in (
            ("guest", variant.guest is not By.NONE),
            ("server", variant.server is not By.NONE),
            ("via", bool(variant.via)),
            ("args", bool(variant.args)),
            ("blocking", variant.blocking),
        )
        if given
    ]
    if silent:
        if spoken:
            why = "an alias says nothing but its target" if variant.alias else "it is unsupported"
            raise fail(variant, f"{spoken[0]!r} is given, but {why}", f"Remove {spoken[0]!r}")
        return
    if exported and variant.guest is By.NONE:
        raise fail(variant, "nobody implements it in the guest", "Add 'guest: custom' or 'guest: generated'")
    if variant.klass is Class.LOCAL:
        if variant.server is not By.NONE or variant.via:
            raise fail(
                variant,
                "it is local, yet uses the wire",
                "Choose class async or sync, or remove 'server' and 'via'",
            )
    elif (variant.server is not By.NONE) == bool(variant.via):
        raise fail(
            variant, "it needs either a message of its own or others' ", "Give one of 'server' and 'via'"
        )
    if variant.blocking and variant.klass is not Class.SYNC:
        raise fail(variant, "blocking, but nobody waits for it", "Make it 'class: sync'")
    if not variant.args and variant.signature.params:
        raise fail(variant, "its arguments have no meaning", "Add 'args'")
    named = any(arg.of and arg.use is not Use.CREATE for arg in variant.args)
    if variant.needs is Needs.OWNER and not (named and variant.guest is By.GENERATED):
        cause = "'needs: owner', but no generated code looks up an object that has one"
        raise fail(variant, cause, "Write 'needs: context'")


def check_refusal(spec: Spec, variant: Variant) -> None:
    """What answers an error whatever it is asked for says why, or which feature a device lacks that says the
    same; of what is carried, `quiet` says why nobody is told when it is refused.
    """
    given = {"why": variant.why, "without": variant.without, "quiet": variant.quiet}
    said = [key for key, text in given.items() if text is not None]
    if variant.alias is None and variant.fixed:
        if len({"why", "without"} & set(said)) != 1:
            remedy = "Add 'why: …', or 'without: …' where a device without that feature says the same"
            raise fail(variant, "it is refused, and nobody says why", remedy)
        wrong = "quiet" in said
    else:
        wrong = bool({"why", "without"} & set(said)) or (variant.alias is not None and bool(said))
    if wrong:
        key = next(key for key in said if variant.fixed == (key == "quiet") or variant.alias)
        whose = "its target's are" if variant.alias else "it is refused" if variant.fixed else "it is carried"
        raise fail(variant, f"{key!r} is given, but {whose}", f"Remove {key!r}")
    for key in ("without", "quiet"):
        text = given[key] or ""
        known = {override.attribute for override in spec.overrides}
        if text.startswith("CU_DEVICE_ATTRIBUTE_") and text not in known:
            cause = f"{key!r} names {text}, which the device is not said to lack"
            raise fail(variant, cause, "Add it to 'overrides' in device.yaml, or name the feature")


def check_references(spec: Spec, variant: Variant) -> None:
    for name in variant.via:
        target = spec.by_symbol.get(name)
        if target is None or not target.on_wire:
            raise fail(
                variant, f"via {name!r}, which is no operation with a message", "Name one that has 'server'"
            )
    if variant.alias is None:
        return
    target = spec.by_symbol.get(variant.alias)
    if target is None or target.alias:
        raise fail(
            variant,
            f"alias of {variant.alias!r}, which is no implementation",
            "Name the symbol that is implemented",
        )
    types = [[p.ctype for p in v.signature.params] for v in (variant, target)]
    if types[0] != types[1]:
        raise fail(
            variant,
            f"its signature differs from {variant.alias}'s",
            "Only the same binary interface can be an alias",
        )
    if variant.klass is not target.klass:
        raise fail(
            variant, f"its class differs from {variant.alias}'s", f"Write 'class: {target.klass.value}'"
        )


def check_stream(variant: Variant) -> None:
    if (variant.per_thread is None) != (variant.stream is None):
        raise fail(variant, "'per_thread' and 'stream' go together", "Give both or neither")
    if variant.stream in (None, "implicit"):
        return
    streams = [p for p in variant.signature.params if p.ctype == "CUstream"]
    if variant.stream == "argument":
        if not streams:
            raise fail(
                variant, "'stream: argument' without a CUstream", "Write 'implicit' or parameter.member"
            )
        return
    param, dot, _ = str(variant.stream).partition(".")
    if not dot or param not in [p.name for p in variant.signature.params]:
        raise fail(
            variant, f"unknown stream {variant.stream!r}", "Known: argument, implicit, parameter.member"
        )


def check_capture(variant: Variant) -> None:
    """What uses a stream, or waits, says what it means while one is captured."""
    carried = variant.klass in (Class.ASYNC, Class.SYNC) and variant.alias is None
    if carried and (variant.stream or variant.blocking) and variant.capture is None:
        cause = "nobody says what it means while a stream is captured"
        raise fail(variant, cause, f"Add 'capture: …', one of {', '.join(c.value for c in Capture)}")


def check_remember(variant: Variant, found: Message | None) -> None:
    """An answer can be remembered if the request is all that it is an answer to, and both are structs."""
    if variant.forget and (variant.alias or variant.klass is Class.UNSUPPORTED):
        raise fail(variant, "it sets nothing itself", "Remove 'forget'")
    if not variant.remember:
        return
    plain = found is not None and found.request and found.reply and variant.replay is not None
    by_value = {field.name for field in (*found.request, *found.reply)} if found else set()
    if (
        not plain
        or variant.guest is not By.GENERATED
        or variant.klass is not Class.SYNC
        or variant.guest_steps
        or variant.blocking
        or variant.replay is None
        or variant.replay.lasting is not Lasting.NONE
        or any(arg.name not in by_value for arg in variant.args)
    ):
        cause = "'remember' is for generated calls that only ask, with a struct for a struct"
        raise fail(variant, cause, "Remove 'remember'")


def check_replay(variant: Variant, found: Message | None) -> None:
    """Raise SpecError unless `replay` says of every operation of the server what a session that moves must
    know.
    """
    replay = variant.replay
    if found is None:
        for key, given in (("replay", replay is not None), ("restore", variant.restore)):
            if given:
                raise fail(variant, f"{key!r} is given, but it has no message of its own", f"Remove {key!r}")
        return
    if replay is None:
        known = "none, create, destroy, {set: ARG, by: [ARGS]}, {add: ARG} or custom"
        raise fail(variant, "what it leaves behind is not said", f"Add 'replay: …': {known}")

    def wrong(cause: str, remedy: str) -> SpecError:
        return SpecError(replay.where, f"{variant.symbol}: {cause}", remedy)

    if variant.restore and replay.lasting is not Lasting.NONE:
        raise wrong("an operation that restores is not itself kept", "Write 'replay: none'")
    uses = {a.name: a.use for a in variant.args if a.kind is Kind.HANDLE}
    for lasting, use in ((Lasting.CREATE, Use.CREATE), (Lasting.DESTROY, Use.DESTROY)):
        if replay.lasting is lasting and list(uses.values()).count(use) != 1:
            raise wrong(f"it does not {use.value} one handle", f"Mark one argument 'use: {use.value}'")
    if replay.lasting not in (Lasting.SET, Lasting.ADD):
        return
    if replay.of != "context" and uses.get(str(replay.of)) is not Use.USE:
        known = ", ".join(["context", *(name for name, use in uses.items() if use is Use.USE)])
        raise wrong(f"{replay.of!r} is no handle that it uses", f"Known: {known}")
    for name in replay.by:
        try:
            found.place(name)
        except LookupError:
            travels = ", ".join([f.name for f in found.request] + [a.name for a in found.request_payload])
            raise wrong(f"{name!r} does not travel to the server", f"Known: {travels}") from None


def check_arg(spec: Spec, variant: Variant, arg: Arg) -> None:
    def wrong(cause: str, remedy: str) -> SpecError:
        return SpecError(arg.where, f"{variant.symbol}({arg.name}): {cause}", remedy)

    is_pointer = arg.param.pointee is not None
    for name in arg.of:
        if name not in spec.objects:
            raise wrong(f"unknown object {name!r}", f"Known: {', '.join(spec.objects.kinds)}")
    if arg.kind is Kind.HANDLE:
        if (arg.use is Use.CREATE) != is_pointer:
            raise wrong(
                f"a handle to {arg.use.value} of type {arg.param.ctype!r}",
                "Only a created handle is behind a pointer",
            )
    elif arg.kind in BY_VALUE and is_pointer:
        raise wrong(
            f"{arg.kind.value!r} is by value, but the type is {arg.param.ctype!r}",
            "Use in, out, inout or host",
        )
    elif arg.kind in (Kind.IN, Kind.OUT, Kind.INOUT, Kind.STRING) and not is_pointer:
        raise wrong(
            f"{arg.kind.value!r} is behind a pointer, but the type is {arg.param.ctype!r}",
            "Use scalar, enum or flags",
        )
    if variant.on_wire and arg.kind not in TRAVELS:
        raise wrong(
            f"{arg.kind.value!r} has no place in a message",
            "Let the guest carry it by other operations ('via')",
        )
    if variant.klass is Class.ASYNC and variant.on_wire and arg.kind in (Kind.OUT, Kind.INOUT):
        raise wrong("an async operation brings nothing back", "Make it sync, or let the guest answer")
    for what, text in (("size", arg.size), ("count", arg.count)):
        if text is None or arg.kind is Kind.OPTIONS:
            continue
        try:
            used = expression.names(text)
        except expression.ExpressionError as error:
            raise wrong(str(error), "Sizes are numbers, arguments, + - * and parentheses") from None
        numbers = {a.name for a in variant.args if a.kind in NUMBERS}
        if used - numbers:
            raise wrong(
                f"{what} uses {sorted(used - numbers)[0]!r}, which is no number given",
                f"Known: {sorted(numbers)}",
            )


def validate(spec: Spec) -> None:
    check_objects(spec)
    codec.check_types(spec.types, spec.objects)
    check_ids(spec)
    for library in spec.libraries:
        for variant in library.variants:
            check_class(variant, library.header is not None)
            check_refusal(spec, variant)
            check_references(spec, variant)
            check_stream(variant)
            if library.header is not None:
                check_capture(variant)
            for arg in variant.args:
                check_arg(spec, variant, arg)
            found = None
            if variant.on_wire:
                codec.check(spec.types, variant)
                try:
                    found = message(spec.types, variant)
                except UnknownType as error:
                    raise fail(
                        variant, f"type {error} cannot travel", "Add it to specs/cuda/types.yaml"
                    ) from None
            check_replay(variant, found)
            check_remember(variant, found)
        for function in library.functions:
            versions = [v.since for v in function.variants]
            if versions != sorted(set(versions)):
                raise SpecError(
                    function.where, f"{function.base}: variants are not in order", "Oldest 'since' first"
                )
