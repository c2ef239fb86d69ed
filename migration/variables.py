"""The module variables of an image by name, read from the image: nothing else knows them."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from . import images
from .errors import Refused

VARIABLES = (".nv.global", ".nv.constant")  # sections
PARAMETERS = ".nv.constant0."  # a section for each kernel
INTERNAL = "$__internal_"  # in the names of functions that the compiler brings, for example to divide
MOST_SECTIONS = 1 << 16
# What a kernel calls to get memory that nobody can enumerate.
HEAP = {"malloc", "free", "__cuda_syscall_aligned_malloc"}

# Each of these takes a time that grows with the text and not with its square, whatever the text: what is
# begun is matched to the end of its piece, and no two parts of an expression can match the same blanks.
_SKIPPED = re.compile(r'"[^"\n]*"?|//[^\n]*|/\*')
_DECLARED = re.compile(r"\.ptr\s+\.(?:global|const)(?=\s)|(?<![\w$.])\.(extern|global|const)(?=\s)")
_ATTRIBUTE = re.compile(r"\.attribute\s*\([^)]*\)?|\.align\s+\d+|\.\w+")
_NAME = re.compile(r"[A-Za-z_$%][\w$]*")
_OPAQUE = re.compile(r"\.(?:texref|surfref|samplerref)\b")
_INDIRECT = re.compile(r"\.call(?:prototype|targets)\b")  # without which a text calls nothing by its address
_WORD = re.compile(r"\w+")
_LINKAGE = {".visible", ".weak", ".common"}


@dataclass
class Variables:
    """What the PTX texts and ELF files of one image say of its module variables."""

    names: set[str] = field(default_factory=set)
    heap: bool = False  # its kernels allocate memory
    indirect: bool = False  # its kernels may call functions by their addresses


def find(image: bytes) -> Variables:
    """All variables of an image, from its PTX texts and its ELF files."""
    found = Variables()
    for part in images.parts(image):
        if part.startswith(images.ELF):
            _of_elf(part, found)
        else:
            _of_text(part, found)
    return found


def _of_text(text: bytes, found: Variables) -> None:
    for statement in _bare(text.split(b"\0", 1)[0].decode("utf-8", "replace")).split(";"):
        declaration = _declared(statement)
        if declaration is not None and not _OPAQUE.search(declaration):
            found.names.update(_names(declaration))
        if _declared_function(statement) in HEAP:
            found.heap = True
        if _INDIRECT.search(statement):
            found.indirect = True


def _bare(text: str) -> str:
    """Without comments, and without what stands in quotes."""
    kept, at = [], 0
    while (skipped := _SKIPPED.search(text, at)) is not None:
        kept.append(text[at : skipped.start()])
        kept.append(" ")
        at = skipped.end()
        if skipped[0] == "/*":
            end = text.find("*/", at)
            at = len(text) if end < 0 else end + 2
    kept.append(text[at:])
    return "".join(kept)


def _declared(statement: str) -> str | None:
    """What follows the space of a variable that the statement declares and that is not somewhere else."""
    elsewhere = -1
    for found in _DECLARED.finditer(statement):
        if found[1] == "extern":
            elsewhere = found.end()
        elif found[1] is not None:
            external = elsewhere >= 0 and set(statement[elsewhere : found.start()].split()) <= _LINKAGE
            return None if external else statement[found.end() :]
    return None


def _declared_function(statement: str) -> str | None:
    """The name of a function that the statement declares to be elsewhere."""
    at = statement.rfind(".extern")
    if at < 0 or "{" in (tail := statement[at:]) or tail.split(None, 2)[1:2] != [".func"]:
        return None
    head = tail.rstrip().removesuffix(".noreturn").rstrip()
    if head.endswith(")"):
        head = head[: head.rfind("(")]
    words = head.split()
    names = _WORD.findall(words[-1]) if words else []
    return names[-1] if names else None


def _names(declaration: str) -> Iterator[str]:
    bare = _ATTRIBUTE.sub(" ", _without_initial_values(declaration))
    for declarator in bare.split(","):
        if name := _NAME.search(declarator):
            yield name[0]


def _without_initial_values(declaration: str) -> str:
    """Nested braces and all; an array may be large, so no expression that looks back."""
    kept, depth, skipping = [], 0, False
    for piece in re.split(r"([{}=,])", declaration):
        if piece == "{":
            depth += 1
        elif piece == "}":
            depth -= 1
        elif depth == 0 and piece == "=":
            skipping = True
        elif depth == 0 and piece == ",":
            skipping = False
            kept.append(piece)
        elif depth == 0 and not skipping:
            kept.append(piece)
    return "".join(kept)


def _of_elf(part: bytes, found: Variables) -> None:
    try:
        file = ELFFile(io.BytesIO(part))
        if file["e_shnum"] > MOST_SECTIONS:
            raise ELFError(f"it has {file['e_shnum']} sections")
        left = len(part) + MOST_SECTIONS
        entries = set[str]()
        for section in file.iter_sections():
            if section.name.startswith(PARAMETERS):
                entries.add(section.name.removeprefix(PARAMETERS))
        for section in file.iter_sections():
            if isinstance(section, SymbolTableSection):
                left -= section.num_symbols() * section["sh_entsize"]
                if left < 0:
                    raise ELFError("its symbols are more than it can hold")
                _of_symbols(file, section, entries, found)
    except (ELFError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise Refused(f"the variables of its code cannot be listed: an ELF file ({error})") from None


def _of_symbols(file: ELFFile, table: SymbolTableSection, entries: set[str], found: Variables) -> None:
    for symbol in table.iter_symbols():
        where = symbol["st_shndx"]
        if where == "SHN_UNDEF":
            found.heap = found.heap or symbol.name in HEAP
        elif symbol["st_info"]["type"] == "STT_OBJECT" and _holds_variables(file, where):
            found.names.add(symbol.name)
        elif symbol["st_info"]["type"] == "STT_FUNC" and symbol.name not in entries:
            # Nothing in the file tells whether its address is taken. Of the compiler's own it never is.
            found.indirect = found.indirect or INTERNAL not in symbol.name


def _holds_variables(file: ELFFile, section: int | str) -> bool:
    return isinstance(section, int) and file.get_section(section).name.startswith(VARIABLES)
