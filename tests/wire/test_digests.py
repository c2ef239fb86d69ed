"""SHA-256 and HMAC-SHA-256 against published vectors and Python's own."""

from __future__ import annotations

import ctypes
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.shared_object import SharedObject

LIBRARY = SharedObject(
    [f"native/wire/{name}.c" for name in ("sha256", "sha256_block", "sha256_x86")],
    gf_sha256_has_instructions=ctypes.c_bool,
)


def sha256(*parts: bytes) -> bytes:
    state, digest = ctypes.create_string_buffer(256), ctypes.create_string_buffer(32)
    LIBRARY.gf_sha256_init(state)
    for part in parts:
        LIBRARY.gf_sha256_update(state, part, ctypes.c_size_t(len(part)))
    LIBRARY.gf_sha256_final(state, digest)
    return digest.raw


def hmac_sha256(key: bytes, *parts: bytes) -> bytes:
    state, digest = ctypes.create_string_buffer(512), ctypes.create_string_buffer(32)
    LIBRARY.gf_hmac_init(state, key, ctypes.c_size_t(len(key)))
    for part in parts:
        LIBRARY.gf_hmac_update(state, part, ctypes.c_size_t(len(part)))
    LIBRARY.gf_hmac_final(state, digest)
    return digest.raw


@pytest.mark.parametrize(
    ("message", "digest"),
    [
        (b"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        (b"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        (
            b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
        ),
        (b"a" * 1_000_000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"),
    ],
)
def test_sha256_of_fips_180(message: bytes, digest: str) -> None:
    assert sha256(message).hex() == digest


@pytest.mark.parametrize(
    ("key", "message", "digest"),
    [
        (b"\x0b" * 20, b"Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
        (
            b"Jefe",
            b"what do ya want for nothing?",
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
        ),
        (
            b"\xaa" * 131,
            b"Test Using Larger Than Block-Size Key - Hash Key First",
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
        ),
    ],
)
def test_hmac_of_rfc_4231(key: bytes, message: bytes, digest: str) -> None:
    assert hmac_sha256(key, message).hex() == digest


@given(st.lists(st.binary(max_size=200), max_size=6))
def test_sha256_in_pieces(parts: list[bytes]) -> None:
    assert sha256(*parts) == hashlib.sha256(b"".join(parts)).digest()


@given(st.binary(max_size=150), st.lists(st.binary(max_size=200), max_size=3))
def test_hmac_in_pieces(key: bytes, parts: list[bytes]) -> None:
    assert hmac_sha256(key, *parts) == hmac.digest(key, b"".join(parts), "sha256")


@given(st.binary(min_size=32, max_size=32), st.integers(0, 255))
def test_digests_are_compared_to_the_last_bit(digest: bytes, bit: int) -> None:
    other = bytearray(digest)
    other[bit // 8] ^= 1 << bit % 8
    assert LIBRARY.gf_digest_equal(digest, digest)
    assert not LIBRARY.gf_digest_equal(digest, bytes(other))


@given(st.binary(max_size=64 * 9), st.lists(st.integers(0, 2**32 - 1), min_size=8, max_size=8))
def test_instructions_do_what_plain_c_does(data: bytes, begin: list[int]) -> None:
    """Without the instructions both are plain C."""
    if not LIBRARY.gf_sha256_has_instructions():
        pytest.skip("this processor has no instructions for SHA-256")
    blocks = ctypes.c_size_t(len(data) // 64)
    plain, quick = ((ctypes.c_uint32 * 8)(*begin) for _ in range(2))
    LIBRARY.gf_sha256_portable(plain, data, blocks)
    LIBRARY.gf_sha256_instructions(quick, data, blocks)
    assert list(plain) == list(quick)
