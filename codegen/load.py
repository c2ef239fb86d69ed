"""From YAML files to the model. Checks what one entry may say; `validate.py` what they say together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import TypeVar

from .document import Mapping, Value, parse
from .expression import Call, ExpressionError, parse_call
from .load_nesting import load_enum, load_nesting
from .model import (
    Access,
    Arg,
    Assignment,
    AttributeUse,
    By,
    Capture,
    Class,
    Early,
    Effect,
    Function,
    Kind,
    Lasting,
    Library,
    Lookup,
    Needs,
    Override,
    PerThread,
    Replay,
    Signature,
    Spec,
    Step,
    Types,
    Use,
    Variant,
    Where,
)
from .objects import load_objects
from .results import load_results, plain_text
from .signature import parse_signature
from .validate import validate

T = TypeVar("T")
SPECS = Path(__file__).resolve().parent.parent / "specs"
TYPES = "cuda/types.yaml"
OBJECTS = "cuda/objects.yaml"
DEVICE = "cuda/device.yaml"
RESULTS = "cuda/results.yaml"
LIBRARIES = ("cuda/driver.yaml", "gpuferry/session.yaml")

GUEST_STEPS = (Step.CHECK, Step.SEND, Step.DECODE)
SERVER_STEPS = (Step.CALL,)

# Keys that say something only of some kinds of arguments.
KEYS_OF_KIND = {
    Kind.SCALAR: {"min", "max", "clamp"},
    Kind.ENUM: {"allow", "min", "max"},
    Kind.FLAGS: {"allow"},
    Kind.POINTER: {"size", "access", "nullable"},
    Kind.DEVICE: {"error"},
    Kind.HANDLE: {"of", "use", "nullable", "absent", "inactive", "error"},
    Kind.IN: {"size", "count", "nullable", "bulk"},
    Kind.PAYLOAD: {"size", "bulk"},
    Kind.OUT: {"size", "count", "nullable", "error"},
    Kind.INOUT: {"size", "count", "nullable"},
    Kind.STRING: {"nullable"},
    Kind.HOST: {"size", "nullable"},
    Kind.OPTIONS: {"count", "values"},
}


def load_arg(name: str, value: Value, signature: Signature) -> Arg:
    keys = value.mapping()
    param = next((p for p in signature.params if p.name == name), None)
    if param is None:
        known = [p.name for p in signature.params]
        raise keys.unknown("argument", name, known)
    kind = keys.need("kind").choice(Kind)
    of, use, size, access = keys.get("of"), keys.get("use"), keys.get("size"), keys.get("access")
    nullable, allow, low, high = keys.get("nullable"), keys.get("allow"), keys.get("min"), keys.get("max")
    clamp, absent, error = keys.get("clamp"), keys.get("absent"), keys.get("error")
    bulk, count, values = keys.get("bulk"), keys.get("count"), keys.get("values")
    inactive = keys.get("inactive")
    keys.done()
    misplaced = set(keys.keys) - {"kind"} - KEYS_OF_KIND.get(kind, set())
    if misplaced:
        key = sorted(misplaced)[0]
        taken = ", ".join(sorted(KEYS_OF_KIND.get(kind, set()))) or "no other key"
        remedy = f"Remove it, or choose a kind that has it; {kind.value!r} takes {taken}"
        raise keys.keys[key].fail(f"{key!r} says nothing of an argument of kind {kind.value!r}", remedy)
    if kind is Kind.HANDLE and of is None:
        raise keys.fail("a handle without 'of'", "Say which object it names, e.g. of: stream")
    return Arg(
        name=name,
        kind=kind,
        param=param,
        where=keys.where,
        of=of.texts() if of else (),
        use=use.choice(Use) if use else Use.USE,
        nullable=nullable.flag() if nullable else False,
        size=size.text() if size else None,
        access=access.choice(Access) if access else None,
        allow=allow.texts() if allow else (),
        min=low.word() if low else None,
        max=high.word() if high else None,
        clamp=load_clamp(clamp) if clamp else None,
        absent=absent.text() if absent else None,
        inactive=inactive.flag() if inactive else False,
        bulk=bulk.flag() if bulk else False,
        error=error.text() if error else None,
        count=count.text() if count else None,
        values=values.text() if values else None,
    )


def load_clamp(value: Value) -> tuple[str, str]:
    bounds = value.texts()
    if len(bounds) != 2:
        raise value.fail("'clamp' is not a range", "Write clamp: [least, greatest]")
    return bounds[0], bounds[1]


def load_early(value: Value) -> Early:
    keys = value.mapping()
    early = Early(keys.need("if").word(), keys.need("result").text(), keys.where)
    keys.done()
    return early


def load_assignment(target: str, value: Value) -> Assignment:
    if value.is_word:
        return Assignment(target, value.word(), value.where)
    if value.is_list:
        return Assignment(target, tuple(load_assignment("", item) for item in value.items()), value.where)
    members = value.mapping().all()
    return Assignment(target, tuple(load_assignment(name, item) for name, item in members), value.where)


def load_assignments(value: Value | None) -> tuple[Assignment, ...]:
    return tuple(load_assignment(name, item) for name, item in value.mapping().all()) if value else ()


def load_effect(target: str, value: Value) -> Effect:
    if value.is_word:
        return Effect(target, value.word(), False, value.where)
    keys = value.mapping()
    effect = Effect(target, keys.need("add").word(), True, value.where)
    keys.done()
    return effect


def load_effects(value: Value | None) -> tuple[Effect, ...]:
    return tuple(load_effect(name, item) for name, item in value.mapping().all()) if value else ()


def load_call(value: Value | None) -> Call | None:
    if value is None:
        return None
    try:
        return parse_call(value.text())
    except ExpressionError as error:
        raise value.fail(str(error), "Write calls: function(argument, …)") from None


def load_attribute_use(value: Value | None) -> AttributeUse | None:
    if value is None:
        return None
    keys = value.mapping()
    found = AttributeUse(
        keys.need("of").text(), keys.need("by").text(), keys.need("value").text(), keys.where
    )
    keys.done()
    return found


def load_steps(keys: Mapping, side: str, known: tuple[Step, ...]) -> tuple[Step, ...]:
    given = keys.get(side)
    found = tuple(item.choice(Step) for item in given.items()) if given else ()
    for step in found:
        if step not in known:
            raise keys.fail(
                f"the {side} has no step {step.value!r}", f"Known: {', '.join(s.value for s in known)}"
            )
    return found


def load_args(value: Value | None, signature: Signature) -> tuple[Arg, ...]:
    if value is None:
        return ()
    found = {name: load_arg(name, item, signature) for name, item in value.mapping().all()}
    missing = [p.name for p in signature.params if p.name not in found]
    if missing:
        raise value.fail(f"argument {missing[0]!r} has no meaning", f"Add '{missing[0]}: {{kind: …}}'")
    return tuple(found[p.name] for p in signature.params)


def load_variant(base: str, group: str, value: Value) -> Variant:
    keys = value.mapping()
    symbol = keys.need("symbol").text()
    text = keys.need("signature")
    signature = parse_signature(text.text(), text.where)
    if signature.name != symbol:
        raise text.fail(
            f"the signature is of {signature.name!r}, the symbol is {symbol!r}", "Make them the same"
        )
    twin = keys.get("per_thread")
    lookup, stream, via = keys.get("lookup"), keys.get("stream"), keys.get("via")
    guest, server, needs, alias = keys.get("guest"), keys.get("server"), keys.get("needs"), keys.get("alias")
    blocking, replay, restore = keys.get("blocking"), keys.get("replay"), keys.get("restore")
    remember, forget = keys.get("remember"), keys.get("forget")
    capture = keys.get("capture")
    early, result, override = keys.get("early"), keys.get("result"), keys.get("override")
    ahead = keys.get("ahead")
    why, without, quiet = keys.get("why"), keys.get("without"), keys.get("quiet")
    steps = override.mapping() if override else None
    variant = Variant(
        symbol=symbol,
        base=base,
        group=group,
        since=keys.need("since").integer(),
        id=keys.need("id").integer(),
        klass=keys.need("class").choice(Class),
        signature=signature,
        where=keys.where,
        alias=alias.text() if alias else None,
        per_thread=load_twin(twin) if twin else None,
        lookup=tuple(load_lookup(item) for item in lookup.items()) if lookup else (),
        stream=stream.text() if stream else None,
        guest=guest.choice(By) if guest else By.NONE,
        server=server.choice(By) if server else By.NONE,
        via=via.texts() if via else (),
        blocking=blocking.flag() if blocking else False,
        needs=needs.choice(Needs) if needs else Needs.DRIVER,
        replay=load_replay(replay) if replay else None,
        restore=restore.flag() if restore else False,
        remember=remember.flag() if remember else False,
        forget=forget.flag() if forget else False,
        capture=capture.choice(Capture) if capture else None,
        args=load_args(keys.get("args"), signature),
        early=tuple(load_early(item) for item in early.items()) if early else (),
        ahead=tuple(load_early(item) for item in ahead.items()) if ahead else (),
        answer=load_assignments(keys.get("answer")),
        effect=load_effects(keys.get("effect")),
        result=result.text() if result else None,
        calls=load_call(keys.get("calls")),
        attribute=load_attribute_use(keys.get("attribute")),
        guest_steps=load_steps(steps, "guest", GUEST_STEPS) if steps else (),
        server_steps=load_steps(steps, "server", SERVER_STEPS) if steps else (),
        why=plain_text(why) if why else None,
        without=plain_text(without) if without else None,
        quiet=plain_text(quiet) if quiet else None,
    )
    if steps:
        steps.done()
    keys.done()
    return variant


def load_twin(value: Value) -> PerThread:
    keys = value.mapping()
    twin = PerThread(keys.need("symbol").text(), keys.need("since").integer())
    keys.done()
    return twin


def load_replay(value: Value) -> Replay:
    """What `replay` says: a word, `{set: ARG, by: [ARGS]}` (perhaps with `lapses`) or `{add: ARG}`."""
    if value.is_word:
        lasting = value.choice(Lasting)
        if lasting is Lasting.SET:
            raise value.fail("'set' without what is set", "Write {set: ARG, by: [ARGS]}")
        if lasting is Lasting.ADD:
            raise value.fail("'add' without what is added to", "Write {add: ARG}")
        return Replay(lasting, value.where)
    keys = value.mapping()
    added = keys.get("add")
    if added is not None:
        keys.done()
        return Replay(Lasting.ADD, value.where, added.text())
    of, by, lapses = keys.need("set").text(), keys.need("by").texts(), keys.get("lapses")
    replay = Replay(Lasting.SET, value.where, of, by, lapses.flag() if lapses else False)
    keys.done()
    return replay


def load_lookup(value: Value) -> Lookup:
    keys = value.mapping()
    lookup = Lookup(keys.need("name").text(), keys.need("since").integer())
    keys.done()
    return lookup


def load_function(base: str, value: Value, group: str | None = None) -> Function:
    """One function; its file has the group's name, or the entry names it."""
    keys = value.mapping()
    group = group or keys.need("group").text()
    variants = tuple(load_variant(base, group, item) for item in keys.need("variants").items())
    keys.done()
    return Function(base, group, variants, keys.where)


def load_group(keys: Mapping) -> tuple[Function, ...]:
    """The functions of one group: a file of its name in the folder of the library's name."""
    group = Path(keys.where.file).stem
    entries = keys.need("functions").mapping().all()
    keys.done()
    return tuple(load_function(name, item, group) for name, item in entries)


def load_library(keys: Mapping) -> Library:
    """What a library's own file says; `load` adds the functions of groups that have their own files."""
    header, retired, functions = keys.get("header"), keys.get("retired"), keys.get("functions")
    ids = [item.integer() for item in keys.need("ids").items()]
    if len(ids) != 2:
        raise keys.fail("'ids' is not a range", "Write ids: [first, last]")
    entries = functions.mapping().all() if functions else ()
    library = Library(
        name=keys.need("library").text(),
        file=keys.where.file,
        header=header.text() if header else None,
        version=keys.need("version").integer(),
        ids=(ids[0], ids[1]),
        functions=tuple(load_function(name, item) for name, item in entries),
        retired=tuple(item.integer() for item in retired.items()) if retired else (),
    )
    keys.done()
    return library


def load_types(keys: Mapping) -> Types:
    where: dict[str, Where] = {}

    def words(name: str) -> dict[str, Value]:
        found = dict(keys.need(name).mapping().all())
        where.update({key: item.where for key, item in found.items()})
        return found

    def texts(name: str) -> dict[str, str]:
        return {key: item.text() for key, item in words(name).items()}

    scalars, handles, aliases = texts("scalars"), texts("handles"), texts("aliases")
    enums = {key: load_enum(key, item) for key, item in words("enums").items()}
    nesting = load_nesting(keys, scalars, enums, handles, aliases)
    keys.done()
    wires = {key: enum.wire for key, enum in enums.items()}
    return Types(scalars, wires, handles, aliases, where, nesting)


def load_device(keys: Mapping) -> tuple[Override, ...]:
    overrides = tuple(load_override(name, item) for name, item in keys.need("overrides").mapping().all())
    keys.done()
    return overrides


def load_override(name: str, value: Value) -> Override:
    keys = value.mapping()
    override = Override(name, keys.need("value").integer(), keys.need("why").text(), keys.where)
    keys.done()
    return override


# Far more than the spec has files: with one too few, each load pushes out what the next one asks for first.
@lru_cache(maxsize=512)
def once(load_file: Callable[[Mapping], T], shown: str, text: str) -> T:
    """What a file's text means: who loads the spec again reads again only what changed."""
    return load_file(parse(text, shown))


def load(specs: Path = SPECS) -> Spec:
    """The whole spec, checked as far as that is possible without cuda.h. Raises SpecError."""
    groups = [path for file in LIBRARIES for path in sorted((specs / file).with_suffix("").glob("*.yaml"))]
    files = [specs / file for file in (TYPES, DEVICE, OBJECTS, RESULTS, *LIBRARIES)] + groups
    return assembled(
        tuple((path.relative_to(specs).as_posix(), path.read_text(encoding="utf-8")) for path in files)
    )


# The spec as it is, and one or two that a test has changed.
@lru_cache(maxsize=3)
def assembled(texts: tuple[tuple[str, str], ...]) -> Spec:
    """The spec that these files (name and text) are."""
    by_name = dict(texts)

    def of(load_file: Callable[[Mapping], T], file: str) -> T:
        found: T = once(load_file, f"specs/{file}", by_name[file])
        return found

    def library(file: str) -> Library:
        folder = file.removesuffix(".yaml") + "/"
        groups = [of(load_group, name) for name in by_name if name.startswith(folder)]
        own = of(load_library, file)
        return replace(own, functions=(*own.functions, *chain.from_iterable(groups)))

    types = of(load_types, TYPES)
    overrides = of(load_device, DEVICE)
    objects = of(load_objects, OBJECTS)
    results = of(load_results, RESULTS)
    libraries = tuple(library(file) for file in LIBRARIES)
    by_symbol = {v.symbol: v for library in libraries for v in library.variants}
    spec = Spec(types, libraries, objects, overrides, results, by_symbol)
    validate(spec)
    return spec
