"""Compares the spec with the real cuda.h: signatures and versions as parsed, sizes by asking the compiler."""

from __future__ import annotations

import copy
import os
import re
import shutil
import subprocess
import sysconfig
import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from pycparser import CParser, c_ast, c_generator

from .model import PER_THREAD_SUFFIX, Kind, Spec, Variant, Where
from .signature import spell
from .wire import WIRE_SIZES

# GNU words of the C library's headers that pycparser does not read.
PLAIN_C = ["-D__attribute__(x)=", "-D__extension__=", "-D__inline=", "-D__restrict=", "-D__asm__(x)="]


class HeaderError(Exception):
    """There is no header to compare with, or no compiler to read it."""


@dataclass(frozen=True)
class Prototype:
    returns: str
    types: tuple[str, ...]
    names: tuple[str, ...]


@dataclass
class Header:
    """What is read of cuda.h and cudaTypedefs.h."""

    include: Path
    version: int = 0
    functions: dict[str, Prototype] = field(default_factory=dict)
    enumerators: dict[str, str] = field(default_factory=dict)
    macros: set[str] = field(default_factory=set)
    typedefs: dict[str, str] = field(default_factory=dict)
    versions: dict[tuple[str, int, bool], tuple[str, ...]] = field(default_factory=dict)


def find(include: Path | None) -> Path:
    """The folder of cuda.h: the one given, or the toolkit wheel's."""
    roots = [Path(sysconfig.get_paths()[key]) for key in ("platlib", "purelib")]
    candidates = [include] if include else [root / "nvidia" / "cu13" / "include" for root in roots]
    for folder in candidates:
        if (folder / "cuda.h").exists():
            return folder
    looked = ", ".join(map(str, candidates))
    raise HeaderError(
        f"no cuda.h in {looked}\n    Install nvidia-cuda-runtime, or give --cuda-include FOLDER"
    )


def compiler() -> str:
    found = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if found is None:
        raise HeaderError("no C compiler\n    Install one that is called cc, gcc or clang")
    return found


def run(command: list[str], text: str = "") -> subprocess.CompletedProcess[str]:
    """The compiler, speaking English: its messages are read."""
    environment = {**os.environ, "LC_ALL": "C"}
    return subprocess.run(
        command, input=text, capture_output=True, text=True, check=False, timeout=60, env=environment
    )


def preprocess(include: Path, text: str, *options: str) -> str:
    command = [compiler(), "-E", "-xc", f"-I{include}", "-D__CUDA_API_VERSION_INTERNAL", *options, "-"]
    done = run(command, text)
    if done.returncode:
        raise HeaderError(
            f"cannot read {include}/cuda.h: {done.stderr.splitlines()[0]}\n"
            "    Is it a CUDA toolkit's include folder?"
        )
    return done.stdout


def type_text(node: c_ast.Node) -> str:
    """The C text of a type, without the name that it declares; an array parameter is a pointer."""
    bare = copy.deepcopy(node)
    if isinstance(bare, c_ast.ArrayDecl):
        bare = c_ast.PtrDecl([], bare.type)
    inner = bare
    while not isinstance(inner, c_ast.TypeDecl):
        inner = inner.type
    inner.declname = None
    return spell(c_generator.CGenerator().visit(c_ast.Typename(None, [], None, bare)))


def prototype(node: c_ast.FuncDecl) -> Prototype:
    params = [p for p in (node.args.params if node.args else []) if type_text(p.type) != "void"]
    return Prototype(
        type_text(node.type), tuple(type_text(p.type) for p in params), tuple(p.name for p in params)
    )


@cache
def read(include: Path) -> Header:
    header = Header(include)
    macros = preprocess(include, "#include <cuda.h>\n", "-dM")
    header.macros = set(re.findall(r"^#define (CU_\w+) ", macros, re.M))
    header.version = int(re.findall(r"^#define CUDA_VERSION (\d+)", macros, re.M)[0])
    for twins in ([], ["-DCUDA_API_PER_THREAD_DEFAULT_STREAM"]):
        text = preprocess(include, "#include <cudaTypedefs.h>\n", "-P", *PLAIN_C, *twins)
        for node in CParser().parse(text).ext:
            if (
                isinstance(node, c_ast.Decl)
                and isinstance(node.type, c_ast.FuncDecl)
                and node.name.startswith("cu")
            ):
                header.functions[node.name] = prototype(node.type)
            elif isinstance(node, c_ast.Typedef):
                note_typedef(header, node)
    return header


def note_typedef(header: Header, node: c_ast.Typedef) -> None:
    pointer = re.match(r"PFN_(\w+?)_v(\d+)(_pt[sd][sz])?$", node.name)
    if pointer and isinstance(node.type, c_ast.PtrDecl) and isinstance(node.type.type, c_ast.FuncDecl):
        key = (pointer[1], int(pointer[2]), pointer[3] is not None)
        header.versions[key] = prototype(node.type.type).types
        return
    if not isinstance(node.type, c_ast.TypeDecl):
        return
    inner = node.type.type
    if isinstance(inner, c_ast.Enum) and inner.values:
        for enumerator in inner.values.enumerators:
            header.enumerators[enumerator.name] = node.name
    elif isinstance(inner, c_ast.IdentifierType):
        header.typedefs[node.name] = " ".join(inner.names)


def resolve(header: Header, ctype: str) -> str:
    """A type without its typedefs, so that two names of the same type compare equal."""

    def step(match: re.Match[str]) -> str:
        name = match[0]
        return resolve(header, header.typedefs[name]) if name in header.typedefs else name

    return re.sub(r"[A-Za-z_]\w*", step, ctype)


def plain(header: Header, types: tuple[str, ...]) -> list[str]:
    """Types to compare those of cudaTypedefs.h with, which differ from cuda.h's in top-level const only."""
    return [re.sub(r"^const (?!.*\*)", "", resolve(header, t)) for t in types]


def problem(where: Where, cause: str, remedy: str) -> str:
    return f"{where}: {cause}\n    {remedy}"


def check_function(header: Header, variant: Variant) -> list[str]:
    found = header.functions.get(variant.symbol)
    if found is None:
        return [
            problem(
                variant.where,
                f"{variant.symbol} is not declared in cuda.h",
                "Remove the entry and add its id to 'retired'",
            )
        ]
    problems = []
    signature = variant.signature
    mine = Prototype(
        signature.returns,
        tuple(spell(p.ctype) for p in signature.params),
        tuple(p.name for p in signature.params),
    )
    if mine != found:
        theirs = ", ".join(f"{t} {n}" for t, n in zip(found.types, found.names, strict=True)) or "void"
        cause = f"{variant.symbol}: the signature is not cuda.h's"
        problems.append(
            problem(variant.where, cause, f"There it is {found.returns} {variant.symbol}({theirs})")
        )
    released = header.versions.get((variant.base, variant.since, False))
    if released is None or plain(header, released) != plain(header, found.types):
        known = sorted(v for base, v, twin in header.versions if base == variant.base and not twin)
        cause = f"{variant.symbol}: cudaTypedefs.h has no such interface since {variant.since}"
        problems.append(problem(variant.where, cause, f"Versions of {variant.base} there: {known}"))
    return problems + check_twin(header, variant, found)


def check_twin(header: Header, variant: Variant, found: Prototype) -> list[str]:
    declared = [
        s for s in header.functions if PER_THREAD_SUFFIX.sub("", s) == variant.symbol and s != variant.symbol
    ]
    twin = variant.per_thread
    if ([twin.symbol] if twin else []) != declared:
        return [
            problem(
                variant.where,
                f"{variant.symbol}: its per-thread twins in cuda.h are {declared}",
                "Make 'per_thread' say so",
            )
        ]
    if twin is None:
        return []
    problems = []
    if header.functions[twin.symbol].types != found.types:
        problems.append(
            problem(
                variant.where, f"{twin.symbol} differs from {variant.symbol}", "A twin has the same signature"
            )
        )
    if (variant.base, twin.since, True) not in header.versions:
        known = sorted(v for base, v, per_thread in header.versions if base == variant.base and per_thread)
        problems.append(
            problem(variant.where, f"{twin.symbol} is not since {twin.since}", f"Versions there: {known}")
        )
    return problems


def check_enumerators(header: Header, spec: Spec) -> list[str]:
    problems = []
    for variant in spec.driver.variants:
        for arg in variant.args:
            for name in arg.allow:
                owner = header.enumerators.get(name)
                wanted = resolve(header, arg.param.ctype) if arg.kind is Kind.ENUM else None
                if arg.kind is Kind.FLAGS and name in header.macros:
                    continue
                if owner is None or wanted not in (None, resolve(header, owner)):
                    cause = f"{variant.symbol}({arg.name}): {name} is no enumerator of {wanted or 'cuda.h'}"
                    problems.append(problem(arg.where, cause, "Spell it as cuda.h does"))
    for override in spec.overrides:
        if header.enumerators.get(override.attribute) != "CUdevice_attribute":
            cause = f"{override.attribute} is no CUdevice_attribute"
            problems.append(problem(override.where, cause, "Spell it as cuda.h does"))
    return problems


def layout_probe(spec: Spec) -> str:
    """C that compiles only if every C type is as wide on this machine as the wire has it."""
    types = spec.types
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
    lines = ["#include <cuda.h>"]
    for name, condition, text in asserts:
        lines += [
            f'#line {types.where[name].line} "{types.where[name].file}"',
            f'_Static_assert({condition}, "{text}");',
        ]
    for variant in spec.driver.variants:
        if variant.stream and "." in variant.stream:
            name, member = variant.stream.split(".")
            ctype = next(p.pointee for p in variant.signature.params if p.name == name)
            condition = f"__builtin_types_compatible_p(__typeof__((({ctype} *)0)->{member}), CUstream)"
            lines += [
                f'#line {variant.where.line} "{variant.where.file}"',
                f'_Static_assert({condition}, "no CUstream");',
            ]
    return "\n".join(lines) + "\n"


def check_layouts(header: Header, spec: Spec) -> list[str]:
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "probe.c"
        source.write_text(layout_probe(spec), encoding="utf-8")
        command = [
            compiler(),
            "-fsyntax-only",
            "-std=gnu11",
            f"-I{header.include}",
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


def check(spec: Spec, include: Path) -> list[str]:
    """Everything in which the spec and the header differ."""
    header = read(include)
    problems = []
    if header.version != spec.driver.version:
        cause = f"the spec is of cuda.h {spec.driver.version}, {include}/cuda.h is {header.version}"
        problems.append(
            problem(Where(spec.driver.file, 1), cause, "Bring the functions up to date, then 'version'")
        )
    known = {v.symbol for v in spec.driver.variants}
    for symbol in header.functions:
        if symbol not in known and PER_THREAD_SUFFIX.sub("", symbol) not in known:
            cause = f"cuda.h declares {symbol}, which is not listed"
            problems.append(
                problem(
                    Where(spec.driver.file, 1), cause, "Add it, unsupported, with the id of 'codegen next-id'"
                )
            )
    for variant in spec.driver.variants:
        problems += check_function(header, variant)
    return problems + check_enumerators(header, spec) + check_layouts(header, spec)
