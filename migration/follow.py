"""How a guest is told where its session went, and how to ask there whether it came (specs/WIRE.md §10)."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import socket
import ssl

from gpuferry.specs._generated import frames
from gpuferry.specs._generated.frames import Frame, Greeting, Header, Moved, Reason, Refused, Resume, Resumed

HASH = frames.HASH_SIZE
ASK_SECONDS = 5.0
TLS_SCHEME = "tls://"


def _mac(key: bytes, *parts: bytes) -> bytes:
    return hmac.digest(key, b"".join(parts), hashlib.sha256)


def session_of(welcome: bytes) -> int:
    """The session's number in this body of a WELCOME."""
    return frames.Welcome.unpack(welcome).session


def moved_frame(old_key: bytes, key: bytes, session: int, address: str) -> bytes:
    """The MOVED frame for a guest. Only who holds the session's key so far can read the new key in it."""
    nonce, where = secrets.token_bytes(frames.NONCE_SIZE), address.encode()
    mask = _mac(old_key, frames.KEY_MOVED, nonce)
    hidden = bytes(a ^ b for a, b in zip(key, mask, strict=True))
    unproven = Moved(b"", nonce, hidden, session, len(where)).pack()[HASH:] + where
    return frames.frame(Frame.MOVED, _mac(old_key, frames.PROOF_MOVED, unproven) + unproven)


def ask(address: str, key: bytes, session: int, authority: str = "") -> bool | None:
    """Whether the GPU server at this address has the session; None: it does not know yet, or does not
    answer. `authority`, of a tls:// address: PEM of whoever issued the server's certificate.
    """
    secure = address.startswith(TLS_SCHEME)
    host, _, port = address.removeprefix(TLS_SCHEME).rpartition(":")
    host = host.strip("[]")
    try:
        with socket.create_connection((host, int(port)), ASK_SECONDS) as connection:
            if not secure:
                return _ask(connection, key, session)
            context = ssl.create_default_context(cadata=authority or None)
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            with context.wrap_socket(connection, server_hostname=host) as secured:
                return _ask(secured, key, session)
    except (OSError, EOFError, ValueError):
        return None


def _ask(connection: socket.socket, key: bytes, session: int) -> bool | None:
    op, greeting = _read(connection)
    if op != Frame.GREETING or len(greeting) != Greeting.SIZE:
        return None
    nonce = Greeting.unpack(greeting).nonce
    ours = secrets.token_bytes(frames.NONCE_SIZE)
    asking = Resume(frames.PROTOCOL_VERSION, frames.ResumeFlag.ASK, ours, session, 0, b"")
    unproven = asking.pack()[:-HASH]
    body = unproven + _mac(key, frames.PROOF_RESUME, nonce, unproven)
    connection.sendall(frames.frame(Frame.RESUME, body))
    op, answer = _read(connection)
    if op == Frame.REFUSED and len(answer) >= Refused.SIZE:
        return False if Refused.unpack(answer).reason == Reason.NO_SESSION else None
    if op != Frame.RESUMED or len(answer) != Resumed.SIZE:
        return None
    proof = _mac(key, frames.PROOF_RESUMED, nonce, body)
    return True if hmac.compare_digest(proof, Resumed.unpack(answer).proof) else None


def _read(connection: socket.socket) -> tuple[int, bytes]:
    header = Header.unpack(_exactly(connection, Header.SIZE))
    if not Header.SIZE <= header.size <= frames.HANDSHAKE_FRAME_MAX:
        raise ValueError(header.size)
    return header.op, _exactly(connection, header.size - Header.SIZE)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data
