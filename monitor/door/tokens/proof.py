"""A tenant's token, and how a guest proves that it holds one (specs/WIRE.md §2).

As in SCRAM (RFC 5802), but without stretching: the secret in a token has 256 random bits. With what a server
stores it can check a proof and prove itself, but not make a guest's proof.
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
TOKEN = re.compile(r"gft\.([a-z0-9][a-z0-9_-]{0,62})\.([A-Za-z0-9_-]{43})")
ID_DIGITS = 8


@dataclass(frozen=True)
class Verifier:
    """What a server stores of a token: enough to check a guest's proof and to prove itself. 32 bytes each."""

    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


# A tenant that has no token is checked against this, with the same work and never with success.
NOBODY = Verifier(secrets.token_bytes(32), secrets.token_bytes(32))


def is_tenant(name: str) -> bool:
    """Whether this is a name that a tenant may have: a to z, digits, - and _, at most 63 characters."""
    return bool(re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,62}", name))


def make(tenant: str) -> str:
    """A new token of the tenant: `gft.TENANT.SECRET`, with 256 random bits."""
    secret = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode().rstrip("=")
    return f"{PREFIX}.{tenant}.{secret}"


def tenant_of(token: str) -> str | None:
    """The tenant that a token names; None if the text is no tenant's token, but a monitor's own."""
    match = TOKEN.fullmatch(token)
    return match.group(1) if match else None


def digest(key: bytes, *parts: bytes) -> bytes:
    """HMAC-SHA-256 of the parts put together, 32 bytes."""
    return hmac.digest(key, b"".join(parts), hashlib.sha256)


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def verifier(token: str) -> Verifier:
    """What a server must store of this token."""
    client_key = digest(token.encode(), KEY_CLIENT)
    return Verifier(hashlib.sha256(client_key).digest(), server_key(token))


def server_key(token: str) -> bytes:
    """The key with which a server proves that it knows this token, 32 bytes."""
    return digest(token.encode(), KEY_SERVER)


def prove(token: str, message: bytes) -> bytes:
    """A guest's proof that it holds the token, over this message; 32 bytes."""
    client_key = digest(token.encode(), KEY_CLIENT)
    return _xor(client_key, digest(hashlib.sha256(client_key).digest(), message))


def check(known: Verifier, message: bytes, proof: bytes) -> bool:
    """Whether the proof of this message was made with the token that `known` was made from."""
    client_key = _xor(proof, digest(known.stored_key, message))
    return hmac.compare_digest(hashlib.sha256(client_key).digest(), known.stored_key)


def fingerprint(known: Verifier) -> bytes:
    """What tells whether a whole token is this one, 32 bytes; no proof can be made or checked with it."""
    return hashlib.sha256(known.stored_key).digest()


def token_id(known: Verifier) -> str:
    """The token's name in listings, 8 hexadecimal digits. Nobody can find the token or its keys from it."""
    return digest(known.stored_key, b"gpuferry token id 1").hex()[:ID_DIGITS]
