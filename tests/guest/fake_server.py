"""A GPU server that executes nothing: speaks the handshake, records frames, and answers as a test wants."""

from __future__ import annotations

import hmac
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from gpuferry.specs._generated import frames, operations
from gpuferry.specs._generated.frames import Frame as Op

from codegen.load import load
from codegen.wire import messages

WINDOW = 0x200000000000
FIRST = WINDOW + (2 << 20)  # what is handed out first: before it lie addresses of the window, too
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
    extensions: dict[int, bytes]  # without that of every guest:
    program_id: bytes


def _text(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode()


def parse_hello(body: bytes) -> Hello:
    fixed = frames.Hello.unpack(body)
    version, _, spec, nonce, pid, memory, devices, tenant, function, program, proof = fixed
    extensions: dict[int, bytes] = {}
    at = fixed.SIZE
    while at < len(body):
        kind, size = frames.ExtensionHead.unpack(body, at)
        at += frames.ExtensionHead.SIZE
        extensions[kind] = body[at : at + size]
        at += size
    signed = body[: fixed.SIZE - len(proof)] + body[fixed.SIZE :]
    texts = (_text(tenant), _text(function), _text(program))
    program_id = extensions.pop(frames.Extension.PROGRAM, b"")
    return Hello(version, spec, nonce, pid, memory, devices, *texts, proof, signed, extensions, program_id)


def greeting(nonce: bytes, build: int = operations.BUILD) -> bytes:
    """The body of GREETING."""
    return frames.Greeting(frames.MAGIC, frames.PROTOCOL_VERSION, build, nonce).pack()


@dataclass
class FakeServer:
    """Serves one connection after another, each on a thread of its own."""

    path: Path
    token: bytes = b"secret"
    quota: int = 64 * MIB
    window: tuple[int, int] = (WINDOW, 1 << 40)  # base and size
    granularity: int = 2 * MIB
    attributes: dict[int, int] = field(default_factory=dict)
    answer: Callable[[Frame], Answer | None] = lambda _: Answer()
    greeting: bytes | None = None
    build: int = operations.BUILD
    agreed: Callable[[Hello], bytes] = lambda _: b""
    """What WELCOME says of the agreement."""
    refusal: tuple[int, int, str] | None = None
    refuses_first: tuple[int, int, str] | None = None
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
        self.connection.sendall(frames.frame(op, body, request, status, flags))

    def reply(self, frame: Frame, answer: Answer) -> None:
        body = bytes(REPLY_SIZE[frame.name]) if answer.body is None else answer.body
        prefix = frames.ReplyPrefix(answer.latched, answer.latched_op, 0).pack()
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
        size, op, flags, request, context = frames.Header.unpack(self._read(frames.Header.SIZE))
        assert flags == 0
        return op, request, context, self._read(size - frames.Header.SIZE)

    def _session(self) -> None:
        self.send(Op.GREETING, self.greeting or greeting(self.nonce, self.build))
        op, _, _, body = self._frame()
        assert op == Op.HELLO
        self.hello = parse_hello(body)
        self.hellos.append(self.hello)
        if self.leave:
            places, seconds = self.leave.pop(0)
            for place in range(places, 0, -1):
                self.send(Op.QUEUED, frames.Queued(place, places).pack())
            time.sleep(seconds)
            return
        refusal, self.refuses_first = self.refuses_first or self.refusal, None
        if refusal is not None:
            reason, error, text = refusal
            self.send(Op.REFUSED, frames.Refused(reason, error).pack() + text.encode())
            return
        self.send(Op.WELCOME, self._welcome())
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
        proof = hmac.digest(token, frames.PROOF_SERVER + self.nonce + self.hello.nonce, "sha256")
        attributes = [0] * frames.ATTRIBUTE_COUNT
        limits = {1: 1024, 2: 1024, 3: 1024, 4: 64, 5: 2**31 - 1, 6: 65535, 7: 65535, 8: 49152, 10: 32}
        limits |= {11: 2**31 - 1, 12: 65536, 75: 8, 76: 0, 97: 166912}
        for index, value in (limits | self.attributes).items():
            attributes[index] = value
        session = frames.Welcome(proof, 7, *self.window, self.quota, self.granularity, 13050, 1, 1, 0, 0)
        device = frames.Device(
            name=b"fake device",
            uuid=bytes(range(16)),
            total_memory=1 << 33,
            stream_priority_least=0,
            stream_priority_greatest=-5,
            attribute_count=len(attributes),
            attributes=tuple(attributes),
            limits=tuple(range(frames.LIMIT_COUNT)),
        )
        return session.pack() + device.pack() + self.agreed(self.hello)


def expected_proof(server: FakeServer) -> bytes:
    """What HELLO must prove, if the guest holds the server's token."""
    assert server.hello is not None
    message = frames.PROOF_GUEST + server.nonce + server.hello.nonce + server.hello.signed
    return hmac.digest(server.token, message, "sha256")
