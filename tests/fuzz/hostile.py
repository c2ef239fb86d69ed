"""A guest whose frames are of every kind that the spec has, and mostly wrong."""

from __future__ import annotations

import hashlib
import random
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

from gpuferry.specs._generated import frames
from gpuferry.specs._generated.frames import Frame

from codegen.model import Class, Field
from tests.apiserver.guest import KINDS, PRIMARY, Guest, encode, handle, operations
from tests.fuzz import images
from tests.fuzz.changing import NUMBERS
from tests.fuzz.programs import Call, Programs

LIBRARY, KERNEL, FUNCTION = handle("library", 0), handle("kernel", 0), handle("function", 0)
STREAM, EVENT, MODULE = handle("stream", 1), handle("event", 1), handle("module", 1)
CONDITIONAL = handle("graph_exec", 9)
SORTS = (0, 2)  # of conditional nodes: IF and SWITCH, of which each launch comes to an end
PAGES = 4
RESTORE = "sessionRestore"  # operations of who hands a session over; from a guest they are malformed
BATCH = 60
FROM_PROGRAMS = 0.1  # of what comes next: a piece of a program, of some ten frames
SPOILT = 0.05  # of its frames, in one field
LEFT_OUT = 0.03  # of its frames
FIRST = 0.2  # of the frames, until there was one of each operation
MALFORMED = 0.005  # of all frames: most sessions come to the end of their batch
RARE = {
    "sessionClose": 0.05,
    "sessionLinkImage": 0.1,
    "sessionLaunch": 0.2,
    "cuDevicePrimaryCtxReset_v2": 0.1,
}
IMAGE = hashlib.sha256(images.TEXT).digest()
FATBIN = images.container([images.entry(images.TEXT)])
SOME = [number.to_bytes(8, "little") for number in (0, 1, 64, 4096)]
HEADER = frames.Header.LAYOUT


class Hostile:
    """Makes frames for one session after another. The same seed makes the same ones."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._messages = sorted(operations().values(), key=lambda message: message.variant.id)
        self._weights = [RARE.get(message.variant.symbol, 1.0) for message in self._messages]
        restores = [message.variant.symbol.startswith(RESTORE) for message in self._messages]
        self._usual = [w / 200 if r else w for w, r in zip(self._weights, restores, strict=True)]
        self._restoring = False
        self._to_come = self._messages.copy()  # each once, whatever the weights say
        self.frames = 0
        self.sent = b""
        self.operations: set[str] = set()
        self._window = (1 << 40, 1 << 36)
        self._programs = Programs(self._chance, self._window[0], PAGES, KERNEL)

    def attack(
        self, guest: Guest, restoring: bool = False, gone: Callable[[], object] = lambda: None
    ) -> None:
        """Set a few things up as a program does, send what no program would (`sent`), and read whatever comes
        back. `restoring`: as who hands a session over. `gone`: done when all was said.
        """
        self._restoring = restoring
        self._window = guest.window, guest.window_size
        self._programs = Programs(self._chance, guest.window, PAGES, KERNEL)
        self._prepare(guest)
        self.sent = b"".join(self._batch())
        guest.socket.settimeout(120)
        try:
            guest.socket.sendall(self.sent)
            guest.socket.shutdown(socket.SHUT_WR)
            gone()
            while guest.socket.recv(1 << 20):
                pass
        except OSError:
            pass  # the session is over, as it may be
        guest.socket.close()

    def _prepare(self, guest: Guest) -> None:
        guest.map(PAGES)
        guest.send("cuStreamCreateWithPriority", phStream=STREAM, flags=1, priority=0)
        guest.send("cuEventCreate", phEvent=EVENT, Flags=0)
        guest.load(images.TEXT, LIBRARY, IMAGE)
        guest.send("sessionGetFunction", function=KERNEL, owner=LIBRARY, index=0)
        if not self._restoring:
            self._prepare_condition(guest)

    def _prepare_condition(self, guest: Guest) -> None:
        """A graph with a conditional node, whose value only the server knows."""
        guest.send("sessionGraphBegin", exec=CONDITIONAL)
        made = guest.call("sessionGraphCondition", exec=CONDITIONAL, wanted=0, graph=0, initial=1, flags=1)
        value, sort = made.values["value"], self._chance.choice(SORTS)
        guest.call("sessionGraphConditional", exec=CONDITIONAL, value=value, graph=0, type=sort, size=1)

    def _batch(self) -> Iterator[bytes]:
        chance, kept = self._chance, list[bytes]()
        for _ in range(BATCH):
            if chance.random() < FROM_PROGRAMS:
                kept += self._piece()
            kept.append(self._frame())
            if chance.random() < 0.05:
                kept.append(chance.choice(kept))
            if chance.random() < 0.05 and len(kept) > 1:
                kept[-1], kept[-2] = kept[-2], kept[-1]
        if chance.random() < 0.3:
            kept[-1] = kept[-1][: chance.randrange(len(kept[-1]))]
        self.frames += len(kept)
        yield from kept

    def _piece(self) -> Iterator[bytes]:
        """Of a program, mostly as that would send it."""
        chance, programs = self._chance, self._programs
        conditional = not self._restoring and chance.random() < 0.15
        for each in programs.conditional(CONDITIONAL) if conditional else programs.piece():
            if chance.random() > LEFT_OUT:
                yield self._as_frame(each)

    def _as_frame(self, call: Call) -> bytes:
        message = operations()[call.op]
        self.operations.add(call.op)
        request = 1 + (self.frames & 0xFFFF) if message.variant.klass is Class.SYNC else 0
        frame = encode(call.op, request, PRIMARY, call.payload, dict(call.values))
        if message.request and self._chance.random() < SPOILT:
            spoilt = self._chance.choice(message.request)
            at = HEADER.size
            for field in message.request:
                data = self._field(field)
                if field is spoilt:
                    return frame[:at] + data + frame[at + len(data) :]
                at += len(data)
        return frame

    def _frame(self) -> bytes:
        chance = self._chance
        (message,) = chance.choices(self._messages, self._weights if self._restoring else self._usual)
        if self._to_come and chance.random() < FIRST:
            message = self._to_come.pop()
        self.operations.add(message.variant.symbol)
        fields = {field.name: self._field(field) for field in message.request}
        payload = self._payload(message.variant.symbol, fields) if message.request_payload else b""
        if message.variant.symbol == "sessionCopyOut" and chance.random() > MALFORMED:
            fields |= {"width": SOME[chance.randrange(4)], "rows": SOME[chance.randrange(2)]}
        body = b"".join(fields.values()) + payload
        answered = message.variant.klass is Class.SYNC
        request = chance.choice((1, 2, self.frames & 0xFFFF or 1, 0xFFFFFFFF)) if answered else 0
        op, flags, context = message.variant.id, 0, chance.choice((PRIMARY,) * 9 + (0, 2, 0xFFFFFFFF))
        size = HEADER.size + len(body)
        if chance.random() < MALFORMED:
            op = chance.choice((op, *Frame, 0, 999, 0xFFFF))
            flags, request = chance.choice((0, 1, 2, 0xFFFF)), chance.choice((0, request, 7))
            size += chance.choice((0, -HEADER.size, -1, 1, 16, 1 << 20, 0xFFFFFFFF))
            body += chance.choice((b"", b"more"))
        return HEADER.pack(size % (1 << 32), op, flags, request, context) + body

    def _payload(self, op: str, fields: dict[str, bytes]) -> bytes:
        """Most often as long as the fields then say."""
        chance = self._chance
        noise = chance.randbytes(chance.choice((0, 1, 4, 8, 16, 72, 144, 400)))
        payload = chance.choice((noise, noise, b"variable", images.TEXT, FATBIN))
        if chance.random() < MALFORMED:
            return payload
        size = len(payload).to_bytes(8, "little")
        if op == "sessionCopyIn":
            fields |= {"width": size, "rows": (1).to_bytes(8, "little")}
        elif op == "sessionImageData":
            fields |= {"size": size, "offset": bytes(8), "hash": hashlib.sha256(payload).digest()}
        elif op == "sessionLinkAdd":
            fields["name_size"] = b"\4\0\0\0"
            payload = b"name" + bytes(4)
        elif op == "cuLinkCreate_v2":
            payload = bytes(4)
        elif "attributes" in fields:
            attributes = [struct.pack("<II", chance.randrange(20), 0) + chance.randbytes(64)]
            attributes *= chance.choice((0, 0, 1, 2))
            arguments = self._number("u64") + struct.pack("<I", 3) if "params" in fields else b""
            fields["attributes"] = struct.pack("<I", len(attributes))
            fields |= {"params": struct.pack("<I", len(arguments))} if arguments else {}
            payload = arguments + b"".join(attributes)
        return payload

    def _field(self, field: Field) -> bytes:
        if field.type == "u8" and field.count > 1:
            return IMAGE if self._chance.random() < 0.7 else self._chance.randbytes(field.count)
        return b"".join(self._number(field.type) for _ in range(field.count))

    def _number(self, kind: str) -> bytes:
        chance, (base, size) = self._chance, self._window
        if kind in ("f32", "f64"):
            code = {"f32": "<f", "f64": "<d"}[kind]
            return struct.pack(code, chance.choice((0.0, -1.0, float("nan"), float("inf"), 1e9)))
        width = int(kind[1:]) // 8
        choices: list[Any] = [0, 1, 2, 3, 4, 8, chance.choice(NUMBERS), chance.getrandbits(8 * width)]
        if width == 8:
            at = base + chance.randrange(PAGES + 1) * (2 << 20)
            some = handle(chance.choice(tuple(KINDS)), chance.randrange(3), chance.choice((0, 0, 1)))
            choices += [at, at, at + chance.randrange(4096), base + size - 4, 2 << 20, 4 << 20, 4096, 64]
            choices += [LIBRARY, KERNEL, STREAM, EVENT, some, some]
        number = chance.choice(choices) + (chance.randrange(-1, 2) if chance.random() < 0.1 else 0)
        return int(number % (1 << 8 * width)).to_bytes(width, "little")
