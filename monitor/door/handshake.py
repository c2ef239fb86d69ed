"""The handshake of specs/WIRE.md §2, without I/O: what to send, and what to make of the bytes that came."""

from __future__ import annotations

import enum
import functools
import hashlib
import hmac
import os
from dataclasses import dataclass, field
from typing import NamedTuple

from gpuferry.specs._generated import frames, operations
from gpuferry.specs._generated.frames import Extension as Extension
from gpuferry.specs._generated.frames import Frame, HelloFlag, ResumeFlag
from gpuferry.specs._generated.frames import Reason as Reason

from .agreement import SAME, Agreement, Malformed, Offer, agree, offer
from .tokens import proof as tenant_proof

ADVICE = ": install the same gpuferry on both machines"


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
        said = self.text.encode()[: frames.REFUSAL_TEXT_MAX]
        return frames.frame(Frame.REFUSED, frames.Refused(self.reason, self.error).pack() + said)


Labels = tuple[tuple[str, str], ...]


class Claim(NamedTuple):
    """A HELLO that was read and is not believed yet."""

    body: bytes
    fields: frames.Hello
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
        unproven = self.body[: frames.Hello.SIZE - frames.HASH_SIZE] + self.body[frames.Hello.SIZE :]
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
    agreement: Agreement = SAME  # which operations both speak


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
        unproven, proof = self.body[: -frames.HASH_SIZE], self.body[-frames.HASH_SIZE :]
        claimed = hmac.digest(key, frames.PROOF_RESUME + self.server_nonce + unproven, hashlib.sha256)
        if not hmac.compare_digest(claimed, proof):
            return None
        return hmac.digest(key, frames.PROOF_RESUMED + self.server_nonce + self.body, hashlib.sha256)


def read_resume(body: bytes, server_nonce: bytes) -> Resume:
    """What a guest wants that says RESUME."""
    if len(body) != frames.Resume.SIZE:
        raise Refusal(Reason.MALFORMED, f"RESUME body of {len(body)} bytes: it has {frames.Resume.SIZE}")
    said = frames.Resume.unpack(body)
    if said.version != frames.PROTOCOL_VERSION:
        raise Refusal(Reason.VERSION, f"the guest speaks protocol version {said.version}{ADVICE}")
    return Resume(body, server_nonce, said.session, said.received, bool(said.flags & ResumeFlag.ASK))


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
    return mac(key, frames.KEY_RESUME + nonces)


_GREETING = frames.frame(
    Frame.GREETING, frames.Greeting(frames.MAGIC, frames.PROTOCOL_VERSION, operations.BUILD, b"").pack()
)[: -frames.NONCE_SIZE]


def greeting(nonce: bytes) -> bytes:
    """The GREETING frame."""
    return _GREETING + nonce


def first_frame(data: bytes) -> tuple[int, bool]:
    """The size of what should be a HELLO or a RESUME and begins like this, and whether it is a RESUME."""
    size, op, flags, request, context = frames.Header.unpack(data)
    if op not in (Frame.HELLO, Frame.RESUME) or flags or request or context:
        raise Refusal(
            Reason.MALFORMED, "the first frame is not a HELLO: this port speaks gpuferry's protocol"
        )
    if not frames.Header.SIZE + 2 <= size <= frames.HANDSHAKE_FRAME_MAX:
        raise Refusal(
            Reason.MALFORMED, f"HELLO of {size} bytes: at most {frames.HANDSHAKE_FRAME_MAX} are allowed"
        )
    return size, op == Frame.RESUME


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
    return frames.PROOF_GUEST + server_nonce + guest_nonce + unproven


def guest_proof(token: bytes, server_nonce: bytes, guest_nonce: bytes, unproven: bytes) -> bytes:
    """What the guest sends to show that it holds the token."""
    message = guest_message(server_nonce, guest_nonce, unproven)
    text = token.decode(errors="replace")
    if tenant_proof.tenant_of(text):
        return tenant_proof.prove(text, message)
    return hmac.digest(token, message, hashlib.sha256)


def hello(token: bytes, greeting: frames.Greeting, nonce: bytes, devices: int, program: str) -> bytes:
    """A HELLO frame: `gpuferry doctor` is the one guest that is written in Python."""
    offered = offer(greeting.build)
    fields = frames.Hello(
        version=frames.PROTOCOL_VERSION,
        flags=0,
        spec_hash=offered.spec_hash,
        nonce=nonce,
        pid=os.getpid(),
        memory=0,
        devices=devices,
        tenant=(tenant_proof.tenant_of(token.decode()) or "").encode(),
        function=b"",
        program=program.encode(),
        proof=b"",
    )
    unproven, rest = fields.pack()[: -frames.HASH_SIZE], offered.extensions
    proof = guest_proof(token, greeting.nonce, nonce, unproven + rest)
    return frames.frame(Frame.HELLO, unproven + proof + rest)


def server_proof(token: bytes, server_nonce: bytes, guest_nonce: bytes) -> bytes:
    """What WELCOME carries to show the same of the server."""
    return mac(token, frames.PROOF_SERVER + server_nonce + guest_nonce)


def welcome(
    template: bytes, proof: bytes, session: int, quota: int, resume_ms: int, agreed: bytes = b""
) -> bytes:
    """The WELCOME frame; the template is the API server's. `agreed`: what it says of the agreement."""
    begin, end = frames.Header.SIZE, frames.Header.SIZE + frames.Welcome.SIZE
    terms = frames.Welcome.unpack(template, begin)
    granted = terms._replace(proof=proof, session=session, quota=quota, resume_ms=resume_ms)
    body = granted.pack() + template[end:] + agreed
    return frames.frame(Frame.WELCOME, body) if agreed else template[:begin] + body


def redirect(key: bytes, nonces: bytes, session_key: bytes, ticket: bytes, address: str) -> bytes:
    """The REDIRECT frame. Only a guest that holds the token can read the session key in it."""
    mask = hmac.digest(key, frames.KEY_REDIRECT + nonces, hashlib.sha256)
    hidden = bytes(a ^ b for a, b in zip(session_key, mask, strict=True))
    where = address.encode()
    fields = frames.Redirect(b"", hidden, len(ticket), len(where))
    unproven = fields.pack()[frames.HASH_SIZE :] + ticket + where
    proof = hmac.digest(key, frames.PROOF_REDIRECT + nonces + unproven, hashlib.sha256)
    return frames.frame(Frame.REDIRECT, proof + unproven)


def resumed(proof: bytes) -> bytes:
    """The RESUMED frame for somebody who only asked."""
    return frames.frame(Frame.RESUMED, frames.Resumed(proof, 0).pack())


def restoring_hello(
    key: bytes, server_nonce: bytes, nonce: bytes, wish: Hello, offered: Offer, extensions: bytes
) -> bytes:
    """A HELLO frame with which this GPU server hands a session over; `key` proves that it may."""
    fields = frames.Hello(
        version=frames.PROTOCOL_VERSION,
        flags=HelloFlag.RESUMABLE if wish.resumable else 0,
        spec_hash=offered.spec_hash,
        nonce=nonce,
        pid=wish.pid,
        memory=wish.memory,
        devices=1,
        tenant=wish.tenant.encode(),
        function=wish.function.encode(),
        program=wish.program.encode(),
        proof=b"",
    )
    unproven, rest = fields.pack()[: -frames.HASH_SIZE], offered.extensions + extensions
    proof = hmac.digest(key, guest_message(server_nonce, nonce, unproven + rest), hashlib.sha256)
    return frames.frame(Frame.HELLO, unproven + proof + rest)


def extension(kind: Extension, value: bytes) -> bytes:
    """As it stands in HELLO."""
    return frames.ExtensionHead(kind, len(value)).pack() + value


def queued(position: int, length: int) -> bytes:
    """The QUEUED frame: the guest waits in this place of so many."""
    return frames.frame(Frame.QUEUED, frames.Queued(position, length).pack())


def _extensions(data: bytes) -> dict[Extension, bytes]:
    found: dict[Extension, bytes] = {}
    while data:
        if len(data) < frames.ExtensionHead.SIZE:
            raise Refusal(Reason.MALFORMED, "HELLO: an extension is cut off")
        kind, size = frames.ExtensionHead.unpack(data)
        end = frames.ExtensionHead.SIZE + size
        value, data = data[frames.ExtensionHead.SIZE : end], data[end:]
        if len(value) != size or kind not in tuple(Extension) or kind in found:
            raise Refusal(Reason.MALFORMED, f"HELLO: extension {kind} is cut off, unknown or there twice")
        found[Extension(kind)] = value
    return found


def read_hello(body: bytes, server_nonce: bytes) -> Claim:
    """What the guest claims, or the Refusal it earns. Nothing but the version is judged without proof."""
    version = int.from_bytes(body[:2], "little")
    if version != frames.PROTOCOL_VERSION:
        raise Refusal(
            Reason.VERSION,
            f"the guest speaks protocol version {version}, this server {frames.PROTOCOL_VERSION}{ADVICE}",
        )
    size = frames.Hello.SIZE
    if len(body) < size:
        raise Refusal(Reason.MALFORMED, f"HELLO body of {len(body)} bytes: version {version} has {size}")
    return Claim(body, frames.Hello.unpack(body), _extensions(body[size:]), server_nonce)


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
    if len(value) != frames.Restore.SIZE:
        raise Refusal(Reason.MALFORMED, f"HELLO: extension {Extension.RESTORE} of {len(value)} bytes")
    if proven.tenant is not None and not proven.invited:
        raise Refusal(Reason.DENIED, "only a GPU server hands a session over")
    said = frames.Restore.unpack(value)
    return Restore(said.session, said.age_ms / 1000)


def accept_hello(claim: Claim, proven: Proven | None) -> Hello:
    """The request of a guest that proved itself, or the Refusal it earns."""
    if proven is None:
        raise Refusal(Reason.DENIED, "wrong token: GPUFERRY_TOKEN of the program is not this monitor's")
    said = claim.fields
    try:
        agreement = agree(said.spec_hash, claim.extensions)
    except Malformed as error:
        raise Refusal(Reason.MALFORMED, f"HELLO: {error}") from None
    if agreement is None:
        theirs = said.spec_hash.hex()
        raise Refusal(
            Reason.SPEC,
            f"the guest was built from spec {theirs}, which is of no release that this server, "
            f"{operations.VERSION}, knows: it cannot tell what both understand{ADVICE}",
        )
    if said.devices > 1:
        raise Refusal(Reason.BAD_REQUEST, f"{said.devices} devices asked for: a session has one")
    hello = Hello(
        said.nonce,
        said.pid,
        said.memory,
        _text(said.tenant, "tenant") if proven.tenant is None else proven.tenant,
        _text(said.function, "function"),
        _text(said.program, "program"),
        resumable=bool(said.flags & HelloFlag.RESUMABLE),
        agreement=agreement,
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
