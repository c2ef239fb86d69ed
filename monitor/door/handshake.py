"""The handshake of specs/WIRE.md §2, without I/O: what to send, and what to make of the bytes that came."""

from __future__ import annotations

import enum
import functools
import hashlib
import hmac
import os
import struct
from dataclasses import dataclass, field
from typing import NamedTuple

from gpuferry.specs._generated import wire

from .tokens import proof as tenant_proof

HEADER = struct.Struct("<IHHIi")
GREETING = struct.Struct("<8sHH32s")
HELLO = struct.Struct("<HH32s32sIQI64s64s128s32s")
WELCOME = struct.Struct("<32sQ16sQ20sI")  # its beginning; the gaps are the API server's
REFUSED = struct.Struct("<II")
EXTENSION = struct.Struct("<HH")
REDIRECT = struct.Struct("<32s32sHH")
RESUME = struct.Struct("<HH32sQQ32s")
QUEUED = struct.Struct("<II")
RESUMED = struct.Struct("<32sQ")
RESTORE = struct.Struct("<QQ")

OP_GREETING, OP_HELLO, OP_WELCOME, OP_REFUSED = 0xFF01, 0xFF02, 0xFF03, 0xFF04
OP_REDIRECT, OP_QUEUED, OP_RESUMED, OP_RESUME = 0xFF06, 0xFF07, 0xFF08, 0xFF0A
RESUMABLE = 1  # flag in HELLO
ASK = 1  # flag in RESUME
MAGIC = b"GPUFERRY"
NONCE_SIZE = 32
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
    NO_SESSION = 9


class Extension(enum.IntEnum):
    """What may follow the proof in HELLO."""

    TICKET = 1
    LABELS = 2
    MAX_WAIT = 3  # milliseconds; this and the following are u32
    WALL_LIMIT = 4  # seconds
    IDLE_LIMIT = 5
    RESTORE = 6  # another GPU server hands a session over


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
    Reason.NO_SESSION: CudaError.DEVICE_UNAVAILABLE,
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


Labels = tuple[tuple[str, str], ...]


class Fields(NamedTuple):
    """What HELLO begins with; texts are padded with zeros."""

    version: int
    flags: int
    spec: bytes
    nonce: bytes
    pid: int
    memory: int
    devices: int
    tenant: bytes
    function: bytes
    program: bytes
    proof: bytes


class Claim(NamedTuple):
    """A HELLO that was read and is not believed yet."""

    body: bytes
    fields: Fields
    extensions: dict[Extension, bytes]
    server_nonce: bytes

    @property
    def tenant(self) -> bytes:
        """Who the guest says it is."""
        return self.fields.tenant.partition(b"\0")[0]

    @property
    def proof(self) -> bytes:
        """That it holds a token."""
        return self.fields.proof

    @property
    def message(self) -> bytes:
        """What the proof is over."""
        unproven = self.body[: HELLO.size - PROOF_SIZE] + self.body[HELLO.size :]
        return guest_message(self.server_nonce, self.fields.nonce, unproven)


@dataclass(frozen=True)
class Proven:
    """Who made the claim."""

    tenant: str | None  # None: as the guest says
    key: bytes = field(repr=False)  # the server proves itself with it
    invited: bool = False  # by a registry


@dataclass(frozen=True)
class Restore:
    """A session that comes from another GPU server."""

    session: int  # its number there
    age: float  # seconds


class Hello(NamedTuple):
    """What a guest that proved itself asks for."""

    nonce: bytes
    pid: int
    memory: int  # bytes; 0: the default quota
    tenant: str
    function: str
    program: str
    labels: Labels = ()
    max_wait: float = 0.0  # seconds in the queue; 0: as long as the monitor allows
    wall_limit: float = 0.0  # seconds; 0: as the monitor has it
    idle_limit: float = 0.0
    resumable: bool = False  # its session shall outlive its connection
    restore: Restore | None = None


@dataclass(frozen=True)
class Resume:
    """The wish to go on with a session on another connection; nobody believed it yet."""

    body: bytes
    server_nonce: bytes
    session: int
    received: int  # bytes of the session's stream
    asks: bool = False  # only whether there is such a session

    def answer(self, key: bytes) -> bytes | None:
        """The proof for RESUMED, if the guest holds the session's key."""
        claimed = hmac.digest(
            key, b"gpuferry resume 1" + self.server_nonce + self.body[:-PROOF_SIZE], hashlib.sha256
        )
        if not hmac.compare_digest(claimed, self.body[-PROOF_SIZE:]):
            return None
        return hmac.digest(key, b"gpuferry resumed 1" + self.server_nonce + self.body, hashlib.sha256)


def read_resume(body: bytes, server_nonce: bytes) -> Resume:
    """What a guest wants that says RESUME."""
    if len(body) != RESUME.size:
        raise Refusal(Reason.MALFORMED, f"RESUME body of {len(body)} bytes: it has {RESUME.size}")
    version, flags, _, session, received, _ = RESUME.unpack(body)
    if version != wire.PROTOCOL_VERSION:
        raise Refusal(Reason.VERSION, f"the guest speaks protocol version {version}{ADVICE}")
    return Resume(body, server_nonce, session, received, bool(flags & ASK))


@functools.lru_cache(maxsize=4)
def _taken_in(key: bytes) -> hmac.HMAC:
    return hmac.new(key, digestmod=hashlib.sha256)


def mac(key: bytes, message: bytes) -> bytes:
    """An HMAC. To take the key in is half of its cost, and the key is mostly this monitor's own."""
    copy = _taken_in(key).copy()
    copy.update(message)
    return copy.digest()


def resume_key(key: bytes, nonces: bytes) -> bytes:
    """What only a session's two ends know; `key` is the one that the server proved itself with."""
    return mac(key, b"gpuferry resume key 1" + nonces)


def _frame(op: int, body: bytes) -> bytes:
    return HEADER.pack(HEADER.size + len(body), op, 0, 0, 0) + body


_GREETING = _frame(OP_GREETING, GREETING.pack(MAGIC, wire.PROTOCOL_VERSION, 0, b""))[:-NONCE_SIZE]


def greeting(nonce: bytes) -> bytes:
    """The GREETING frame."""
    return _GREETING + nonce


def first_frame(data: bytes) -> tuple[int, bool]:
    """The size of what should be a HELLO or a RESUME and begins like this, and whether it is a RESUME."""
    size, op, flags, request, context = HEADER.unpack_from(data)
    if op not in (OP_HELLO, OP_RESUME) or flags or request or context:
        raise Refusal(
            Reason.MALFORMED, "the first frame is not a HELLO: this port speaks gpuferry's protocol"
        )
    if not HEADER.size + 2 <= size <= FRAME_MAX:
        raise Refusal(Reason.MALFORMED, f"HELLO of {size} bytes: at most {FRAME_MAX} are allowed")
    return size, op == OP_RESUME


def _text(field: bytes, name: str) -> str:
    try:
        text = field.partition(b"\0")[0].decode()
    except UnicodeDecodeError:
        raise Refusal(Reason.MALFORMED, f"HELLO: {name} is not UTF-8") from None
    if not text.isprintable():
        raise Refusal(Reason.MALFORMED, f"HELLO: {name} holds control characters")
    return text


def guest_message(server_nonce: bytes, guest_nonce: bytes, unproven: bytes) -> bytes:
    """What a guest proves; `unproven` is the HELLO body without the proof."""
    return b"gpuferry guest 1" + server_nonce + guest_nonce + unproven


def guest_proof(token: bytes, server_nonce: bytes, guest_nonce: bytes, unproven: bytes) -> bytes:
    """What the guest sends to show that it holds the token."""
    message = guest_message(server_nonce, guest_nonce, unproven)
    text = token.decode(errors="replace")
    if tenant_proof.tenant_of(text):
        return tenant_proof.prove(text, message)
    return hmac.digest(token, message, hashlib.sha256)


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
        (tenant_proof.tenant_of(token.decode()) or "").encode(),
        b"",
        program.encode(),
    )
    unproven = HELLO.pack(*fields, b"")[:-PROOF_SIZE]
    return _frame(OP_HELLO, unproven + guest_proof(token, server_nonce, nonce, unproven))


def server_proof(token: bytes, server_nonce: bytes, guest_nonce: bytes) -> bytes:
    """What WELCOME carries to show the same of the server."""
    return mac(token, b"gpuferry server 1" + server_nonce + guest_nonce)


def welcome(template: bytes, proof: bytes, session: int, quota: int, resume_ms: int) -> bytes:
    """The WELCOME frame; the template is the API server's."""
    header, rest = template[: HEADER.size], template[HEADER.size + WELCOME.size :]
    _, _, window, _, terms, _ = WELCOME.unpack_from(template, HEADER.size)
    return header + WELCOME.pack(proof, session, window, quota, terms, resume_ms) + rest


def redirect(key: bytes, nonces: bytes, session_key: bytes, ticket: bytes, address: str) -> bytes:
    """The REDIRECT frame. Only a guest that holds the token can read the session key in it."""
    mask = hmac.digest(key, b"gpuferry redirect key 1" + nonces, hashlib.sha256)
    hidden = bytes(a ^ b for a, b in zip(session_key, mask, strict=True))
    where = address.encode()
    unproven = REDIRECT.pack(b"", hidden, len(ticket), len(where))[PROOF_SIZE:] + ticket + where
    proof = hmac.digest(key, b"gpuferry redirect 1" + nonces + unproven, hashlib.sha256)
    return _frame(OP_REDIRECT, proof + unproven)


def resumed(proof: bytes) -> bytes:
    """The RESUMED frame for somebody who only asked."""
    return _frame(OP_RESUMED, RESUMED.pack(proof, 0))


def restoring_hello(key: bytes, server_nonce: bytes, nonce: bytes, wish: Hello, extensions: bytes) -> bytes:
    """A HELLO frame with which this GPU server hands a session over; `key` proves that it may."""
    fields = (
        wire.PROTOCOL_VERSION,
        RESUMABLE if wish.resumable else 0,
        wire.SPEC_HASH,
        nonce,
        wish.pid,
        wish.memory,
        1,
        *(text.encode() for text in (wish.tenant, wish.function, wish.program)),
    )
    unproven = HELLO.pack(*fields, b"")[:-PROOF_SIZE]
    proof = hmac.digest(key, guest_message(server_nonce, nonce, unproven + extensions), hashlib.sha256)
    return _frame(OP_HELLO, unproven + proof + extensions)


def extension(kind: Extension, value: bytes) -> bytes:
    """As it stands in HELLO."""
    return EXTENSION.pack(kind, len(value)) + value


def queued(position: int, length: int) -> bytes:
    """The QUEUED frame: the guest waits in this place of so many."""
    return _frame(OP_QUEUED, QUEUED.pack(position, length))


def _extensions(data: bytes) -> dict[Extension, bytes]:
    found: dict[Extension, bytes] = {}
    while data:
        if len(data) < EXTENSION.size:
            raise Refusal(Reason.MALFORMED, "HELLO: an extension is cut off")
        kind, size = EXTENSION.unpack_from(data)
        value, data = data[EXTENSION.size : EXTENSION.size + size], data[EXTENSION.size + size :]
        if len(value) != size or kind not in tuple(Extension) or kind in found:
            raise Refusal(Reason.MALFORMED, f"HELLO: extension {kind} is cut off, unknown or there twice")
        found[Extension(kind)] = value
    return found


def read_hello(body: bytes, server_nonce: bytes) -> Claim:
    """What the guest claims, or the Refusal it earns. Nothing but the version is judged without proof."""
    version = int.from_bytes(body[:2], "little")
    if version != wire.PROTOCOL_VERSION:
        raise Refusal(
            Reason.VERSION,
            f"the guest speaks protocol version {version}, this server {wire.PROTOCOL_VERSION}{ADVICE}",
        )
    if len(body) < HELLO.size:
        raise Refusal(
            Reason.MALFORMED, f"HELLO body of {len(body)} bytes: version {version} has {HELLO.size}"
        )
    fields = Fields._make(HELLO.unpack_from(body))
    return Claim(body, fields, _extensions(body[HELLO.size :]), server_nonce)


def _labels(data: bytes) -> Labels:
    """`zone=a,gpu=h100`."""
    pairs = [item.strip().partition("=") for item in _text(data, "labels").split(",") if item.strip()]
    if not all(name and sign for name, sign, _ in pairs):
        raise Refusal(Reason.BAD_REQUEST, "GPUFERRY_LABELS: write NAME=VALUE,NAME=VALUE")
    return tuple((name, value) for name, _, value in pairs)


def _number(claim: Claim, kind: Extension) -> int:
    value = claim.extensions.get(kind, bytes(4))
    if len(value) != 4:
        raise Refusal(Reason.MALFORMED, f"HELLO: extension {kind} of {len(value)} bytes")
    return int.from_bytes(value, "little")


def _restore(claim: Claim, proven: Proven) -> Restore | None:
    value = claim.extensions.get(Extension.RESTORE)
    if value is None:
        return None
    if len(value) != RESTORE.size:
        raise Refusal(Reason.MALFORMED, f"HELLO: extension {Extension.RESTORE} of {len(value)} bytes")
    if proven.tenant is not None and not proven.invited:
        raise Refusal(Reason.DENIED, "only a GPU server hands a session over")
    session, milliseconds = RESTORE.unpack(value)
    return Restore(session, milliseconds / 1000)


def accept_hello(claim: Claim, proven: Proven | None) -> Hello:
    """The request of a guest that proved itself, or the Refusal it earns."""
    if proven is None:
        raise Refusal(Reason.DENIED, "wrong token: GPUFERRY_TOKEN of the program is not this monitor's")
    said = claim.fields
    if said.spec != wire.SPEC_HASH:
        theirs, ours = said.spec.hex(), wire.SPEC_HASH.hex()
        raise Refusal(Reason.SPEC, f"the guest was built from spec {theirs}, this server from {ours}{ADVICE}")
    if said.devices > 1:
        raise Refusal(Reason.BAD_REQUEST, f"{said.devices} devices asked for: a session has one")
    hello = Hello(
        said.nonce,
        said.pid,
        said.memory,
        _text(said.tenant, "tenant") if proven.tenant is None else proven.tenant,
        _text(said.function, "function"),
        _text(said.program, "program"),
        resumable=bool(said.flags & RESUMABLE),
    )
    return _extended(hello, claim, proven) if claim.extensions else hello


def _extended(hello: Hello, claim: Claim, proven: Proven) -> Hello:
    return hello._replace(
        # A registry that sent the guest has chosen by them already.
        labels=() if proven.invited else _labels(claim.extensions.get(Extension.LABELS, b"")),
        max_wait=_number(claim, Extension.MAX_WAIT) / 1000,
        wall_limit=_number(claim, Extension.WALL_LIMIT),
        idle_limit=_number(claim, Extension.IDLE_LIMIT),
        restore=_restore(claim, proven),
    )
