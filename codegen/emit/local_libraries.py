"""Libraries that are answered from a few figures, by the guest and by the simulated device alike: all their
symbols, and what each answers."""

from __future__ import annotations

from typing import Any

from ..expression import Path, c_text, paths
from ..local_library import Answer, LocalFunction, LocalLibrary, load_all
from ..model import Param, Spec
from ..render import render

TEXT = "char *"
HANDLE = "device"  # the source that a parameter of this name names


def local(source: str) -> str:
    """The variable that holds what was found; a device's handle has its name already."""
    return "found" if source == HANDLE else source


def arguments(source: str) -> str:
    """Return the C arguments that the function which finds such a source takes."""
    return f"{source}, &{local(source)}" if source == HANDLE else f"&{local(source)}"


def _c(text: str) -> str:
    def member(path: Path) -> str:
        return ".".join((local(path[0]), *path[1:]))

    return c_text(text, member)


def _param(function: LocalFunction, name: str) -> Param:
    return next(param for param in function.signature.params if param.name == name)


def made_of(function: LocalFunction) -> list[str]:
    """Return what an answer is made of, in the order in which it is found."""
    texts = [text for answer in function.answers for _, text in answer.members]
    texts += [function.condition] if function.condition else []
    used = {path[0] for text in texts for path in paths(text)}
    has_handle = any(param.name == HANDLE for param in function.signature.params)
    return [HANDLE] if has_handle else sorted(used) or ["system"]


def assignment(function: LocalFunction, answer: Answer) -> str:
    """The C statement that gives an answer."""
    param = _param(function, answer.param)
    (name, text), *_ = answer.members
    if not name and param.ctype == TEXT:
        following = function.signature.params[function.signature.params.index(param) + 1]
        return f"return nv_text({param.name}, {following.name}, {_c(text)});"
    if not name:
        return f"*{param.name} = {_c(text)};"
    members = ", ".join(f".{name} = {_c(text)}" for name, text in answer.members)
    return f"*{param.name} = ({param.ctype.rstrip(' *')}){{{members}}};"


def outputs(spec: Spec) -> dict[str, str]:
    return {path: text for library in load_all() for path, text in _of(library).items()}


def _of(library: LocalLibrary) -> dict[str, str]:
    values: dict[str, Any] = {"library": library, "made_of": made_of, "local": local, "arguments": arguments}
    values |= {"assignment": assignment, "condition": _c}
    symbols = sorted([*library.undocumented, *(function.symbol for function in library.functions)])
    folder = f"native/{library.name}/_generated"
    return {
        f"{folder}/functions.c": render("local_functions.c.j2", __file__, library.file, **values),
        f"{folder}/functions.map": render("local.map.j2", __file__, library.file, symbols=symbols),
    }
