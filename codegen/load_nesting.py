"""From types.yaml to nesting.py: what a struct, a union or a list of options may say."""

from __future__ import annotations

from dataclasses import dataclass, replace

from . import expression
from .basics import Access, SpecError
from .document import Mapping, Value
from .nesting import (
    OUTSIDE,
    POINTER_SIZE,
    EnumType,
    Kind,
    Member,
    Nesting,
    Option,
    OptionKind,
    OptionList,
    Struct,
    Union,
)
from .scalars import WIRE_SIZES

# Keys of each kind of member, beside `kind`, `type`, `when` (in a union) and `length`.
KEYS = {
    Kind.SCALAR: {"min", "max"},
    Kind.ENUM: {"allow", "refuse"},
    Kind.FLAGS: {"allow", "refuse"},
    Kind.DEVICE: set(),
    Kind.POINTER: {"size", "access", "nullable"},
    Kind.HANDLE: {"of", "nullable"},
    Kind.STRING: {"max", "nullable"},
    Kind.HOST: {"size", "max", "nullable"},
    Kind.ARRAY: {"count", "max", "nullable"},
    Kind.PARAMS: {"function", "extra"},
    Kind.STRUCT: {"members", "anonymous"},
    Kind.UNION: {"members", "anonymous", "tag", "drop", "empty"},
    Kind.ZERO: {"otherwise"},
    Kind.IGNORED: {"members"},
    Kind.FUNCTION: set(),
    Kind.REFUSED: {"members"},
}
WITHOUT_LENGTH = OUTSIDE | {Kind.STRUCT, Kind.UNION, Kind.POINTER, Kind.FUNCTION, Kind.REFUSED}
NUMBERS = {Kind.SCALAR, Kind.ENUM, Kind.FLAGS}
BOUNDED = {Kind.STRING, Kind.HOST, Kind.ARRAY}


@dataclass(frozen=True)
class Known:
    """The types that have a line of their own, which a bare word in a struct may name."""

    scalars: dict[str, str]
    handles: dict[str, str]
    opaque: tuple[str, ...]
    enums: dict[str, EnumType]
    structs: tuple[str, ...]
    unions: tuple[str, ...]
    aliases: dict[str, str]

    def kind(self, ctype: str) -> Kind | None:
        """The kind that a member of this type has if nothing else is said."""
        name = self.aliases.get(ctype, ctype)
        if name in self.scalars:
            return Kind.SCALAR
        if name in self.enums:
            return Kind.ENUM if self.enums[name].allow else None
        if name in self.handles:
            return Kind.HANDLE
        return Kind.STRUCT if name in self.structs else None

    def has(self, ctype: str) -> bool:
        name = self.aliases.get(ctype, ctype)
        tables = (self.scalars, self.handles, self.opaque, self.enums, self.structs, self.unions)
        return ctype.endswith("*") or any(name in table for table in tables)


class Reader:
    """Reads the members of structs and unions."""

    def __init__(self, known: Known) -> None:
        self.known = known

    def members(self, value: Value, union: bool) -> tuple[Member, ...]:
        found = tuple(self.member(name, item, union) for name, item in value.mapping().all())
        if not found:
            raise value.fail("no members", "List every member that cuda.h has, in its order")
        return found

    def member(self, name: str, value: Value, union: bool) -> Member:
        if value.is_word:
            ctype = value.text()
            kind = self.known.kind(ctype)
            if kind is None:
                raise self.unsaid(value, name, ctype)
            if union:
                raise value.fail(f"case {name!r} does not say when it holds", "Add 'when: [ENUMERATORS]'")
            return self.complete(Member(name, kind, ctype, value.where), value)
        keys = value.mapping()
        when = keys.need("when").texts() if union else ()
        ctype_value, kind_value = keys.get("type"), keys.get("kind")
        ctype = ctype_value.text() if ctype_value else ""
        kind = kind_value.choice(Kind) if kind_value else self.known.kind(ctype)
        if kind is None:
            raise self.unsaid(value, name, ctype)
        member = Member(name, kind, ctype, keys.where, when=when)
        return self.complete(self.keys_of(member, keys), value)

    def unsaid(self, value: Value, name: str, ctype: str) -> SpecError:
        if ctype and not self.known.has(ctype):
            return value.fail(f"unknown type {ctype!r}", "Add it to specs/cuda/types.yaml")
        return value.fail(f"what member {name!r} means is not said", "Add 'kind: …' (specs/README.md)")

    def keys_of(self, member: Member, keys: Mapping) -> Member:
        take = keys.get
        length, allow, refuse = take("length"), take("allow"), take("refuse")
        low, high, size, access = take("min"), take("max"), take("size"), take("access")
        nullable, count, otherwise = take("nullable"), take("count"), take("otherwise")
        anonymous, members, tag, drop = take("anonymous"), take("members"), take("tag"), take("drop")
        of, empty, function, extra = take("of"), take("empty"), take("function"), take("extra")
        keys.done()
        common = {"kind", "type", "when"} | (set() if member.kind in WITHOUT_LENGTH else {"length"})
        misplaced = set(keys.keys) - common - KEYS[member.kind]
        if misplaced:
            key = sorted(misplaced)[0]
            taken = ", ".join(sorted(KEYS[member.kind] | common - {"kind", "type", "when"})) or "no other key"
            remedy = f"Remove it, or choose a kind that has it; {member.kind.value!r} takes {taken}"
            raise keys.keys[key].fail(
                f"{key!r} says nothing of a member of kind {member.kind.value!r}", remedy
            )
        return replace(
            member,
            length=length.integer() if length else 1,
            allow=allow.texts() if allow else (),
            refuse=refuse.texts() if refuse else (),
            min=low.integer() if low else None,
            max=high.integer() if high else None,
            size=size.text() if size else None,
            access=access.choice(Access) if access else None,
            nullable=nullable.flag() if nullable else False,
            count=count.text() if count else None,
            otherwise=otherwise.text() if otherwise else member.otherwise,
            anonymous=anonymous.flag() if anonymous else False,
            members=self.members(members, member.kind is Kind.UNION) if members else (),
            tag=tag.text() if tag else "",
            drop=drop.texts() if drop else (),
            of=of.texts() if of else (),
            empty=empty.texts() if empty else (),
            function=function.texts() if function else (),
            extra=extra.text() if extra else "",
        )

    def complete(self, member: Member, value: Value) -> Member:
        """The member with what its type says of it; refuses what does not fit together."""

        def fail(cause: str, remedy: str) -> SpecError:
            return value.fail(f"member {member.name!r}: {cause}", remedy)

        known, ctype, kind = self.known, member.ctype, member.kind
        name = known.aliases.get(ctype, ctype)
        in_place = bool(member.members)
        if in_place == bool(ctype):
            raise fail("a type of its own, or one by name?", "Give one of 'members' and 'type'")
        if not in_place and not known.has(ctype):
            raise fail(f"unknown type {ctype!r}", "Add it to specs/cuda/types.yaml")
        fits = {
            Kind.SCALAR: name in known.scalars,
            Kind.ENUM: name in known.enums,
            Kind.FLAGS: name in known.scalars or name in known.enums,
            Kind.DEVICE: known.scalars.get(name) == "i32",
            Kind.POINTER: ctype.endswith("*") or known.scalars.get(name) == "u64",
            Kind.HANDLE: name in known.handles,
            Kind.STRING: ctype in ("const char *", "char *"),
            Kind.HOST: ctype.endswith("*"),
            Kind.ARRAY: ctype.endswith("*") and known.has(member.element),
            Kind.STRUCT: in_place or name in known.structs,
            Kind.UNION: in_place or name in known.unions,
            Kind.FUNCTION: name in known.opaque,
        }
        if not fits.get(kind, True):
            raise fail(f"{kind.value!r} of type {ctype!r}", "Choose another kind (specs/README.md)")
        if kind in BOUNDED and member.max is None:
            raise fail("there is no limit to it", "Add 'max: …'")
        if kind is Kind.HOST and member.size is None:
            raise fail("how many bytes it has is not said", "Add 'size: …'")
        if kind is Kind.UNION and not member.tag:
            raise fail("which case holds is not said", "Add 'tag: MEMBER'")
        if member.anonymous and not in_place:
            raise fail("anonymous, but of a type with a name", "Remove 'anonymous'")
        if kind is Kind.PARAMS and not (member.function and member.extra):
            raise fail("whose parameters, and where else they may be, is not said", "Add 'function', 'extra'")
        if member.length < 1:
            raise fail(f"an array of {member.length}", "Say how many there are, at least 1")
        if kind is Kind.ENUM and not member.allow and name in known.enums:
            member = replace(member, allow=known.enums[name].allow, refuse=known.enums[name].refuse)
        if kind is Kind.ENUM and not member.allow:
            raise fail("which values are carried is not said", "Add 'allow: [ENUMERATORS]'")
        if kind is Kind.HANDLE and not member.of:
            member = replace(member, of=(known.handles[name],))
        return member


def fault(member: Member, cause: str, remedy: str) -> SpecError:
    return SpecError(member.where, f"member {member.name!r}: {cause}", remedy)


def check_expressions(member: Member, siblings: tuple[Member, ...]) -> None:
    """Raise SpecError unless sizes and counts are made of numbers that stand beside the pointer."""
    numbers = {m.name for m in siblings if m.kind in NUMBERS and m.length == 1}
    for what, text in (("size", member.size), ("count", member.count)):
        if text is None:
            continue
        try:
            used = expression.names(text)
        except expression.ExpressionError as error:
            raise fault(member, str(error), "Sizes are numbers, members, + - * and parentheses") from None
        if used - numbers:
            cause = f"{what} uses {sorted(used - numbers)[0]!r}, which is no number beside it"
            raise fault(member, cause, f"Known: {', '.join(sorted(numbers)) or 'none'}")


def check_union(nesting: Nesting, member: Member, siblings: tuple[Member, ...]) -> None:
    """Raise SpecError unless every value of the tag selects one case, and no case waits for a value that
    the tag never has.
    """
    tag = next((m for m in siblings if m.name == member.tag and m.kind is Kind.ENUM), None)
    if tag is None:
        known = ", ".join(m.name for m in siblings if m.kind is Kind.ENUM) or "none"
        raise fault(member, f"{member.tag!r} is no enum beside it", f"Known: {known}")
    seen: dict[str, str] = {}
    for case in nesting.cases(member):
        values = tag.refuse if case.kind is Kind.REFUSED else tag.allow
        for name in case.when:
            if name not in values:
                which = "refuse" if case.kind is Kind.REFUSED else "allow"
                cause = f"{name} is not what {tag.name!r} {which}s"
                raise fault(case, cause, f"Known: {', '.join(values) or 'none'}")
            if name in seen:
                raise fault(case, f"{name} selects {seen[name]!r} already", "Each value selects one case")
            seen[name] = case.name
    drops = nesting.drops(member)
    for name in drops:
        if name not in tag.allow:
            raise fault(member, f"{name} is dropped, but not allowed by {tag.name!r}", "Allow it there")
    for name in member.empty:
        if name not in tag.allow or name in seen:
            raise fault(member, f"{name} leaves it empty, and is not allowed or selects a case", "Choose one")
    missing = [name for name in tag.allow if name not in (*seen, *drops, *member.empty)]
    if missing:
        raise fault(
            member, f"{missing[0]} selects no case", "Add it to the 'when' of one, to 'empty' or to 'drop'"
        )


def check_members(nesting: Nesting, members: tuple[Member, ...]) -> None:
    for member in members:
        check_expressions(member, members)
        if member.kind is Kind.UNION:
            check_union(nesting, member, members)
        if member.members:
            check_members(nesting, member.members)


def check_finite(nesting: Nesting, name: str, path: tuple[str, ...]) -> None:
    if name in path:
        way = " in ".join(reversed((*path[path.index(name) :], name)))
        raise SpecError(nesting.structs[name].where, f"{way}: without end", "Nesting is finite")
    for inner in nesting.behind(name):
        check_finite(nesting, inner, (*path, name))


def load_enum(name: str, value: Value) -> EnumType:
    """An enum's entry: its wire type, or `{wire: …, allow: […], refuse: […]}`."""
    if value.is_word:
        return EnumType(name, value.text(), value.where)
    keys = value.mapping()
    allow, refuse = keys.get("allow"), keys.get("refuse")
    found = EnumType(
        name,
        keys.need("wire").text(),
        keys.where,
        allow.texts() if allow else (),
        refuse.texts() if refuse else (),
    )
    keys.done()
    return found


def load_union(reader: Reader, name: str, value: Value) -> Union:
    keys = value.mapping()
    drop = keys.get("drop")
    found = Union(name, reader.members(keys.need("cases"), True), keys.where, drop.texts() if drop else ())
    keys.done()
    return found


def load_option(name: str, value: Value) -> Option:
    if value.is_word:
        return Option(name, value.choice(OptionKind), value.where)
    keys = value.mapping()
    found = Option(name, keys.need("kind").choice(OptionKind), keys.where, keys.need("max").integer())
    keys.done()
    if found.kind is not OptionKind.VALUE:
        raise keys.fail(f"{name}: only a value has 'max'", "Remove 'max'")
    return found


def load_options(name: str, value: Value) -> OptionList:
    keys = value.mapping()
    options = tuple(load_option(key, item) for key, item in keys.need("options").mapping().all())
    found = OptionList(name, options, keys.need("max").integer(), keys.where)
    keys.done()
    return found


def load_nesting(
    keys: Mapping,
    scalars: dict[str, str],
    enums: dict[str, EnumType],
    handles: dict[str, str],
    aliases: dict[str, str],
) -> Nesting:
    """What types.yaml says under `opaque`, `structs`, `unions` and `options`."""
    opaque_value, used = keys.need("opaque"), keys.need("used")
    opaque = opaque_value.texts()
    structs = dict(keys.need("structs").mapping().all())
    unions = dict(keys.need("unions").mapping().all())
    options = dict(keys.need("options").mapping().all())
    known = Known(scalars, handles, opaque, enums, tuple(structs), tuple(unions), aliases)
    reader = Reader(known)
    sizes = {name: WIRE_SIZES[wire] for name, wire in scalars.items()}
    sizes |= {name: WIRE_SIZES[enum.wire] for name, enum in enums.items()}
    sizes |= dict.fromkeys((*handles, *opaque), POINTER_SIZE)
    nesting = Nesting(
        sizes,
        enums,
        {name: Struct(name, reader.members(item, False), item.where) for name, item in structs.items()},
        {name: load_union(reader, name, item) for name, item in unions.items()},
        {name: load_options(name, item) for name, item in options.items()},
        aliases,
        opaque,
        used.texts(),
        dict.fromkeys(opaque, opaque_value.where),
    )
    for name in nesting.used:
        if name not in structs and name not in options:
            raise used.unknown("type", name, [*structs, *options])
    for name, struct in nesting.structs.items():
        check_finite(nesting, name, ())
        check_members(nesting, struct.members)
    return nesting
