"""A GPU server that executes nothing: speaks the handshake, records frames, and answers as a test wants."""

from __future__ import annotations

import hmac
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from codegen.load import load
from codegen.wire import messages

HEADER = struct.Struct("<IHHII")
REPLY_HEADER = struct.Struct("<IHHIi")
GREETING, HELLO, WELCOME, REFUSED, OUTPUT, QUEUED = 0xFF01, 0xFF02, 0xFF03, 0xFF04, 0xFF05, 0xFF07
HELLO_FIXED = struct.Struct("<HH32s32sIQI64s64s128s32s")
ATTRIBUTES = 256
WINDOW = 0x200000000000
MIB = 1 << 20

_MESSAGES = messages(load())
OPS = {m.variant.symbol: m.variant.id for m in _MESSAGES}
NAMES = {id_: name for name, id_ in OPS.items()}
REPLY_SIZE = {m.variant.symbol: m.reply_size for m in _MESSAGES}


@dataclass(frozen=True)
class Frame:
    name: str
    request: int
    context: int
    body: bytes


@dataclass(frozen=True)
class Answer:
    status: int = 0
    latched: int = 0
    latched_op: int = 0
    body: bytes | None = None


@dataclass(frozen=True)
class Hello:
    version: int
    spec_hash: bytes
    nonce: bytes
    pid: int
    memory: int
    devices: int
    tenant: str
    function: str
    program: str
    proof: bytes
    signed: bytes
    extensions: dict[int, bytes]


def _text(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode()


def parse_hello(body: bytes) -> Hello:
    fields = HELLO_FIXED.unpack_from(body)
    version, _, spec, nonce, pid, memory, devices, tenant, function, program, proof = fields
    extensions, at = {}, HELLO_FIXED.size
    while at < len(body):
        kind, size = struct.unpack_from("<HH", body, at)
        extensions[kind] = body[at + 4 : at + 4 + size]
        at += 4 + size
    signed = body[: HELLO_FIXED.size - len(proof)] + body[HELLO_FIXED.size :]
    texts = (_text(tenant), _text(function), _text(program))
    return Hello(version, spec, nonce, pid, memory, devices, *texts, proof, signed, extensions)


@dataclass
class FakeServer:
    """Serves one connection after another, each on a thread of its own."""

    path: Path
    token: bytes = b"secret"
    quota: int = 64 * MIB
    attributes: dict[int, int] = field(default_factory=dict)
    answer: Callable[[Frame], Answer | None] = lambda _: Answer()
    greeting: bytes | None = None
    refusal: tuple[int, int, str] | None = None
    server_token: bytes | None = None
    frames: list[Frame] = field(default_factory=list)
    leave: list[tuple[int, float]] = field(default_factory=list)
    """Of the next connections: places in the queue that are told, then seconds to the end."""
    hello: Hello | None = None
    hellos: list[Hello] = field(default_factory=list)
    nonce: bytes = bytes(range(32))
    idle: threading.Event = field(default_factory=threading.Event)
    failure: BaseException | None = None

    def __post_init__(self) -> None:
        self.idle.set()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.path))
        self.listener.listen()
        self.connection: socket.socket | None = None
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    @property
    def settings(self) -> dict[str, str]:
        return {"GPUFERRY_MONITOR": f"unix:{self.path}", "GPUFERRY_TOKEN": self.token.decode()}

    @property
    def names(self) -> list[str]:
        return [frame.name for frame in self.frames]

    def settle(self) -> None:
        """Returns when all that guests have sent is read; they have ended."""
        assert self.idle.wait(60), "a connection is still open"

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.hang_up()
        self.thread.join()
        if self.failure is not None:
            raise self.failure

    def hang_up(self) -> None:
        if self.connection is not None:
            with suppress(OSError):  # it may have ended
                self.connection.shutdown(socket.SHUT_RDWR)

    def send(self, op: int, body: bytes, request: int = 0, flags: int = 0, status: int = 0) -> None:
        assert self.connection is not None
        head = REPLY_HEADER.pack(REPLY_HEADER.size + len(body), op, flags, request, status)
        self.connection.sendall(head + body)

    def reply(self, frame: Frame, answer: Answer) -> None:
        body = bytes(REPLY_SIZE[frame.name]) if answer.body is None else answer.body
        prefix = struct.pack("<iHH", answer.latched, answer.latched_op, 0)
        self.send(OPS[frame.name], prefix + body, frame.request, 1, answer.status)

    def _serve(self) -> None:
        while True:
            try:
                self.connection, _ = self.listener.accept()
            except OSError:
                return
            self.idle.clear()
            try:
                self._session()
            except (ConnectionError, EOFError, OSError):
                pass
            except BaseException as error:  # the test's own thread raises it
                self.failure = error
            finally:
                self.connection.close()
                self.idle.set()

    def _read(self, size: int) -> bytes:
        assert self.connection is not None
        data = bytearray()
        while len(data) < size:
            part = self.connection.recv(min(size - len(data), MIB))
            if not part:
                raise EOFError
            data += part
        return bytes(data)

    def _frame(self) -> tuple[int, int, int, bytes]:
        size, op, flags, request, context = HEADER.unpack(self._read(HEADER.size))
        assert flags == 0
        return op, request, context, self._read(size - HEADER.size)

    def _session(self) -> None:
        self.send(GREETING, self.greeting or struct.pack("<8sHH32s", b"GPUFERRY", 1, 0, self.nonce))
        op, _, _, body = self._frame()
        assert op == HELLO
        self.hello = parse_hello(body)
        self.hellos.append(self.hello)
        if self.leave:
            places, seconds = self.leave.pop(0)
            for place in range(places, 0, -1):
                self.send(QUEUED, struct.pack("<II", place, places))
            time.sleep(seconds)
            return
        if self.refusal is not None:
            reason, error, text = self.refusal
            self.send(REFUSED, struct.pack("<II", reason, error) + text.encode())
            return
        self.send(WELCOME, self._welcome())
        while True:
            op, request, context, body = self._frame()
            frame = Frame(NAMES[op], request, context, body)
            self.frames.append(frame)
            if request != 0:
                answer = self.answer(frame)
                if answer is not None:
                    self.reply(frame, answer)
            elif frame.name == "sessionClose":
                return

    def _welcome(self) -> bytes:
        assert self.hello is not None
        token = self.server_token if self.server_token is not None else self.token
        proof = hmac.digest(token, b"gpuferry server 1" + self.nonce + self.hello.nonce, "sha256")
        attributes = [0] * ATTRIBUTES
        limits = {1: 1024, 2: 1024, 3: 1024, 4: 64, 5: 2**31 - 1, 6: 65535, 7: 65535, 8: 49152, 10: 32}
        limits |= {11: 2**31 - 1, 12: 65536, 75: 8, 76: 0, 97: 166912}
        for index, value in (limits | self.attributes).items():
            attributes[index] = value
        session = struct.pack(
            "<32sQQQQIIIIII", proof, 7, WINDOW, 1 << 40, self.quota, 2 * MIB, 13050, 1, 1, 0, 0
        )
        device = struct.pack("<256s16sQiiI", b"fake device", bytes(range(16)), 1 << 33, 0, -5, ATTRIBUTES)
        return session + device + struct.pack(f"<{ATTRIBUTES}i8q", *attributes, *range(8))


def expected_proof(server: FakeServer) -> bytes:
    """What HELLO must prove, if the guest holds the server's token."""
    assert server.hello is not None
    message = b"gpuferry guest 1" + server.nonce + server.hello.nonce + server.hello.signed
    return hmac.digest(server.token, message, "sha256")
