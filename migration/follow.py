"""How a guest is told where its session went, and how to ask there whether it came (specs/WIRE.md §10)."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import socket
import struct

from gpuferry.specs._generated import wire

HEADER = struct.Struct("<IHHII")
MOVED = struct.Struct("<32s32s32sQH")
RESUME = struct.Struct("<HH32sQQ32s")
RESUMED = struct.Struct("<32sQ")
OP_GREETING, OP_REFUSED, OP_RESUMED, OP_RESUME, OP_MOVED = 0xFF01, 0xFF04, 0xFF08, 0xFF0A, 0xFF0B
ASK = 1  # flag in RESUME: only whether there is such a session
NO_SESSION = 9
HASH = 32
GREETING_SIZE = 44
FRAME_MAX = 64 << 10
ASK_SECONDS = 5.0


def _mac(key: bytes, *parts: bytes) -> bytes:
    return hmac.digest(key, b"".join(parts), hashlib.sha256)


def session_of(welcome: bytes) -> int:
    """The number that whoever sent WELCOME gave to the session."""
    return int.from_bytes(welcome[HASH : HASH + 8], "little")


def moved_frame(old_key: bytes, key: bytes, session: int, address: str) -> bytes:
    """MOVED for the guest; only who holds the session's key so far can read the new one in it."""
    nonce, where = secrets.token_bytes(HASH), address.encode()
    mask = _mac(old_key, b"gpuferry moved key 1", nonce)
    hidden = bytes(a ^ b for a, b in zip(key, mask, strict=True))
    unproven = MOVED.pack(b"", nonce, hidden, session, len(where))[HASH:] + where
    body = _mac(old_key, b"gpuferry moved 1", unproven) + unproven
    return HEADER.pack(HEADER.size + len(body), OP_MOVED, 0, 0, 0) + body


def ask(address: str, key: bytes, session: int) -> bool | None:
    """Whether the GPU server there has the session; None: it does not know yet, or does not answer."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), ASK_SECONDS) as connection:
            return _ask(connection, key, session)
    except (OSError, EOFError, ValueError):
        return None


def _ask(connection: socket.socket, key: bytes, session: int) -> bool | None:
    op, greeting = _read(connection)
    if op != OP_GREETING or len(greeting) != GREETING_SIZE:
        return None
    nonce = greeting[-HASH:]
    unproven = RESUME.pack(wire.PROTOCOL_VERSION, ASK, secrets.token_bytes(HASH), session, 0, b"")[:-HASH]
    body = unproven + _mac(key, b"gpuferry resume 1", nonce, unproven)
    connection.sendall(HEADER.pack(HEADER.size + len(body), OP_RESUME, 0, 0, 0) + body)
    op, answer = _read(connection)
    if op == OP_REFUSED and len(answer) >= 4 and int.from_bytes(answer[:4], "little") == NO_SESSION:
        return False
    if op != OP_RESUMED or len(answer) != RESUMED.size:
        return None
    proof = _mac(key, b"gpuferry resumed 1", nonce, body)
    return True if hmac.compare_digest(proof, answer[:HASH]) else None


def _read(connection: socket.socket) -> tuple[int, bytes]:
    size, op, *_ = HEADER.unpack(_exactly(connection, HEADER.size))
    if not HEADER.size <= size <= FRAME_MAX:
        raise ValueError(size)
    return op, _exactly(connection, size - HEADER.size)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data
