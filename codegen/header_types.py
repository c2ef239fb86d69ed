"""Compares types.yaml with the real cuda.h: names as parsed, sizes and places by asking the compiler."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pycparser import c_ast

from .header import HEADERS, Header, HeaderError, compiler, folders, problem, resolve, run
from .model import Spec, Where
from .nesting import Kind, Member, Nesting
from .scalars import WIRE_SIZES

# Enumerators that are no values: how many there are, and what is never right.
NO_VALUE = re.compile(r"_(MAX|INVALID|NUM_OPTIONS)$")


def declared(node: c_ast.Node) -> list[tuple[str | None, c_ast.Node]]:
    """Name (None: anonymous) and type of each member of a struct or union, as parsed."""
    return [(decl.name, decl.type) for decl in node.decls]


def named(names: list[str | None]) -> str:
    return ", ".join(name or "(anonymous)" for name in names)


def definition(node: c_ast.Node) -> c_ast.Node | None:
    """The struct or union that a member defines in place; None if it does not."""
    while isinstance(node, c_ast.ArrayDecl | c_ast.TypeDecl):
        node = node.type
    return node if isinstance(node, c_ast.Struct | c_ast.Union) and node.decls else None


def check_names(node: c_ast.Node, members: tuple[Member, ...], owner: str, where: Where) -> list[str]:
    """Messages about members that are missing, that cuda.h does not have, or that stand in another order."""
    theirs = declared(node)
    mine = [None if m.anonymous else m.name for m in members]
    there = [name for name, _ in theirs]
    if mine != there:
        for member, name in zip(members, mine, strict=True):
            if name not in there:
                cause = f"{owner} has no member {name or '(anonymous)'!r}"
                return [problem(member.where, cause, f"There it has {named(there)}")]
        lacking = [name for name in there if name not in mine]
        if lacking:
            cause = f"{owner}: member {named(lacking[:1])!r} is not listed"
            return [problem(where, cause, f"There it has {named(there)}")]
        return [
            problem(where, f"{owner}: the members stand in another order", f"There it has {named(there)}")
        ]
    problems = []
    for member, (_, ctype) in zip(members, theirs, strict=True):
        inner = definition(ctype)
        if (inner is None) == bool(member.members):
            cause = f"{owner}.{member.name}: " + (
                "a type with a name" if inner is None else "defined in place"
            )
            remedy = "Give its 'type'" if inner is None else "List its 'members'"
            problems.append(problem(member.where, cause, remedy))
        elif inner is not None:
            if isinstance(inner, c_ast.Union) != (member.kind is Kind.UNION) and not member.opaque:
                what = "a union" if isinstance(inner, c_ast.Union) else "a struct"
                cause = f"{owner}.{member.name} is {what}"
                problems.append(problem(member.where, cause, f"Write 'kind: {what[2:]}'"))
            problems += check_names(inner, member.members, f"{owner}.{member.name}", member.where)
    return problems


def composite(header: Header, name: str) -> c_ast.Node | None:
    """The definition behind a name of cuda.h, through its typedefs."""
    while name not in header.composites and name in header.typedefs:
        name = header.typedefs[name]
    return header.composites.get(name)


def check_composites(header: Header, nesting: Nesting) -> list[str]:
    problems = []
    for name, struct in nesting.structs.items():
        node = composite(header, name)
        if node is None:
            cause = f"{name} is no struct of cuda.h"
            problems.append(problem(struct.where, cause, "Spell it as cuda.h does"))
        else:
            problems += check_names(node, struct.members, name, struct.where)
    for name, union in nesting.unions.items():
        node = composite(header, name)
        if node is None:
            problems.append(problem(union.where, f"{name} is no union of cuda.h", "Spell it as cuda.h does"))
        else:
            problems += check_names(node, union.cases, name, union.where)
    return problems


def check_values(header: Header, nesting: Nesting) -> list[str]:
    """Messages about enumerators that do not exist, are of another enum, or are not listed where all must
    be.
    """
    problems = []

    def wrong(where: Where, cause: str, remedy: str) -> None:
        problems.append(problem(where, cause, remedy))

    def check_all(owner: str, where: Where, listed: tuple[str, ...]) -> None:
        for name, of in header.enumerators.items():
            if (
                resolve(header, of) == resolve(header, owner)
                and name not in listed
                and not NO_VALUE.search(name)
            ):
                wrong(where, f"{owner}: {name} is not listed", "Say what becomes of it")

    for enum in nesting.enums.values():
        listed = enum.allow + enum.refuse
        for name in listed:
            of = header.enumerators.get(name)
            if of is None or resolve(header, of) != resolve(header, enum.name):
                wrong(enum.where, f"{name} is no enumerator of {enum.name}", "Spell it as cuda.h does")
        if enum.refuse:
            check_all(enum.name, enum.where, listed)
    for options in nesting.options.values():
        for option in options.options:
            if header.enumerators.get(option.name) != options.name:
                wrong(
                    option.where,
                    f"{option.name} is no enumerator of {options.name}",
                    "Spell it as cuda.h does",
                )
        check_all(options.name, options.where, tuple(o.name for o in options.options))
    for member in every_member(nesting):
        for name in member.allow + member.refuse:
            if name not in header.enumerators and name not in header.macros:
                wrong(member.where, f"{name} is not in cuda.h", "Spell it as cuda.h does")
        if header.enumerators.get(member.otherwise) != "CUresult":
            wrong(member.where, f"{member.otherwise} is no CUresult", "Spell it as cuda.h does")
    return problems


def every_member(nesting: Nesting) -> Iterator[Member]:
    for struct in nesting.structs.values():
        yield from nesting.walk(struct.members)
    for union in nesting.unions.values():
        yield from nesting.walk(union.cases)


def assertion(where: Where, condition: str, text: str) -> list[str]:
    return [f'#line {where.line} "{where.file}"', f'_Static_assert({condition}, "{text}");']


def places(nesting: Nesting, owner: str, members: tuple[Member, ...], way: str, overlay: bool) -> list[str]:
    """C assertions that each member is where the codecs think, as large, and of the type that the table
    gives.
    """
    lines: list[str] = []
    base = f"offsetof({owner}, {way[:-1]})" if way else "0"
    for member, place in nesting.places(members, overlay):
        if member.anonymous:
            first = member.members[0].name
            at = f"offsetof({owner}, {way}{first})"
            lines += assertion(
                member.where, f"{at} == {base} + {place.offset}", f"{member.name} is not there"
            )
            for inner, inside in nesting.places(member.members, member.kind is Kind.UNION):
                lines += one(nesting, owner, inner, way, f"{base} + {place.offset + inside.offset}")
            continue
        lines += one(nesting, owner, member, way, f"{base} + {place.offset}")
    return lines


def one(nesting: Nesting, owner: str, member: Member, way: str, at: str) -> list[str]:
    name, value = f"{owner}.{way}{member.name}", f"(({owner} *)0)->{way}{member.name}"
    here = f"offsetof({owner}, {way}{member.name}) == {at}"
    lines = assertion(member.where, here, f"{name} is not at offset {at.removeprefix('0 + ')}")
    if member.members:
        return lines + places(
            nesting, owner, member.members, f"{way}{member.name}.", member.kind is Kind.UNION
        )
    size = nesting.size(member.ctype) * member.length
    lines += assertion(member.where, f"sizeof({value}) == {size}", f"{name} is not {size} bytes")
    ctype = f"{member.ctype}[{member.length}]" if member.length > 1 else member.ctype
    same = f"__builtin_types_compatible_p(__typeof__({value}), __typeof__({ctype}))"
    return lines + assertion(member.where, same, f"{name} is no {ctype}")


def layout_probe(spec: Spec) -> str:
    """C that compiles only if every C type is as wide on this machine as the wire has it."""
    types = spec.types
    nesting = types.nesting
    unsigned = "(__typeof__({0}))-1 > 0"
    asserts = []
    for name, wire in types.scalars.items():
        asserts.append((name, f"sizeof({name}) == {WIRE_SIZES[wire]}", f"{name} does not fit {wire}"))
        if wire[0] != "f":
            sign = unsigned.format(f"({name})0")
            asserts.append(
                (name, sign if wire[0] == "u" else f"!({sign})", f"{name} has not the sign of {wire}")
            )
    asserts += [
        (n, f"sizeof({n}) == {WIRE_SIZES[w]}", f"{n} does not fit {w}") for n, w in types.enums.items()
    ]
    asserts += [(n, f"sizeof({n}) == 8", f"{n} is no handle of 8 bytes") for n in types.handles]
    asserts += [
        (n, f"__builtin_types_compatible_p({n}, {to})", f"{n} is not the same as {to}")
        for n, to in types.aliases.items()
    ]
    lines = [*HEADERS.splitlines(), "#include <stddef.h>"]
    for name, condition, text in asserts:
        lines += assertion(types.where[name], condition, text)
    for name in nesting.opaque:
        lines += assertion(nesting.where[name], f"sizeof({name}) == 8", f"{name} is not as wide as a pointer")
    for name, struct in nesting.structs.items():
        size = nesting.size(name)
        lines += assertion(struct.where, f"sizeof({name}) == {size}", f"{name} is not {size} bytes")
        lines += places(nesting, name, struct.members, "", False)
    for name, union in nesting.unions.items():
        size = nesting.size(name)
        lines += assertion(union.where, f"sizeof({name}) == {size}", f"{name} is not {size} bytes")
        lines += places(nesting, name, union.cases, "", True)
    for variant in spec.driver.variants:
        if variant.stream and "." in variant.stream:
            name, member = variant.stream.split(".")
            ctype = next(p.pointee for p in variant.signature.params if p.name == name)
            condition = f"__builtin_types_compatible_p(__typeof__((({ctype} *)0)->{member}), CUstream)"
            lines += assertion(variant.where, condition, "no CUstream")
    return "\n".join(lines) + "\n"


def check_layouts(header: Header, spec: Spec) -> list[str]:
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "probe.c"
        source.write_text(layout_probe(spec), encoding="utf-8")
        command = [
            compiler(),
            "-fsyntax-only",
            "-std=gnu11",
            *folders(header.include),
            "-D__CUDA_API_VERSION_INTERNAL",
            str(source),
        ]
        done = run(command)
    found = re.findall(
        r"^(\S+?):(\d+):\d+: error: (?:static assertion failed: )?\"?(.*?)\"?$", done.stderr, re.M
    )
    if done.returncode and not found:
        cause = f"the layout probe does not compile: {done.stderr.strip()}"
        raise HeaderError(f"{cause}\n    Report this with the compiler's version")
    return [
        problem(Where(file, int(line)), cause, "Make the line say what cuda.h says")
        for file, line, cause in found
    ]


def check_types(header: Header, spec: Spec) -> list[str]:
    """Messages about everything in which types.yaml and the header differ; places are compared once the
    names agree.
    """
    nesting = spec.types.nesting
    names = check_composites(header, nesting)
    return check_values(header, nesting) + (names or check_layouts(header, spec))
