"""The names that a step may use: functions of driver and runtime, constants of their headers, variables.

A variable that was written `&name` is eight bytes of memory, zero at first; its name is the number there.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import struct
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
STREAM_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_int, ctypes.c_void_p)
SIZE_MAX = 2**64 - 1
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


@functools.cache
def constants(*headers: Path) -> dict[str, int]:
    """Enumerators and macros that are given as plain numbers; read once, also for processes forked later."""
    found = re.compile(
        r"\b(c?u?d?a?[A-Za-z]\w+)\s*=\s*(-?(?:0x[0-9a-fA-F]+|\d+))\b|#define\s+(\w+)\s+(0x\w+|\d+)\s"
    )
    values: dict[str, int] = {}
    for header in headers:
        for name, number, macro, value in found.findall(COMMENT.sub("", header.read_text())):
            values.setdefault(name or macro, int(number or value, 0))
    return values


def struct_of(size: int, *parts: tuple[int, str, tuple[Any, ...]]) -> Any:
    """A struct of `size` bytes, zero but for (offset, format, values)."""
    made = ctypes.create_string_buffer(size)
    for offset, layout, values in parts:
        struct.pack_into("<" + layout, made, offset, *values)
    return made


def pack(layout: str, *values: Any) -> Any:
    """Memory with these values, as the module struct lays them out, members where C puts them."""
    return ctypes.create_string_buffer(struct.pack("@" + layout, *values))


class Values(ctypes.Structure):
    """Three words that are passed by value."""

    _fields_ = [("words", ctypes.c_uint64 * 3)]


class Four(ctypes.Structure):
    """Four words that are passed by value."""

    _fields_ = [("words", ctypes.c_uint64 * 4)]


def by_value(*words: int) -> Any:
    """A struct of three or four words (cudaExtent, cudaPitchedPtr)."""
    kind = Values if len(words) == 3 else Four
    return kind((ctypes.c_uint64 * len(words))(*[w & SIZE_MAX for w in words]))


class Dim3(ctypes.Structure):
    """cudart's dim3, which is passed by value."""

    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]


class Function:
    """One function of a library: integers are 64 bits wide, bytes and buffers are passed by address."""

    def __init__(self, pointer: Any, keep: list[Any]) -> None:
        self.pointer = pointer
        self.keep = keep

    def __call__(self, *arguments: Any) -> int:
        wide = [ctypes.c_uint64(a & SIZE_MAX) if isinstance(a, int) else a for a in arguments]
        self.keep.extend(wide)
        return int(self.pointer(*(ctypes.c_float(a) if isinstance(a, float) else a for a in wide)))


def slot(table: int, number: int) -> Function:
    """A function of an export table."""
    word = ctypes.c_uint64.from_address(table + 8 * number).value
    return Function(ctypes.CFUNCTYPE(ctypes.c_int)(word), [])


def in_child(work: Callable[[], int]) -> int:
    """What `work` gives in a forked child."""
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(there, str(work()).encode())
        os._exit(0)
    os.close(there)
    with os.fdopen(here) as said:
        given = said.read()
    os.waitpid(child, 0)
    return int(given) if given else -1


class Scope(dict[str, Any]):
    """Globals of the steps of one process; `libraries` by how the names of their functions begin."""

    def __init__(self, libraries: Mapping[str, list[Callable[[], Any]]], known: dict[str, int]) -> None:
        super().__init__(
            NULL=0,
            SIZE_MAX=SIZE_MAX,
            ctypes=ctypes,
            pack=pack,
            by_value=by_value,
            struct_of=struct_of,
            at=self.at,
            buffer=ctypes.create_string_buffer,
            address=ctypes.addressof,
            array=lambda *v: (ctypes.c_uint64 * max(len(v), 1))(*[x & SIZE_MAX for x in v]),
            ints=lambda *v: (ctypes.c_int32 * max(len(v), 1))(*v),
            i32=lambda v: ctypes.c_int32(v & 0xFFFFFFFF).value,
            f32=lambda v: struct.unpack("<f", struct.pack("<I", v & 0xFFFFFFFF))[0],
            text=lambda p: (ctypes.cast(p, ctypes.c_char_p).value or b"").decode(),
            params=self.params,
            callback=self.callback,
            elsewhere=self.elsewhere,
            in_child=in_child,
            slot=slot,
            dim3=Dim3,
        )
        self.libraries = libraries
        self.known = known
        self.keep: list[Any] = []

    def copy_for_row(self) -> Scope:
        """The same names; those that a row makes are its own."""
        row = Scope(self.libraries, self.known)
        row.update(self)
        row.update(
            at=row.at, params=row.params, callback=row.callback, elsewhere=row.elsewhere, keep=self.keep
        )
        return row

    def __getitem__(self, name: str) -> Any:
        try:
            value = super().__getitem__(name)
        except KeyError:
            return self.look_up(name)
        return value.value if isinstance(value, ctypes.c_uint64) else value

    def look_up(self, name: str) -> Any:
        if name in self.known:
            return self.known[name]
        for prefix, libraries in self.libraries.items():
            for library in libraries:
                if name.startswith(prefix) and hasattr(library(), name):
                    self[name] = Function(getattr(library(), name), self.keep)
                    return super().__getitem__(name)
        raise KeyError(name)

    def at(self, name: str) -> Any:
        """The memory of a variable."""
        value = self.get(name)
        if not isinstance(value, ctypes.c_uint64):
            value = ctypes.c_uint64(value or 0)
            self[name] = value
        return ctypes.byref(value)

    def params(self, *values: Any) -> Any:
        """What cuLaunchKernel takes: an array of pointers to arguments."""
        cells = [ctypes.c_uint64(v) if isinstance(v, int) else v for v in values]
        self.keep.append(cells)
        return (ctypes.c_void_p * max(len(cells), 1))(*[ctypes.addressof(cell) for cell in cells])

    def callback(self, work: Callable[..., Any] = lambda *_: None, kind: Any = HOST_FUNCTION) -> Any:
        """A function that the driver may call."""
        made = kind(work)
        self.keep.append(made)
        return made

    def elsewhere(self, work: Callable[[], Any]) -> Any:
        """What `work` gives in another host thread."""
        given: list[Any] = []
        thread = threading.Thread(target=lambda: given.append(work()))
        thread.start()
        thread.join()
        return given[0]
