"""The head of a snapshot file and the keys of its contents, which follow from one secret of the monitor's.

Whoever has the key of a file's contents has no other file's key, and cannot make another head (DESIGN.md,
"File").
"""

from __future__ import annotations

import hashlib
import secrets

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from gpuferry.specs._generated import snapshot_pb2

from .errors import SnapshotError
from .head import FIXED, KEY, MAGIC, PREFIX, VERSION, damaged

ONCE = bytes(12)  # each key of a head seals once


def derive(secret: bytes, purpose: bytes, size: int = KEY, salt: bytes = b"") -> bytes:
    """A key for this purpose, by HKDF with SHA-256."""
    return HKDF(SHA256(), size, salt, b"gpuferry snapshot " + purpose).derive(secret)


def seal(secret: bytes, about: snapshot_pb2.About) -> tuple[bytes, bytes]:
    """The head of a new file that says this of its session, and the key of its contents."""
    salt = secrets.token_bytes(32)
    plain = about.SerializeToString()
    size = len(plain) + 16
    fixed = FIXED.pack(MAGIC, VERSION, size, identity(secret), salt)
    head = fixed + AESGCM(derive(secret, b"head", salt=salt)).encrypt(ONCE, plain, fixed)
    return head, _key(secret, head, salt)


def unseal(secret: bytes, head: bytes, name: str) -> tuple[snapshot_pb2.About, bytes]:
    """What the head of a file says of its session, and the key of its contents. Raises SnapshotError, with
    the file's `name`, unless it was made with this secret.
    """
    fixed = head[: FIXED.size]
    *_, written_with, salt = FIXED.unpack(fixed)
    if written_with != identity(secret):
        raise SnapshotError(
            f"{name} was encrypted with another key ({written_with[:4].hex()}…) than this GPU server's "
            f"({identity(secret)[:4].hex()}…): resume it where it was written, or give that server's key "
            "with --snapshot-key-file"
        )
    try:
        plain = AESGCM(derive(secret, b"head", salt=salt)).decrypt(ONCE, head[FIXED.size :], fixed)
    except InvalidTag:
        raise damaged(name, "its head is not what was written") from None
    return snapshot_pb2.About.FromString(plain), _key(secret, head, salt)


def identity(secret: bytes) -> bytes:
    """16 bytes that tell a secret from others, and nothing of it."""
    return derive(secret, b"identity", 16)


def _key(secret: bytes, head: bytes, salt: bytes) -> bytes:
    return derive(secret, b"contents " + hashlib.sha256(head).digest(), KEY + PREFIX, salt)
