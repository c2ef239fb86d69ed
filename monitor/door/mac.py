"""HMAC-SHA-256 with keys that are used again and again."""

from __future__ import annotations

import functools
import hashlib

BLOCK = 64  # bytes of SHA-256


@functools.lru_cache(maxsize=64)
def _taken_in(key: bytes) -> tuple[hashlib._Hash, hashlib._Hash]:
    """The two hashes of RFC 2104, after the key's block."""
    block = (key if len(key) <= BLOCK else hashlib.sha256(key).digest()).ljust(BLOCK, b"\0")
    inner, outer = (bytes(byte ^ pad for byte in block) for pad in (0x36, 0x5C))
    return hashlib.sha256(inner), hashlib.sha256(outer)


def mac(key: bytes, message: bytes) -> bytes:
    """HMAC-SHA-256, 32 bytes. Keys are remembered in their prepared form, and hmac's own objects would take
    twice as long.
    """
    inner, outer = _taken_in(key)
    first, last = inner.copy(), outer.copy()
    first.update(message)
    last.update(first.digest())
    return last.digest()
