"""A guest in Python: frames are packed from the layouts of the spec, so that nonsense can be sent too."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from gpuferry.specs._generated import frames
from gpuferry.specs._generated.frames import CHUNK, Frame

from codegen import packing
from codegen.load import load
from codegen.model import Field
from codegen.wire import Message, messages

HEADER = frames.Header.LAYOUT
PRIMARY = 1  # header value for the primary context
KINDS = {
    "context": 1,
    "module": 2,
    "library": 3,
    "kernel": 4,
    "function": 5,
    "stream": 6,
    "event": 7,
    "link": 9,
    "graph_exec": 13,
    "array": 16,
    "texture_object": 17,
    "surface_object": 18,
    "green_context": 28,
    "mipmapped_array": 25,
    "texture_reference": 26,
    "surface_reference": 27,
}


@cache
def operations() -> dict[str, Message]:
    return {m.variant.symbol: m for m in messages(load())}


def layout(fields: tuple[Field, ...]) -> struct.Struct:
    return struct.Struct(packing.layout(fields))


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
    return frames.frame(message.variant.id, body, request, context)


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
    params: list[frames.KernelParam]


class Ended(Exception):
    """The server closed the connection; `text` is what REFUSED said, if it did."""

    def __init__(self, text: str = "", reason: int = 0) -> None:
        super().__init__(text)
        self.text = text
        self.reason = reason


class Guest:
    """The client end of a session."""

    device: frames.Device

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.socket.settimeout(120)
        self._request = 0
        self.window = self.window_size = self.quota = self.granularity = 0
        self._waiting: dict[int, str] = {}
        self.arrived: dict[int, Reply] = {}  # and not asked for yet
        self.output = b""  # what kernels printed
        self.host_calls: list[frames.HostCall] = []  # what streams wait for
        self.order: list[int] = []  # requests in the order in which their replies came

    def receive_welcome(self) -> None:
        op, body = self._frame()[0:2]
        while op == Frame.QUEUED:
            op, body = self._frame()[0:2]
        assert op == Frame.WELCOME
        welcome = frames.Welcome.unpack(body)
        self.proof, self.session, self.window, self.window_size, self.quota, self.granularity = welcome[:6]
        self.device = frames.Device.unpack(body, welcome.SIZE)

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
        while request not in self.arrived:
            self._receive()
        return self.arrived.pop(request)

    def call(self, op: str, **values: Any) -> Reply:
        return self.answer(self.ask(op, **values))

    def host_call(self) -> frames.HostCall:
        """The next one that the server asks for."""
        while not self.host_calls:
            self._receive()
        return self.host_calls.pop(0)

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
            kernel = frames.Kernel.unpack(table, at)
            at += kernel.SIZE
            params = []
            for _ in range(kernel.param_count):
                params.append(frames.KernelParam.unpack(table, at))
                at += frames.KernelParam.SIZE
            name = table[at : at + kernel.name_size].decode()
            at += (kernel.name_size + 3) & ~3
            kernels.append(Kernel(name, kernel.attributes, params))
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

    def send_last(self, op: str, *, context: int = PRIMARY, payload: bytes = b"", **values: Any) -> Ended:
        """An async call for which the server ends the session.

        One that is answered goes in the same write: where the session does not end, its answer says so.
        """
        self._request += 1
        self._waiting[self._request] = "cuCtxSynchronize"
        last = encode(op, 0, context, payload, values)
        self.socket.sendall(last + encode("cuCtxSynchronize", self._request, PRIMARY, b"", {}))
        try:
            reply = self.answer(self._request)
        except Ended as ended:
            return ended
        raise AssertionError(f"the session goes on after {op}, latched {reply.latched}")

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
        header = frames.Header.unpack(self._exactly(HEADER.size))
        body = self._exactly(header.size - HEADER.size)
        if header.op == Frame.REFUSED:
            raise Ended(body[frames.Refused.SIZE :].decode(), frames.Refused.unpack(body).reason)
        return header.op, body, header.request, header.status

    def _receive(self) -> None:
        op, body, request, status = self._frame()
        if op == Frame.OUTPUT:
            self.output += body
        if op == Frame.HOST_CALL:
            self.host_calls.append(frames.HostCall.unpack(body))
        if op in (Frame.OUTPUT, Frame.ACKNOWLEDGE, Frame.HOST_CALL):
            return
        message = operations()[self._waiting.pop(request)]
        prefix = frames.ReplyPrefix.unpack(body)
        reply = Reply(request, status, prefix.latched, prefix.latched_op)
        rest = body[prefix.SIZE :]
        shape = layout(message.reply)
        if len(rest) >= shape.size:
            values = shape.unpack_from(rest)
            reply.values = dict(zip((f.name for f in message.reply), values, strict=True))
            reply.payload = rest[shape.size :]
        self.order.append(request)
        self.arrived[request] = reply
