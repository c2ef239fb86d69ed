"""Templates to text. Whatever is not defined is an error; line 1 of every file says what made it."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from .expression import translate
from .packing import layout
from .wire import C_TYPES

HERE = Path(__file__).resolve().parent
TEMPLATES = HERE / "templates"


@cache
def environment() -> jinja2.Environment:
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    env.globals["c_types"] = C_TYPES
    env.filters["expression"] = translate
    env.filters["layout"] = layout
    env.filters["hexbyte"] = "0x{:02x}".format
    return env


def banner(template: str, emitter: str, sources: str, comment: tuple[str, str]) -> str:
    """The first line of a generated file; the hash is of its own template and emitter, no other's."""
    made_by = Path(emitter).read_bytes() + (TEMPLATES / template).read_bytes()
    digest = hashlib.sha256(made_by).hexdigest()[:12]
    text = f"Generated from {sources} by codegen/templates/{template} ({digest}). Do not edit."
    return f"{comment[0]}{text}{comment[1]}\n"


def render(
    template: str, emitter: str, sources: str, comment: tuple[str, str] = ("/* ", " */"), **values: Any
) -> str:
    """One generated file. `emitter` is the caller's `__file__`, `sources` names the spec files."""
    body = environment().get_template(template).render(**values)
    return banner(template, emitter, sources, comment) + body
