"""The handshake of specs/WIRE.md §2, without I/O: what to send, and what to make of the bytes that came."""

from __future__ import annotations

import enum
import hashlib
import hmac
import os
import struct
from dataclasses import dataclass

from gpuferry.specs._generated import wire

HEADER = struct.Struct("<IHHIi")
GREETING = struct.Struct("<8sHH32s")
HELLO = struct.Struct("<HH32s32sIQI64s64s128s32s")
REFUSED = struct.Struct("<II")

OP_GREETING, OP_HELLO, OP_WELCOME, OP_REFUSED = 0xFF01, 0xFF02, 0xFF03, 0xFF04
MAGIC = b"GPUFERRY"
PROOF_SIZE = 32
FRAME_MAX = 64 * 1024
TEXT_MAX = 1024
ADVICE = ": install the same gpuferry on both machines"


class Reason(enum.IntEnum):
    """Why a session is refused, as on the wire."""

    VERSION = 1
    SPEC = 2
    DENIED = 3
    NO_CAPACITY = 4
    BAD_REQUEST = 5
    SHUTTING_DOWN = 6
    MALFORMED = 7


class CudaError(enum.IntEnum):
    """The CUresult values that a refused guest hands to its program."""

    INVALID_VALUE = 1
    OUT_OF_MEMORY = 2
    DEVICE_UNAVAILABLE = 46
    NOT_PERMITTED = 800
    SYSTEM_NOT_READY = 802
    SYSTEM_DRIVER_MISMATCH = 803
    UNKNOWN = 999


_ERRORS = {
    Reason.VERSION: CudaError.SYSTEM_DRIVER_MISMATCH,
    Reason.SPEC: CudaError.SYSTEM_DRIVER_MISMATCH,
    Reason.DENIED: CudaError.NOT_PERMITTED,
    Reason.NO_CAPACITY: CudaError.DEVICE_UNAVAILABLE,
    Reason.BAD_REQUEST: CudaError.INVALID_VALUE,
    Reason.SHUTTING_DOWN: CudaError.SYSTEM_NOT_READY,
    Reason.MALFORMED: CudaError.UNKNOWN,
}


class Refusal(Exception):
    """The guest gets no session, and is told why."""

    def __init__(self, reason: Reason, text: str, error: CudaError | None = None) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text
        self.error = error or _ERRORS[reason]

    def frame(self) -> bytes:
        """The REFUSED frame."""
        return _frame(OP_REFUSED, REFUSED.pack(self.reason, self.error) + self.text.encode()[:TEXT_MAX])


@dataclass(frozen=True)
class Hello:
    """What a guest that proved itself asks for."""

    nonce: bytes
    pid: int
    memory: int  # bytes; 0: the default quota
    tenant: str
    function: str
    program: str


def _frame(op: int, body: bytes) -> bytes:
    return HEADER.pack(HEADER.size + len(body), op, 0, 0, 0) + body


def greeting(nonce: bytes) -> bytes:
    """The GREETING frame."""
    return _frame(OP_GREETING, GREETING.pack(MAGIC, wire.PROTOCOL_VERSION, 0, nonce))


def hello_body_size(header: bytes) -> int:
    """How many bytes follow this header of what should be a HELLO."""
    size, op, flags, request, context = HEADER.unpack(header)
    if op != OP_HELLO or flags or request or context:
        raise Refusal(
            Reason.MALFORMED, "the first frame is not a HELLO: this port speaks gpuferry's protocol"
        )
    if not HEADER.size + 2 <= size <= FRAME_MAX:
        raise Refusal(Reason.MALFORMED, f"HELLO of {size} bytes: at most {FRAME_MAX} are allowed")
    return int(size - HEADER.size)


def _text(field: bytes, name: str) -> str:
    try:
        text = field.partition(b"\0")[0].decode()
    except UnicodeDecodeError:
        raise Refusal(Reason.MALFORMED, f"HELLO: {name} is not UTF-8") from None
    if not text.isprintable():
        raise Refusal(Reason.MALFORMED, f"HELLO: {name} holds control characters")
    return text


def guest_proof(token: bytes, server_nonce: bytes, guest_nonce: bytes, unproven: bytes) -> bytes:
    """What the guest sends to show that it holds the token; `unproven` is the HELLO body up to the proof."""
    return hmac.new(
        token, b"gpuferry guest 1" + server_nonce + guest_nonce + unproven, hashlib.sha256
    ).digest()


def hello(token: bytes, server_nonce: bytes, nonce: bytes, devices: int, program: str) -> bytes:
    """A HELLO frame: `gpuferry doctor` is the one guest that is written in Python."""
    fields = (
        wire.PROTOCOL_VERSION,
        0,
        wire.SPEC_HASH,
        nonce,
        os.getpid(),
        0,
        devices,
        b"",
        b"",
        program.encode(),
    )
    unproven = HELLO.pack(*fields, b"")[:-PROOF_SIZE]
    return _frame(OP_HELLO, unproven + guest_proof(token, server_nonce, nonce, unproven))


def server_proof(token: bytes, server_nonce: bytes, guest_nonce: bytes) -> bytes:
    """What WELCOME carries to show the same of the server."""
    return hmac.new(token, b"gpuferry server 1" + server_nonce + guest_nonce, hashlib.sha256).digest()


def check_hello(body: bytes, server_nonce: bytes, token: bytes) -> Hello:
    """The guest's request, or the Refusal it earns. Nothing but the version is believed without proof."""
    (version,) = struct.unpack_from("<H", body)
    if version != wire.PROTOCOL_VERSION:
        raise Refusal(
            Reason.VERSION,
            f"the guest speaks protocol version {version}, this server {wire.PROTOCOL_VERSION}{ADVICE}",
        )
    if len(body) != HELLO.size:
        raise Refusal(
            Reason.MALFORMED, f"HELLO body of {len(body)} bytes: version {version} has {HELLO.size}"
        )
    _, _, spec, nonce, pid, memory, devices, tenant, function, program, proof = HELLO.unpack(body)
    expected = guest_proof(token, server_nonce, nonce, body[:-PROOF_SIZE])
    if not hmac.compare_digest(proof, expected):
        raise Refusal(Reason.DENIED, "wrong token: GPUFERRY_TOKEN of the program is not this monitor's")
    if spec != wire.SPEC_HASH:
        raise Refusal(
            Reason.SPEC,
            f"the guest was built from spec {spec.hex()}, this server from {wire.SPEC_HASH.hex()}{ADVICE}",
        )
    if devices > 1:
        raise Refusal(Reason.BAD_REQUEST, f"{devices} devices asked for: a session has one")
    return Hello(
        nonce=nonce,
        pid=pid,
        memory=memory,
        tenant=_text(tenant, "tenant"),
        function=_text(function, "function"),
        program=_text(program, "program"),
    )
