"""The handshake of specs/WIRE.md §2, without I/O: what to send, and what to make of the bytes that came."""

from __future__ import annotations

import enum
import functools
import hashlib
import hmac
import os
from dataclasses import dataclass, field
from typing import NamedTuple

from gpuferry.guest.portion import LABEL, LABEL_MOST
from gpuferry.specs._generated import frames, operations
from gpuferry.specs._generated.frames import Extension as Extension
from gpuferry.specs._generated.frames import Frame, HelloFlag, ResumeFlag
from gpuferry.specs._generated.frames import Reason as Reason

from ..policy.portion import FULL, PLAIN, Portion
from .agreement import SAME, SHARING, Agreement, Malformed, Offer, agree, offer
from .mac import mac
from .tokens import proof as tenant_proof

LABELS_MOST = 1024  # bytes: they are kept, compared and shown for as long as the guest waits
LIFE_MOST = 1_000_000_000  # seconds; nothing lives longer, and API servers believe no more
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
    """Raised where a guest gets no session. `text` is for its user, `error` is what its program gets."""

    def __init__(self, reason: Reason, text: str, error: CudaError | None = None) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text
        self.error = error or _ERRORS[reason]

    def frame(self) -> bytes:
        """The REFUSED frame that tells the guest; its text is cut to 1024 bytes."""
        said = self.text.encode()[: frames.REFUSAL_TEXT_MAX]
        return frames.frame(Frame.REFUSED, frames.Refused(self.reason, self.error).pack() + said)


Labels = tuple[tuple[str, str], ...]


class Claim(NamedTuple):
    """A HELLO that was read, whose proof was not checked yet."""

    body: bytes
    fields: frames.Hello
    extensions: dict[Extension, bytes]
    server_nonce: bytes

    @property
    def tenant(self) -> bytes:
        """The tenant that the guest says it is, without padding; empty: it names none."""
        return self.fields.tenant.partition(b"\0")[0]

    @property
    def proof(self) -> bytes:
        """The 32 bytes with which the guest wants to prove that it holds a token."""
        return self.fields.proof

    @property
    def message(self) -> bytes:
        """The bytes that the proof is over."""
        unproven = self.body[: frames.Hello.SIZE - frames.HASH_SIZE] + self.body[frames.Hello.SIZE :]
        return guest_message(self.server_nonce, self.fields.nonce, unproven)


@dataclass(frozen=True)
class Proven:
    """A claim whose proof was right, and who made it."""

    tenant: str | None  # None: as the guest says
    key: bytes = field(repr=False)  # the server proves itself with it
    invited: bool = False  # by a registry
    vouched: bool = False  # the name it gives itself: where it is sent to, that is proven


@dataclass(frozen=True)
class Restore:
    """What another GPU server says of a session that it hands over."""

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
    devices: int = 1
    labels: Labels = ()
    max_wait: float = 0.0  # seconds in the queue; 0: as long as the monitor allows
    wall_limit: float = 0.0  # seconds; 0: as the monitor has it
    idle_limit: float = 0.0
    resumable: bool = False  # its session shall outlive its connection
    restore: Restore | None = None
    agreement: Agreement = SAME  # which operations both speak
    looks: bool = False  # it wants no session, only to see what its program has
    program_id: bytes = b""  # a digest of what the processes of its program, and of its tenant, know
    proven: bool = False  # the tenant is: by a token of its own, or by the registry
    portion: Portion = PLAIN  # of each device's time, and its company there


@dataclass(frozen=True)
class Resume:
    """A guest's wish to go on with its session on this connection. The proof was not checked yet."""

    body: bytes
    server_nonce: bytes
    session: int
    received: int  # bytes of the session's stream
    asks: bool = False  # only whether there is such a session

    def answer(self, key: bytes) -> bytes | None:
        """The proof for RESUMED, 32 bytes, if the guest's own proof was made with `key`; else None."""
        unproven, proof = self.body[: -frames.HASH_SIZE], self.body[-frames.HASH_SIZE :]
        claimed = hmac.digest(key, frames.PROOF_RESUME + self.server_nonce + unproven, hashlib.sha256)
        if not hmac.compare_digest(claimed, proof):
            return None
        return hmac.digest(key, frames.PROOF_RESUMED + self.server_nonce + self.body, hashlib.sha256)


def read_resume(body: bytes, server_nonce: bytes) -> Resume:
    """Read the body of a RESUME. Raises Refusal if its size or protocol version is wrong."""
    if len(body) != frames.Resume.SIZE:
        raise Refusal(Reason.MALFORMED, f"RESUME body of {len(body)} bytes: it has {frames.Resume.SIZE}")
    said = frames.Resume.unpack(body)
    if said.version != frames.PROTOCOL_VERSION:
        raise Refusal(Reason.VERSION, f"the guest speaks protocol version {said.version}{ADVICE}")
    return Resume(body, server_nonce, said.session, said.received, bool(said.flags & ResumeFlag.ASK))


def resume_key(key: bytes, nonces: bytes) -> bytes:
    """The key that only a session's two ends know, 32 bytes. `key`: the one with which the server proved
    itself.
    """
    return mac(key, frames.KEY_RESUME + nonces)


_GREETING = frames.frame(
    Frame.GREETING, frames.Greeting(frames.MAGIC, frames.PROTOCOL_VERSION, operations.BUILD, b"").pack()
)[: -frames.NONCE_SIZE]


def greeting(nonce: bytes) -> bytes:
    """The GREETING frame with this nonce of 32 bytes."""
    return _GREETING + nonce


def first_frame(data: bytes) -> tuple[int, bool]:
    """The size of what should be a HELLO or a RESUME and begins like this, and whether it is a RESUME."""
    size, op, flags, request, context = frames.Header.LAYOUT.unpack_from(data)
    if op not in _FIRST or flags or request or context:
        raise Refusal(
            Reason.MALFORMED, "the first frame is not a HELLO: this port speaks gpuferry's protocol"
        )
    if not frames.Header.SIZE + 2 <= size <= frames.HANDSHAKE_FRAME_MAX:
        raise Refusal(
            Reason.MALFORMED, f"HELLO of {size} bytes: at most {frames.HANDSHAKE_FRAME_MAX} are allowed"
        )
    return size, op == _FIRST[1]


_FIRST = (Frame.HELLO.value, Frame.RESUME.value)  # plain numbers compare ten times as fast


def _file_name(field: bytes) -> str:
    """Guests know which bytes are UTF-8, but not which characters can be shown, and nobody chose this name
    for us.
    """
    try:
        said = field.partition(b"\0")[0].decode()
    except UnicodeDecodeError:
        raise Refusal(Reason.MALFORMED, "HELLO: program is not UTF-8") from None
    if said.isprintable():  # nearly always, and to look at each letter would be a quarter of reading a HELLO
        return said
    return "".join(letter if letter.isprintable() else "?" for letter in said)


def _text(field: bytes, name: str) -> str:
    said = field.partition(b"\0")[0]
    if not said:
        return ""
    try:
        text = said.decode()
    except UnicodeDecodeError:
        raise Refusal(Reason.MALFORMED, f"HELLO: {name} is not UTF-8") from None
    if not text.isprintable():
        raise Refusal(Reason.MALFORMED, f"HELLO: {name} holds control characters")
    return text


def guest_message(server_nonce: bytes, guest_nonce: bytes, unproven: bytes) -> bytes:
    """The bytes that a guest's proof is over; `unproven` is the body of HELLO without the proof."""
    return frames.PROOF_GUEST + server_nonce + guest_nonce + unproven


def guest_proof(token: bytes, server_nonce: bytes, guest_nonce: bytes, unproven: bytes) -> bytes:
    """A guest's proof that it holds the token, a monitor's or a tenant's; 32 bytes. `unproven`: as in
    guest_message.
    """
    message = guest_message(server_nonce, guest_nonce, unproven)
    text = token.decode(errors="replace")
    if tenant_proof.tenant_of(text):
        return tenant_proof.prove(text, message)
    return hmac.digest(token, message, hashlib.sha256)


def hello(token: bytes, greeting: frames.Greeting, nonce: bytes, devices: int, program: str) -> bytes:
    """A HELLO frame as the guest library would send it, for `gpuferry doctor`, which asks as a guest does."""
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
    """The proof in WELCOME that the server holds the token too, 32 bytes."""
    return mac(token, frames.PROOF_SERVER + server_nonce + guest_nonce)


def welcome(
    template: bytes, proof: bytes, session: int, quota: int, resume_ms: int, agreed: bytes = b""
) -> bytes:
    """The WELCOME frame of a session, from the API server's template. `quota` in bytes, `resume_ms` in
    milliseconds; `agreed`: the bytes of struct gf_agreement and what follows, and of struct
    gf_membership; empty if nothing must be said.
    """
    head, rest = _parts_of_welcome(template, quota, resume_ms)
    body = proof + session.to_bytes(_SESSION_BYTES, "little") + rest
    return frames.frame(Frame.WELCOME, body + agreed) if agreed else head + body


_SESSION_BYTES = 8


@functools.lru_cache(maxsize=512)
def _parts_of_welcome(template: bytes, quota: int, resume_ms: int) -> tuple[bytes, bytes]:
    """Its header, and what follows proof and session: the same for all who are granted the same."""
    begin = frames.Header.SIZE
    terms = frames.Welcome.unpack(template, begin)._replace(quota=quota, resume_ms=resume_ms)
    own = frames.HASH_SIZE + _SESSION_BYTES  # of the guest alone
    return template[:begin], terms.pack()[own:] + template[begin + terms.SIZE :]


def membership(lease: int, shared: bool) -> bytes:
    """What WELCOME tells at its end of the guest's lease, and whether other processes have that too."""
    return frames.Membership(lease, shared).pack()


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
    """The RESUMED frame for somebody who only asked whether there is such a session."""
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
        devices=wish.devices,
        tenant=wish.tenant.encode(),
        function=wish.function.encode(),
        program=wish.program.encode(),
        proof=b"",
    )
    unproven, rest = fields.pack()[: -frames.HASH_SIZE], offered.extensions + extensions
    proof = hmac.digest(key, guest_message(server_nonce, nonce, unproven + rest), hashlib.sha256)
    return frames.frame(Frame.HELLO, unproven + proof + rest)


def extension(kind: Extension, value: bytes) -> bytes:
    """An extension of HELLO: its head and its value."""
    return frames.ExtensionHead(kind, len(value)).pack() + value


def queued(position: int, length: int) -> bytes:
    """The QUEUED frame: the guest stands in this place, from 1, of so many."""
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
    """Read the body of a HELLO. Raises Refusal if it is malformed or of another protocol version; all else
    is judged by accept_hello, once the proof was checked.
    """
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
    """Parse what GPUFERRY_LABELS held: `zone=a,gpu=h100`. Raises Refusal."""
    if len(data) > LABELS_MOST:
        text = f"GPUFERRY_LABELS of {len(data)} bytes: at most {LABELS_MOST} are possible"
        raise Refusal(Reason.BAD_REQUEST, text)
    pairs = [item.strip().partition("=") for item in _text(data, "labels").split(",") if item.strip()]
    if not all(name and sign for name, sign, _ in pairs):
        raise Refusal(Reason.BAD_REQUEST, "GPUFERRY_LABELS: write NAME=VALUE,NAME=VALUE")
    return tuple((name, value) for name, _, value in pairs)


def _company(field: bytes, name: str) -> str:
    label = _text(field, name)
    if label and (len(label) > LABEL_MOST or not LABEL.fullmatch(label)):
        text = f"{name} {label!r} is no label: letters, digits, '.', '_' and '-', 63 at most"
        raise Refusal(Reason.BAD_REQUEST, text)
    return label


def _portion(claim: Claim, devices: int) -> Portion:
    value = claim.extensions.get(Extension.PORTION)
    if value is None:
        return PLAIN
    if len(value) != frames.Portion.SIZE:
        raise Refusal(Reason.MALFORMED, f"HELLO: extension {Extension.PORTION} of {len(value)} bytes")
    said = frames.Portion.unpack(value)
    request, limit = said.request, said.limit or FULL
    if not request <= limit <= FULL:
        raise Refusal(
            Reason.BAD_REQUEST,
            f"GPU request {request / FULL:g} and limit {limit / FULL:g}: a request is at most the limit, and "
            "that at most 1 (GPUFERRY_GPU_REQUEST, GPUFERRY_GPU_LIMIT)",
        )
    affinity = _company(said.affinity, "affinity")
    if affinity and devices > 1:
        text = (
            f"affinity {affinity} with {devices} GPUs: it is for programs of one GPU; leave one of both out"
        )
        raise Refusal(Reason.BAD_REQUEST, text)
    anti_affinity = _company(said.anti_affinity, "anti-affinity")
    return Portion(request, limit, affinity, anti_affinity, _company(said.exclusion, "exclusive"))


def portion_extension(portion: Portion) -> bytes:
    """The extension of a HELLO that asks for such a portion; nothing where there is nothing to ask for."""
    if portion.says_nothing:
        return b""
    limit = portion.limit if portion.limit < FULL else 0
    labels = (portion.affinity, portion.anti_affinity, portion.exclusion)
    said = frames.Portion(portion.request, limit, *(label.encode() for label in labels))
    return extension(Extension.PORTION, said.pack())


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
    return Restore(said.session, min(said.age_ms / 1000, LIFE_MOST))


def _program(claim: Claim, hello: Hello) -> bytes:
    """Of two tenants who say the same, neither shares with the other. Empty: a program of one process, as is
    each that could not claim memory of a lease that it shared.
    """
    said = claim.extensions.get(Extension.PROGRAM)
    if said is None:
        return b""
    if len(said) != frames.PROGRAM_SIZE:
        raise Refusal(Reason.MALFORMED, f"HELLO: extension {Extension.PROGRAM} of {len(said)} bytes")
    if hello.agreement.lacks(SHARING):
        return b""
    return program_digest(said, hello.tenant, hello.proven)


def program_digest(said: bytes, tenant: str, proven: bool) -> bytes:
    """The 32 bytes by which a program is known whose processes say this. `proven`: the tenant's token was
    shown.
    """
    return hashlib.sha256(said + bytes([proven]) + tenant.encode()).digest()


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
    if said.devices > frames.DEVICES_MAX:
        text = f"{said.devices} devices asked for: a session has at most {frames.DEVICES_MAX}"
        raise Refusal(Reason.BAD_REQUEST, text)
    hello = Hello(
        said.nonce,
        said.pid,
        said.memory,
        _text(said.tenant, "tenant") if proven.tenant is None else proven.tenant,
        _text(said.function, "function"),
        _file_name(said.program),
        resumable=bool(said.flags & HelloFlag.RESUMABLE),
        agreement=agreement,
        devices=max(said.devices, 1),
        proven=proven.tenant is not None or proven.vouched,
    )
    return _extended(hello, claim, proven) if claim.extensions else hello


def _extended(hello: Hello, claim: Claim, proven: Proven) -> Hello:
    return hello._replace(
        # A registry that sent the guest has chosen by them already.
        labels=() if proven.invited else _labels(claim.extensions.get(Extension.LABELS, b"")),
        max_wait=_number(claim, Extension.MAX_WAIT) / 1000,
        wall_limit=min(_number(claim, Extension.WALL_LIMIT), LIFE_MOST),
        idle_limit=min(_number(claim, Extension.IDLE_LIMIT), LIFE_MOST),
        restore=_restore(claim, proven),
        looks=Extension.LOOK in claim.extensions,
        program_id=_program(claim, hello),
        portion=_portion(claim, hello.devices),
    )
