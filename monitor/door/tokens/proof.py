"""A tenant's token and its proof (specs/WIRE.md §2).

After SCRAM (RFC 5802), but without stretching: the secret in a token has 256 random bits. What a server keeps
lets it check a proof and prove itself, but not make a proof.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, field

from gpuferry.specs._generated.frames import KEY_CLIENT, KEY_SERVER

PREFIX = "gft"
TENANT_MOST = 63
TOKEN = re.compile(r"gft\.([a-z0-9][a-z0-9_-]{0,62})\.([A-Za-z0-9_-]{43})")
ID_DIGITS = 8


@dataclass(frozen=True)
class Verifier:
    """What is stored of a token."""

    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


# A tenant that has no token is checked against this, with the same work and never with success.
NOBODY = Verifier(secrets.token_bytes(32), secrets.token_bytes(32))


def is_tenant(name: str) -> bool:
    """Whether a tenant can have this name."""
    return bool(re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,62}", name))


def make(tenant: str) -> str:
    """A new token for the tenant."""
    secret = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode().rstrip("=")
    return f"{PREFIX}.{tenant}.{secret}"


def tenant_of(token: str) -> str | None:
    """Whose token this is; None: it is no tenant's, but a monitor's own."""
    match = TOKEN.fullmatch(token)
    return match.group(1) if match else None


def digest(key: bytes, *parts: bytes) -> bytes:
    """HMAC-SHA-256 of the parts, one after another."""
    return hmac.digest(key, b"".join(parts), hashlib.sha256)


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def verifier(token: str) -> Verifier:
    """What a server needs to know of a token."""
    client_key = digest(token.encode(), KEY_CLIENT)
    return Verifier(hashlib.sha256(client_key).digest(), server_key(token))


def server_key(token: str) -> bytes:
    """With this the server proves itself."""
    return digest(token.encode(), KEY_SERVER)


def prove(token: str, message: bytes) -> bytes:
    """The guest's proof: only the token's owner can make it."""
    client_key = digest(token.encode(), KEY_CLIENT)
    return _xor(client_key, digest(hashlib.sha256(client_key).digest(), message))


def check(known: Verifier, message: bytes, proof: bytes) -> bool:
    """Whether the proof was made with the token behind this verifier."""
    client_key = _xor(proof, digest(known.stored_key, message))
    return hmac.compare_digest(hashlib.sha256(client_key).digest(), known.stored_key)


def token_id(known: Verifier) -> str:
    """The token's name for listings. It is made from the stored key, so it tells no more than that."""
    return digest(known.stored_key, b"gpuferry token id 1").hex()[:ID_DIGITS]
