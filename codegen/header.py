"""Compares the spec with the real cuda.h: signatures and versions as parsed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from pycparser import CParser, c_ast, c_generator

from .kept import parsed_once
from .model import PER_THREAD_SUFFIX, Where
from .signature import spell

HEADERS = "".join(f"#include <cuda{name}Typedefs.h>\n" for name in ("", "Profiler", "GL", "EGL", "VDPAU"))
# What the toolkit ships without: cudaProfiler.h, and what its headers need of graphics libraries.
SHIPPED_APART = Path(__file__).resolve().parent.parent / "native" / "driver_interop"
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
    """What was read of cuda.h and cudaTypedefs.h."""

    include: Path
    version: int = 0
    functions: dict[str, Prototype] = field(default_factory=dict)
    twins: dict[str, list[str]] = field(default_factory=dict)  # per-thread ones, by the symbol without suffix
    enumerators: dict[str, str] = field(default_factory=dict)
    macros: set[str] = field(default_factory=set)
    typedefs: dict[str, str] = field(default_factory=dict)
    versions: dict[tuple[str, int, bool], tuple[str, ...]] = field(default_factory=dict)
    composites: dict[str, c_ast.Node] = field(default_factory=dict)


def find(include: Path | None) -> Path:
    """The folder of cuda.h: the one given, or that of the toolkit's wheel. Raises HeaderError."""
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
    """Run the compiler in English, because its messages are read. Returns what it printed."""
    environment = {**os.environ, "LC_ALL": "C"}
    return subprocess.run(
        command, input=text, capture_output=True, text=True, check=False, timeout=60, env=environment
    )


def folders(include: Path) -> list[str]:
    """The compiler's options that find cuda.h, and what the headers beside it ask for."""
    return [f"-isystem{include}", f"-idirafter{SHIPPED_APART}"]


def preprocess(include: Path, text: str, *options: str) -> str:
    command = [compiler(), "-E", "-xc", *folders(include), "-D__CUDA_API_VERSION_INTERNAL", *options, "-"]
    done = run(command, text)
    if done.returncode:
        raise HeaderError(
            f"cannot read {include}/cuda.h: {done.stderr.splitlines()[0]}\n"
            "    Is it a CUDA toolkit's include folder?"
        )
    return done.stdout


def find_header(name: str, include: Path | None) -> Path | None:
    """The folder of a header that not every developer has, beside cuda.h; None: it is not here."""
    folder = find(include)
    return folder if (folder / name).exists() else None


def type_text(node: c_ast.Node) -> str:
    """The C text of a type, without the name that it declares; an array parameter is a pointer."""
    shown = c_ast.PtrDecl([], node.type) if isinstance(node, c_ast.ArrayDecl) else node
    inner = shown
    while not isinstance(inner, c_ast.TypeDecl):
        inner = inner.type
    name, inner.declname = inner.declname, None
    text = c_generator.CGenerator().visit(c_ast.Typename(None, [], None, shown))
    inner.declname = name
    return spell(text)


def prototype(node: c_ast.FuncDecl) -> Prototype:
    params = [p for p in (node.args.params if node.args else []) if type_text(p.type) != "void"]
    return Prototype(
        type_text(node.type), tuple(type_text(p.type) for p in params), tuple(p.name for p in params)
    )


@cache
def read(include: Path) -> Header:
    """What cuda.h and the headers beside it declare. Parsing takes seconds: it is done once per text."""
    macros = preprocess(include, "#include <cuda.h>\n", "-dM")
    texts = [
        preprocess(include, HEADERS, "-P", *PLAIN_C, *twins)
        for twins in ([], ["-DCUDA_API_PER_THREAD_DEFAULT_STREAM"])
    ]
    return parsed_once(Path(__file__), [str(include), macros, *texts], lambda: parse(include, macros, texts))


def parse(include: Path, macros: str, texts: list[str]) -> Header:
    header = Header(include)
    header.macros = set(re.findall(r"^#define (CU(?:DA)?_\w+) ", macros, re.M))
    header.version = int(re.findall(r"^#define CUDA_VERSION (\d+)", macros, re.M)[0])
    for text in texts:
        for node in CParser().parse(text).ext:
            if (
                isinstance(node, c_ast.Decl)
                and isinstance(node.type, c_ast.FuncDecl)
                and node.name.startswith("cu")
            ):
                header.functions[node.name] = prototype(node.type)
            elif isinstance(node, c_ast.Typedef):
                note_typedef(header, node)
    for symbol in header.functions:
        if (base := PER_THREAD_SUFFIX.sub("", symbol)) != symbol:
            header.twins.setdefault(base, []).append(symbol)
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
    elif isinstance(inner, c_ast.Struct | c_ast.Union) and inner.decls:
        header.composites[node.name] = inner
    elif isinstance(inner, c_ast.IdentifierType):
        header.typedefs[node.name] = " ".join(inner.names)


def resolve(header: Header, ctype: str) -> str:
    """A type without its typedefs, so that two names of the same type compare equal."""

    def step(match: re.Match[str]) -> str:
        name = match[0]
        return resolve(header, header.typedefs[name]) if name in header.typedefs else name

    return re.sub(r"[A-Za-z_]\w*", step, ctype)


def problem(where: Where, cause: str, remedy: str) -> str:
    return f"{where}: {cause}\n    {remedy}"
