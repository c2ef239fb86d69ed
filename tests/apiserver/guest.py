"""A guest in Python: frames are packed from the layouts of the spec, so that nonsense can be sent too."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from codegen.load import load
from codegen.model import Field
from codegen.wire import Message, messages
from tests.helpers.layouts import FORMATS

HEADER = struct.Struct("<IHHII")
PREFIX = struct.Struct("<iHH")
WELCOME = struct.Struct("<32sQQQQIIIIII")
DEVICE = struct.Struct("<256s16sQiiI256i8q")
REFUSED = struct.Struct("<II")
KERNEL = struct.Struct("<HH18i")
OP_WELCOME, OP_REFUSED, OP_OUTPUT, OP_QUEUED, OP_ACKNOWLEDGE = 0xFF03, 0xFF04, 0xFF05, 0xFF07, 0xFF09
CHUNK = 4 << 20
PRIMARY = 1  # header value for the primary context
KINDS = {"context": 1, "module": 2, "library": 3, "kernel": 4, "function": 5, "stream": 6, "event": 7}


@cache
def operations() -> dict[str, Message]:
    return {m.variant.symbol: m for m in messages(load())}


def layout(fields: tuple[Field, ...]) -> struct.Struct:
    def code(f: Field) -> str:
        return f"{f.count}s" if f.type == "u8" and f.count > 1 else f"{f.count}{FORMATS[f.type]}"

    return struct.Struct("<" + "".join(map(code, fields)))


def handle(kind: str, slot: int, generation: int = 0) -> int:
    return 0x6766 << 48 | KINDS[kind] << 40 | generation << 24 | slot


def encode(op: str, request: int, context: int, payload: bytes, values: dict[str, Any]) -> bytes:
    message = operations()[op]
    flat: list[Any] = []
    for f in message.request:
        value = values.pop(f.name)
        flat.extend(value if isinstance(value, (tuple, list)) else [value])
    assert not values, f"{op} has no {list(values)}"
    body = layout(message.request).pack(*flat) + payload
    return HEADER.pack(HEADER.size + len(body), message.variant.id, 0, request, context) + body


@dataclass
class Reply:
    """One answer: the call's status, what was latched before it, results and payload."""

    request: int
    status: int
    latched: int
    latched_op: int
    values: dict[str, Any] = field(default_factory=dict)
    payload: bytes = b""


@dataclass
class Kernel:
    name: str
    attributes: tuple[int, ...]
    params: list[tuple[int, int]]


class Ended(Exception):
    """The server closed the connection; `text` is what REFUSED said, if it did."""

    def __init__(self, text: str = "", reason: int = 0) -> None:
        super().__init__(text)
        self.text = text
        self.reason = reason


class Guest:
    """The client end of a session."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.socket.settimeout(120)
        self._request = 0
        self.window = self.window_size = self.quota = self.granularity = 0
        self.device: tuple[Any, ...] = ()
        self._waiting: dict[int, str] = {}
        self._arrived: dict[int, Reply] = {}
        self.output = b""  # what kernels printed
        self.order: list[int] = []  # requests in the order in which their replies came

    def receive_welcome(self) -> None:
        op, body = self._frame()[0:2]
        while op == OP_QUEUED:
            op, body = self._frame()[0:2]
        assert op == OP_WELCOME
        values = WELCOME.unpack_from(body)
        self.proof, self.session, self.window, self.window_size, self.quota, self.granularity = values[:6]
        self.device = DEVICE.unpack(body[WELCOME.size : WELCOME.size + DEVICE.size])

    def send(self, op: str, *, context: int = PRIMARY, payload: bytes = b"", **values: Any) -> None:
        """An async call."""
        self.socket.sendall(encode(op, 0, context, payload, values))

    def ask(self, op: str, *, context: int = PRIMARY, payload: bytes = b"", **values: Any) -> int:
        """Sends a call that is answered; returns its request id."""
        self._request += 1
        self._waiting[self._request] = op
        self.socket.sendall(encode(op, self._request, context, payload, values))
        return self._request

    def answer(self, request: int) -> Reply:
        while request not in self._arrived:
            self._receive()
        return self._arrived.pop(request)

    def call(self, op: str, **values: Any) -> Reply:
        return self.answer(self.ask(op, **values))

    def sync(self) -> Reply:
        return self.call("cuCtxSynchronize")

    def close(self) -> None:
        self.send("sessionClose")
        self.socket.close()

    def map(self, pages: int = 1, at: int = 0) -> int:
        """Backs pages of the window; returns their address."""
        address = self.window + at * self.granularity
        self.send("sessionMemMap", address=address, size=pages * self.granularity)
        return address

    def write(self, address: int, data: bytes, stream: int = 0) -> None:
        self.send(
            "sessionCopyIn", stream=stream, address=address, pitch=0, width=len(data), rows=1, payload=data
        )

    def ask_read(self, address: int, size: int, stream: int = 0) -> int:
        return self.ask("sessionCopyOut", stream=stream, address=address, pitch=0, width=size, rows=1)

    def read(self, address: int, size: int, stream: int = 0) -> bytes:
        reply = self.answer(self.ask_read(address, size, stream))
        assert reply.status == 0, reply
        return reply.payload

    def load(self, image: bytes, owner: int, digest: bytes) -> tuple[Reply, list[Kernel], bytes]:
        """Ships an image and loads it; returns the reply, its kernels and the log."""
        for offset in range(0, len(image), CHUNK):
            piece = image[offset : offset + CHUNK]
            self.send("sessionImageData", hash=digest, size=len(image), offset=offset, payload=piece)
        reply = self.call("sessionLoadImage", hash=digest, handle=owner, size=len(image))
        table_size = reply.values["table_size"]
        table, log = reply.payload[:table_size], reply.payload[table_size:]
        kernels, at = [], 0
        for _ in range(reply.values["kernel_count"]):
            name_size, count, *attributes = KERNEL.unpack_from(table, at)
            at += KERNEL.size
            params = [struct.unpack_from("<II", table, at + 8 * i) for i in range(count)]
            at += 8 * count
            name = table[at : at + name_size].decode()
            at += (name_size + 3) & ~3
            kernels.append(Kernel(name, tuple(attributes), params))
        assert at == len(table)
        return reply, kernels, log

    def launch(
        self,
        function: int,
        params: bytes,
        grid: tuple[int, int, int] = (1, 1, 1),
        block: tuple[int, int, int] = (32, 1, 1),
        stream: int = 0,
    ) -> None:
        self.send(
            "sessionLaunch",
            function=function,
            stream=stream,
            grid=grid,
            block=block,
            shared=0,
            attributes=0,
            params=len(params),
            payload=params,
        )

    def expect_end(self) -> Ended:
        """Reads until the server closes."""
        try:
            while True:
                self._receive()
        except Ended as ended:
            return ended

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            try:
                part = self.socket.recv(size - len(parts))
            except (ConnectionResetError, BrokenPipeError):
                part = b""
            if not part:
                raise Ended
            parts += part
        return bytes(parts)

    def _frame(self) -> tuple[int, bytes, int, int]:
        size, op, _, request, status = HEADER.unpack(self._exactly(HEADER.size))
        body = self._exactly(size - HEADER.size)
        if op == OP_REFUSED:
            raise Ended(body[REFUSED.size :].decode(), REFUSED.unpack_from(body)[0])
        return op, body, request, struct.unpack("<i", struct.pack("<I", status))[0]

    def _receive(self) -> None:
        op, body, request, status = self._frame()
        if op == OP_OUTPUT:
            self.output += body
        if op in (OP_OUTPUT, OP_ACKNOWLEDGE):
            return
        message = operations()[self._waiting.pop(request)]
        latched, latched_op, _ = PREFIX.unpack_from(body)
        reply = Reply(request, status, latched, latched_op)
        rest = body[PREFIX.size :]
        shape = layout(message.reply)
        if len(rest) >= shape.size:
            values = shape.unpack_from(rest)
            reply.values = dict(zip((f.name for f in message.reply), values, strict=True))
            reply.payload = rest[shape.size :]
        self.order.append(request)
        self._arrived[request] = reply
