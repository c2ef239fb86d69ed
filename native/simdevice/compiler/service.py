"""Answers requests on a socket: exec/service.c is the other side."""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
import traceback
from collections import OrderedDict

from gpuferry.native.simdevice.ptx import (
    DefinedTwice,
    Module,
    NotDefined,
    OtherPrototype,
    PtxError,
    check_bodies,
    check_calls,
    check_instructions,
    compile_kernel,
    link,
    parse,
)

from . import confinement, fatbin, images, index, limits, linker, machine_code
from .errors import INVALID_PTX, INVALID_SOURCE, OUT_OF_MEMORY, UNKNOWN, ImageError

OPEN = 1
COMPILE = 2
LINK_CHECK = 3
LINK = 4
OPTIMISE = 5
CHECKED = 1 << 16  # with an operation: kernels are held to their own memory
SKIPPED = 1 << 17  # no kernel will run: of machine code the metadata will do
UNKNOWN_MODULE = 0x7FFFFFFF
HELLO = b"gpuferry"

# Parsed modules that are kept, and how long the process waits for a request before it gives its memory back.
KEPT_MODULES = 8
IDLE_SECONDS = 10.0

_REQUEST = struct.Struct("<IIQ32s")
_ANSWER = struct.Struct("<iIQ")


class Service:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._checked = self._skipped = False
        self._modules: OrderedDict[bytes, Module] = OrderedDict()

    def run(self) -> None:
        threading.Thread(target=self._end_with_peer, daemon=True).start()
        confinement.confine()
        self._connection.sendall(HELLO)
        while select.select([self._connection], [], [], IDLE_SECONDS)[0]:
            head = self._receive(_REQUEST.size)
            if not head:
                return
            asked, cc, size, key = _REQUEST.unpack(head)
            op, self._checked, self._skipped = (
                asked & (CHECKED - 1),
                bool(asked & CHECKED),
                bool(asked & SKIPPED),
            )
            payload = self._receive(size)
            limits.begin()
            status, reply = self._answer(op, cc, key, payload)
            limits.end()
            self._connection.sendall(_ANSWER.pack(status, 0, len(reply)))
            self._connection.sendall(reply)

    def _end_with_peer(self) -> None:
        """The program may end during a long compilation; nobody waits for that then."""
        poll = select.poll()
        poll.register(self._connection, select.POLLRDHUP)
        poll.poll()
        os._exit(0)

    def _receive(self, size: int) -> bytes:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            count = self._connection.recv_into(view)
            if count == 0:
                return b""
            view = view[count:]
        return bytes(data)

    def _answer(self, op: int, cc: int, key: bytes, payload: bytes) -> tuple[int, bytes]:
        try:
            if op == OPEN:
                return 0, self._open(cc, key, payload)
            if op == LINK_CHECK:
                return 0, linker.check(payload, cc, runs=not self._skipped)
            if op == LINK:
                return 0, linker.complete(payload, cc)
            return self._compile(key, payload, quick=op != OPTIMISE)
        except ImageError as error:
            return error.status, str(error).encode()
        except (DefinedTwice, OtherPrototype) as error:
            return INVALID_SOURCE, str(error).encode()
        except NotDefined as error:
            return UNKNOWN, str(error).encode()
        except PtxError as error:
            return INVALID_PTX, str(error).encode()
        except (MemoryError, RecursionError) as error:
            return OUT_OF_MEMORY, f"compiling it takes too much memory ({type(error).__name__})".encode()
        except Exception:
            return UNKNOWN, f"internal error of the PTX compiler: {traceback.format_exc()}".encode()

    def _open(self, cc: int, key: bytes, image: bytes) -> bytes:
        if self._skipped:
            room = fatbin.Room(machine_code.MOST)
            code = images.machine_code(image, cc, room)
            if code is not None:
                return index.build(machine_code.read(code, cc, room), b"")
        source = b"\0".join(each.text for each in linker.joined(images.sources(image, cc)))
        module = self._parse(key, source)
        if not self._skipped:
            check_instructions(module)
            check_calls(module)
        check_bodies(module)
        return index.build(module, source, images.most_registers(image))

    def _compile(self, key: bytes, payload: bytes, quick: bool) -> tuple[int, bytes]:
        name, _, source = payload.partition(b"\0")
        module = self._modules.get(key)
        if module is None:
            if not source:
                return UNKNOWN_MODULE, b""
            module = self._parse(key, source)
        return 0, compile_kernel(module, name.decode(), checked=self._checked, quick=quick)

    def _parse(self, key: bytes, source: bytes) -> Module:
        modules = [parse(text.decode("utf-8", "surrogateescape")) for text in source.split(b"\0")]
        module = modules[0] if len(modules) == 1 else link(modules)
        self._modules[key] = module
        if len(self._modules) > KEPT_MODULES:
            self._modules.popitem(last=False)
        return module
