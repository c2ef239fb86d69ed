"""Framing and handshake for C, Python and Cython."""

from __future__ import annotations

from typing import Any

from ..frames import SHOWN, Frames, Struct, load
from ..model import Spec
from ..render import render


def class_name(name: str) -> str:
    """A spec's name as a Python class is named."""
    return "".join(word.capitalize() for word in name.split("_"))


def documented(struct: Struct) -> str:
    """The docstring of a generated class."""
    return f"{struct.doc} After it: {struct.then}." if struct.then else struct.doc


def outputs(spec: Spec) -> dict[str, str]:
    return of(load())


def of(frames: Frames) -> dict[str, str]:
    """The generated files, for C, Python and Cython, by path."""
    values: dict[str, Any] = {"frames": frames, "class_name": class_name, "documented": documented}
    return {
        "native/_generated/gpuferry/frames.h": render("shared_frames.h.j2", __file__, SHOWN, **values),
        "specs/_generated/constants.py": render(
            "shared_constants.py.j2", __file__, SHOWN, ("# ", ""), **values
        ),
        "specs/_generated/frames.py": render("shared_frames.py.j2", __file__, SHOWN, ("# ", ""), **values),
        "apiserver/_generated/frames.pxi": render(
            "server_frames.pxi.j2", __file__, SHOWN, ("# ", ""), **values
        ),
    }
