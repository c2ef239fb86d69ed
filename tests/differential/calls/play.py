"""Plays programs of driver calls on this process's driver: `python play.py` reads one a line, as JSON.

What comes back is a line for each: how its process ended, and of each call its result and what it wrote.
Handles are named after the variable that holds them, addresses after what they lie in, so that two drivers
say the same. Each program has a process of its own, forked before the driver is touched.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import re
import signal
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

HOST_BYTES = 1 << 18  # of the program's own memory, into which tokens point
SECONDS = 10  # for one call; then it hangs
UNTOUCHED = 0xA5  # what is behind a pointer before the call
SMALL = 4096  # no handle or address; numbers of textures are
HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
STREAM_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_int, ctypes.c_void_p)
BLOCK_TO_SHARED = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_int)
# What these end, the program's memory among it, ends with no call for it.
ENDS_MEMORY = re.compile(
    r"cuCtx(Destroy|Detach)|cuDevicePrimaryCtxRe(set|lease)|cuModuleUnload|cuLibraryUnload"
)
MEMORY_TYPE, RANGE_SIZE = 2, 12  # CU_POINTER_ATTRIBUTE_*
Token = Any


class Player:
    """One program's process."""

    def __init__(self) -> None:
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.image = (Path(__file__).parent / "kernels.ptx").read_bytes() + b"\0"
        self.memory = mmap.mmap(-1, HOST_BYTES)
        self.memory.write(bytes(range(256)) * (HOST_BYTES // 256))
        self.host = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.values: dict[str, int] = {}
        self.sizes: dict[str, int] = {}  # of variables that are addresses
        self.called: list[int] = []  # functions of the program, in the order in which they were
        self.keep: list[Any] = []

    # What tokens stand for

    def value(self, token: Token, shown: list[tuple[Any, int, Any]]) -> Any:
        if isinstance(token, float):
            return ctypes.c_float(token)
        if isinstance(token, int):
            return ctypes.c_uint64(token & (2**64 - 1))
        if isinstance(token, str):
            return ctypes.c_uint64(self.values.get(token, 0))
        kind, *rest = token
        return getattr(self, f"_{kind}")(shown, *rest)

    def number(self, token: Token, shown: list[tuple[Any, int, Any]]) -> int:
        made = self._kept(self.value(token, shown))
        if isinstance(made, ctypes.Array):
            return ctypes.addressof(made)
        return (
            int(made.value or 0) if hasattr(made, "value") else ctypes.cast(made, ctypes.c_void_p).value or 0
        )

    def _at(self, _: Any, name: str, offset: int) -> Any:
        value = self.values.get(name, 0)
        return ctypes.c_uint64(value + offset if value else 0)

    def _host(self, _: Any, offset: int) -> Any:
        return ctypes.c_uint64(self.host + offset)

    def _out(self, shown: list[Any], size: int, bound: Any) -> Any:
        made = (ctypes.c_char * 4096)()
        ctypes.memset(made, UNTOUCHED, 4096)
        shown.append((made, size, bound))
        return made

    def _told(self, shown: list[Any]) -> Any:
        """A text that the driver points to."""
        made = (ctypes.c_char * 8)()
        shown.append((made, 0, None))
        return made

    def _mem(self, shown: list[Any], size: int, parts: list[Any], show: bool) -> Any:
        made = (ctypes.c_char * max(size, 8))()
        for offset, width, token in parts:
            if isinstance(token, float):
                struct.pack_into("<f", made, offset, token)
                continue
            number = self.number(token, shown) & (2 ** (8 * width) - 1)
            made[offset : offset + width] = number.to_bytes(width, "little")
        if show:
            shown.append((made, size, None))
        return made

    def _text(self, _: Any, text: str) -> Any:
        return self._kept(ctypes.create_string_buffer(text.encode()))

    def _image(self, _: Any) -> Any:
        return self._kept(ctypes.create_string_buffer(self.image))

    def _image_size(self, _: Any) -> Any:
        return ctypes.c_uint64(len(self.image))

    def _fn(self, _: Any, number: int) -> Any:
        return self._kept(HOST_FUNCTION(lambda data: self.called.append(number)))

    def _callback(self, _: Any, number: int) -> Any:
        return self._kept(STREAM_CALLBACK(lambda stream, status, data: self.called.append(number)))

    def _b2d(self, _: Any) -> Any:
        return self._kept(BLOCK_TO_SHARED(lambda block: 4 * block))

    def _params(self, shown: list[Any], values: list[tuple[int, Token]]) -> Any:
        cells = [self.number(token, shown).to_bytes(8, "little") for _, token in values]
        memory = [self._kept(ctypes.create_string_buffer(cell, 8)) for cell in cells]
        return (ctypes.c_void_p * max(len(memory), 1))(*[ctypes.addressof(cell) for cell in memory])

    def _kept(self, made: Any) -> Any:
        self.keep.append(made)
        return made

    # What is said of a call

    def call(self, symbol: str, tokens: list[Token]) -> tuple[int, list[tuple[Any, int, Any]]]:
        shown: list[tuple[Any, int, Any]] = []
        arguments = [self.value(token, shown) for token in tokens]
        self.keep.append(arguments)
        return int(getattr(self.driver, symbol)(*arguments)), shown

    def step(self, step: dict[str, Any]) -> list[Any]:
        symbol = step["call"]
        result, shown = self.call(symbol, step["args"])
        said: list[Any] = [result]
        for memory, size, bound in shown:
            said.append(self.said(bytes(memory[: max(size, 8)]), size, bound if result == 0 else None))
        if result == 0:
            for name in step.get("ends", ()):
                self.forget(name)
            if ENDS_MEMORY.match(symbol):
                said.append(self.gone())
        return said

    def said(self, memory: bytes, size: int, bound: Any) -> Any:
        word = int.from_bytes(memory[:8], "little")
        if size == 0 and word != int.from_bytes(bytes([UNTOUCHED]) * 8, "little"):
            return ctypes.string_at(word).decode() if word else ""
        if bound == {}:  # handles, of which nobody takes one
            return [self.handle(memory[i : i + 8]) for i in range(0, size, 8)]
        if bound:
            if word in (0, int.from_bytes(bytes([UNTOUCHED]) * 8, "little")):
                return "nothing"
            known = self.named(word)
            self.values[bound["name"]] = word
            if bound.get("size"):
                self.sizes[bound["name"]] = self.size(word) or bound["size"]
            return known if isinstance(known, str) else "new"
        words = [int.from_bytes(memory[i : i + 8], "little") for i in range(0, size - size % 8, 8)]
        rest = memory[size - size % 8 : size]
        return [self.named(word) for word in words] + ([rest.hex()] if rest else [])

    def size(self, address: int) -> int:
        """Of an allocation; 0 where it is none."""
        size = ctypes.c_uint64()
        self.driver.cuPointerGetAttribute(ctypes.byref(size), RANGE_SIZE, ctypes.c_uint64(address))
        return size.value

    def handle(self, word: bytes) -> Any:
        named = self.named(int.from_bytes(word, "little"))
        return "some" if isinstance(named, int) and named >= SMALL else named

    def named(self, word: int) -> Any:
        if word < SMALL:
            return word
        if self.host <= word < self.host + HOST_BYTES:
            return f"host+{word - self.host}"
        for name, value in self.values.items():
            if value <= word < value + self.sizes.get(name, 1):
                return name if word == value else f"{name}+{word - value}"
        return word

    def forget(self, name: str) -> None:
        """The object is no more. Handles stay, for they are not used again; addresses and numbers are."""
        begin, size = self.values.get(name, 0), self.sizes.get(name, 1)
        for other in [n for n, v in self.values.items() if begin <= v < begin + size]:
            if other in self.sizes or begin < SMALL:
                del self.values[other]
                self.sizes.pop(other, None)

    def gone(self) -> list[str]:
        """Memory that ended with something else."""
        kind = ctypes.c_uint64()
        ended = [
            name
            for name in self.sizes
            if self.driver.cuPointerGetAttribute(
                ctypes.byref(kind), MEMORY_TYPE, ctypes.c_uint64(self.values.get(name, 0))
            )
        ]
        for name in ended:
            self.forget(name)
        return sorted(ended)

    def contents(self) -> list[Any]:
        """What the memory holds in the end, and which functions were called."""
        found: list[Any] = [zlib.crc32(self.memory[:]), self.called]
        for name, size in sorted(self.sizes.items()):
            copy = ctypes.create_string_buffer(size)
            result = self.driver.cuMemcpyDtoH_v2(
                copy, ctypes.c_uint64(self.values[name]), ctypes.c_size_t(size)
            )
            found.append([name, result, zlib.crc32(copy.raw)])
        return found


def play(program: dict[str, Any], write: int) -> None:
    player = Player()

    def say(what: Any) -> None:
        os.write(write, (json.dumps(what) + "\n").encode())

    for step in program["steps"]:
        signal.alarm(SECONDS)
        say(player.step(step))
    if program["contents"]:
        say(player.contents())
    os._exit(0)


def main() -> None:
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    for line in sys.stdin:
        program = json.loads(line)
        here, there = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(here)
            play(program, there)
        os.close(there)
        with os.fdopen(here) as lines:
            said = [json.loads(each) for each in lines]
        _, status = os.waitpid(child, 0)
        print(json.dumps([os.waitstatus_to_exitcode(status), said]))


if __name__ == "__main__":
    main()
