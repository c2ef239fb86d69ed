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
HEAP = {"malloc", "free"}  # what a kernel calls to get memory that nobody can enumerate

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_TEXT = re.compile(r'"[^"\n]*"')
_VARIABLE = re.compile(
    r"(?:^|(?<=[;}]))\s*((?:\.(?:visible|extern|weak|common)\s+)*)\.(?:global|const)\s([^;]*);", re.MULTILINE
)
_ATTRIBUTE = re.compile(r"\.attribute\s*\([^)]*\)\s*|\.align\s+\d+|\.\w+")
_NAME = re.compile(r"[A-Za-z_$%][\w$]*")
_OPAQUE = re.compile(r"\.(?:texref|surfref|samplerref)\b")
_EXTERN_FUNCTION = re.compile(r"\.extern\s+\.func\b[^;{]*?\b(\w+)\s*(?:\([^;{)]*\))?\s*(?:\.noreturn\s*)?;")


@dataclass
class Variables:
    """What the PTX texts and ELF files of one image say of its module variables."""

    names: set[str] = field(default_factory=set)
    heap: bool = False  # its kernels allocate memory


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
    source = _COMMENT.sub(" ", _TEXT.sub('""', text.split(b"\0", 1)[0].decode("utf-8", "replace")))
    for linkage, declaration in _VARIABLE.findall(source):
        if ".extern" not in linkage and not _OPAQUE.search(declaration):
            found.names.update(_names(declaration))
    if HEAP & set(_EXTERN_FUNCTION.findall(source)):
        found.heap = True


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
        for section in file.iter_sections():
            if isinstance(section, SymbolTableSection):
                _of_symbols(file, section, found)
    except (ELFError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise Refused(f"the variables of its code cannot be listed: an ELF file ({error})") from None


def _of_symbols(file: ELFFile, table: SymbolTableSection, found: Variables) -> None:
    for symbol in table.iter_symbols():
        where = symbol["st_shndx"]
        if where == "SHN_UNDEF":
            found.heap = found.heap or symbol.name in HEAP
        elif symbol["st_info"]["type"] == "STT_OBJECT" and _holds_variables(file, where):
            found.names.add(symbol.name)


def _holds_variables(file: ELFFile, section: int | str) -> bool:
    return isinstance(section, int) and file.get_section(section).name.startswith(VARIABLES)
