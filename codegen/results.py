"""`specs/cuda/results.yaml`: what each CUresult is called, and which of them end their context."""

from __future__ import annotations

import re

from .document import Mapping, Value
from .model import Destroys, Result

PLAIN = re.compile(r"[ !#-\[\]-~]+")


def plain_text(value: Value) -> str:
    """A text that stands in C between quotes as it is. Raises SpecError of any other."""
    if not PLAIN.fullmatch(value.text()):
        raise value.fail("a text that does not go into C as it is", "Leave out quotes and backslashes")
    return value.text()


def load_result(name: str, value: Value) -> Result:
    keys = value.mapping()
    destroys, text = keys.get("destroys"), plain_text(keys.need("text"))
    found = Result(
        name=name,
        text=text,
        where=keys.where,
        destroys=destroys.choice(Destroys) if destroys else None,
    )
    keys.done()
    return found


def load_results(keys: Mapping) -> tuple[Result, ...]:
    found = tuple(load_result(name, item) for name, item in keys.need("results").mapping().all())
    keys.done()
    return found
