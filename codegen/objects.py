"""`specs/cuda/objects.yaml`: the kinds of objects that handles name, and what is true of each."""

from __future__ import annotations

from .document import Mapping, Value
from .model import (
    SESSION,
    Assignment,
    Attribute,
    ObjectField,
    ObjectKind,
    Objects,
    Rebuilt,
    ServerObject,
    ServerSide,
    SpecError,
)


def load_field(name: str, value: Value) -> ObjectField:
    keys = value.mapping()
    count, counter, absent = keys.get("count"), keys.get("counter"), keys.get("absent")
    initial = keys.get("initial")
    found = ObjectField(
        name=name,
        ctype=keys.need("type").text(),
        where=keys.where,
        count=count.word() if count else None,
        counter=counter.integer() if counter else None,
        absent=absent.word() if absent else None,
        initial=initial.word() if initial else None,
    )
    keys.done()
    return found


def load_attributes(value: Value) -> tuple[Attribute, ...]:
    return tuple(load_attribute(name, item) for name, item in value.mapping().all())


def load_attribute(name: str, value: Value) -> Attribute:
    keys = value.mapping()
    changed, condition = keys.get("set"), keys.get("if")
    found = Attribute(
        name=name,
        ctype=keys.need("type").text(),
        get=keys.need("get").word(),
        where=keys.where,
        set=tuple(Assignment(f, v.word(), v.where) for f, v in changed.mapping().all()) if changed else (),
        condition=condition.word() if condition else None,
    )
    keys.done()
    return found


def load_server(name: str, value: Value | None, ends: bool) -> ServerObject:
    """What `server` says of a kind: a word, or what is written by hand in apiserver/core."""
    if value is None or (value.is_word and value.choice(ServerSide) is ServerSide.GENERATED):
        made = [f"find_{name}", f"adopt_{name}", f"drop_{name}"] + [f"retire_{name}"] * ends
        camel = "".join(map(str.capitalize, name.split("_")))
        return ServerObject(ServerSide.GENERATED, camel, "cu", tuple(made))
    if value.is_word:
        if value.choice(ServerSide) is ServerSide.CUSTOM:
            raise value.fail(
                "'custom' alone", "Write server: {struct: NAME, driver: MEMBER, functions: [...]}"
            )
        return ServerObject(ServerSide.NONE)
    own = value.mapping()
    struct, driver, functions = own.need("struct"), own.need("driver"), own.need("functions")
    own.done()
    return ServerObject(ServerSide.CUSTOM, struct.text(), driver.text(), functions.texts())


def load_kind(name: str, value: Value) -> ObjectKind:
    keys = value.mapping()
    destroy, fields, guest = keys.get("destroy"), keys.get("fields"), keys.get("guest")
    server = load_server(name, keys.get("server"), destroy is not None)
    attributes = keys.get("attributes")
    struct = header = None
    custom = {"look_up": False, "ended": False, "settle": False}
    if guest is not None:
        own = guest.mapping()
        struct, header = own.get("struct"), own.get("header")
        for key in custom:
            given = own.get(key)
            if given is not None and given.text() != "custom":
                raise given.fail(f"{key!r} is {given.text()!r}", "Write 'custom', or leave it out")
            custom[key] = given is not None
        if (struct is None) != (header is None):
            raise own.fail("'struct' and 'header' go together", "Give both or neither")
        own.done()
    found = ObjectKind(
        name=name,
        id=keys.need("id").integer(),
        ctype=keys.need("type").text(),
        owners=keys.need("owner").texts(),
        destroy=destroy.text() if destroy else None,
        error=keys.need("error").text(),
        rebuilt=keys.need("rebuilt").choice(Rebuilt),
        server=server,
        where=keys.where,
        fields=tuple(load_field(f, item) for f, item in fields.mapping().all()) if fields else (),
        attributes=load_attributes(attributes) if attributes else (),
        struct=struct.text() if struct else None,
        header=header.text() if header else None,
        look_up=custom["look_up"],
        ended=custom["ended"],
        settle=custom["settle"],
    )
    keys.done()
    return found


def check(kinds: dict[str, ObjectKind]) -> None:
    """Raise SpecError unless ids are unique, and owners exist and lead to the session."""
    ids: dict[int, ObjectKind] = {}
    for kind in kinds.values():
        if kind.id in ids:
            cause = f"{kind.name}: id {kind.id} is taken by {ids[kind.id].name}"
            raise SpecError(
                kind.where, cause, f"Use {max(k.id for k in kinds.values()) + 1}; ids are never reused"
            )
        ids[kind.id] = kind
        for owner in kind.owners:
            if owner != SESSION and owner not in kinds:
                known = ", ".join([SESSION, *kinds])
                raise SpecError(kind.where, f"{kind.name}: unknown owner {owner!r}", f"Known: {known}")
    for kind in kinds.values():
        above: set[str] = set()
        level = set(kind.owners) - {SESSION}
        while level:
            above |= level
            level = {name for owner in level for name in kinds[owner].owners} - above - {SESSION}
        if kind.name in above:
            raise SpecError(kind.where, f"{kind.name}: it owns itself", "Owners lead to the session")


def load_objects(keys: Mapping) -> Objects:
    """The kinds in `objects.yaml`. Raises SpecError with file and line."""
    found = [load_kind(name, item) for name, item in keys.need("objects").mapping().all()]
    keys.done()
    kinds = {kind.name: kind for kind in sorted(found, key=lambda kind: kind.id)}
    check(kinds)
    return Objects(kinds)
