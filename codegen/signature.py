"""Reads a C prototype as the spec spells it."""

from __future__ import annotations

import keyword
import re

from .model import Param, Signature, SpecError, Where

PROTOTYPE = re.compile(
    r"^\s*(?P<returns>[A-Za-z_][\w ]*?[ *]+)(?P<name>\w+)\s*\((?P<params>.*)\)\s*;?\s*$", re.S
)
PARAMETER = re.compile(r"^(?P<type>.*?[ *])(?P<name>[A-Za-z_]\w*)(?:\[(?P<count>\d+)\])?$", re.S)


def spell(ctype: str) -> str:
    """The canonical spelling of a C type: single blanks, stars at the end of the type."""
    text = re.sub(r"\s*\*\s*", " *", " ".join(ctype.split()))
    while "* *" in text:
        text = text.replace("* *", "**")
    return text


def usable(name: str) -> str:
    """A parameter's name in expressions and on the server, whose syntax is Python's: `from` is `from_`."""
    return f"{name}_" if keyword.iskeyword(name) else name


def parse_signature(text: str, where: Where) -> Signature:
    match = PROTOTYPE.match(text)
    if match is None:
        raise SpecError(
            where,
            f"signature is not a C prototype: {text!r}",
            "Write it as cuda.h does: CUresult name(type name, …)",
        )
    params = []
    inner = match["params"].strip()
    for part in [] if inner in ("", "void") else inner.split(","):
        found = PARAMETER.match(part.strip())
        if found is None:
            raise SpecError(
                where,
                f"parameter {part.strip()!r} has no name",
                "Name every parameter: arguments refer to them by name",
            )
        params.append(Param(spell(found["type"]), usable(found["name"]), int(found["count"] or 1)))
    return Signature(spell(match["returns"]), match["name"], tuple(params))
