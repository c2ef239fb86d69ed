"""The proof of a tenant's token: what holds by arithmetic."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from gpuferry.monitor.door.mac import mac
from gpuferry.monitor.door.tokens import proof
from gpuferry.monitor.door.tokens.book import TOKENS_MOST, TokenBook, TooMany, new_record
from gpuferry.monitor.settings.limits import TENANT
from gpuferry.monitor.store.interface import StoreError
from gpuferry.monitor.store.sqlite import SqliteStore
from gpuferry.specs._generated.frames import KEY_CLIENT
from hypothesis import given
from hypothesis import strategies as st

TOKEN = proof.make("acme")
KNOWN = proof.verifier(TOKEN)


@given(message=st.binary(max_size=600))
def test_the_token_proves_any_message(message: bytes) -> None:
    assert proof.check(KNOWN, message, proof.prove(TOKEN, message))


@given(message=st.binary(max_size=100), other=st.binary(max_size=100))
def test_a_proof_is_of_one_message_and_one_token(message: bytes, other: bytes) -> None:
    made = proof.prove(TOKEN, message)
    assert proof.check(KNOWN, other, made) == (message == other)
    assert not proof.check(proof.verifier(proof.make("acme")), message, made)


@given(forged=st.binary(min_size=32, max_size=32))
def test_what_is_stored_makes_no_proof(forged: bytes) -> None:
    """The obvious forgeries by somebody who has read the store."""
    message = b"message"
    stored = (KNOWN.stored_key, KNOWN.server_key, bytes(32), forged)
    for key in stored:
        for mask in stored:
            signature = proof.digest(key, message)
            guess = bytes(a ^ b for a, b in zip(signature, mask, strict=True))
            assert not proof.check(KNOWN, message, guess)
    assert not proof.check(proof.NOBODY, message, forged)


def test_a_token_is_long_and_says_whose_it_is() -> None:
    assert len({proof.make("a") for _ in range(100)}) == 100
    assert proof.tenant_of(TOKEN) == "acme"
    assert len(TOKEN.rpartition(".")[2]) == 43  # 256 bits in base64
    for other in (secrets.token_hex(32), "gft.acme.short", "gft.ACME." + "x" * 43, TOKEN + "x", " " + TOKEN):
        assert proof.tenant_of(other) is None


@pytest.mark.parametrize(("name", "fine"), [("a", True), ("a-b_9", True), ("x" * 63, True)])
@pytest.mark.parametrize("bad", ["", "x" * 64, "A", "a.b", "a/b", "-a", "ä", "a b", "a\n"])
def test_names_of_tenants(name: str, fine: bool, bad: str) -> None:
    assert proof.is_tenant(name) is bool(TENANT.fullmatch(name)) is fine
    assert not proof.is_tenant(bad)
    assert not TENANT.fullmatch(bad)


def test_the_store_holds_neither_token_nor_client_key(tmp_path: Path) -> None:
    async def main() -> None:
        store = SqliteStore(tmp_path / "db")
        await TokenBook(store).add(new_record(TOKEN))
        await store.close()

    asyncio.run(main())
    content = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert KNOWN.stored_key in content
    client_key = proof.digest(TOKEN.encode(), KEY_CLIENT)
    assert hashlib.sha256(client_key).digest() == KNOWN.stored_key
    for secret in (TOKEN.encode(), TOKEN.rpartition(".")[2].encode(), client_key):
        assert secret not in content


def test_unknown_tenants_are_checked_as_often_as_known_ones(tmp_path: Path) -> None:
    async def main() -> None:
        store = SqliteStore(tmp_path / "db")
        book = TokenBook(store)
        for count in range(TOKENS_MOST):
            assert len(await book.verifiers("acme")) == len(await book.verifiers("nobody")) == TOKENS_MOST
            assert list(await book.verifiers("acme")).count(proof.NOBODY) == TOKENS_MOST - count
            await book.add(new_record(proof.make("acme")))
        with pytest.raises(TooMany):
            await book.add(new_record(proof.make("acme")))
        await book.add(new_record(proof.make("acme2")))  # whose name begins alike
        assert await book.revoke("acme", "", kill=False) == TOKENS_MOST
        assert [token.tenant for token in await book.all()] == ["acme2"]
        await store.close()

    asyncio.run(main())


@pytest.mark.parametrize("size", [0, 1, 32, 64, 65, 300])
def test_what_both_sides_compute_is_the_hmac_of_everybody_else(size: int) -> None:
    key = bytes(range(256))[: size % 256] * 2
    assert mac(key, b"said") == hmac.digest(key, b"said", "sha256")


@pytest.mark.parametrize(
    ("key", "ask"),
    [
        ("token/acme/00000000", TokenBook.all),
        ("token/acme/00000000", lambda book: book.verifiers("acme")),
        ("kill/acme", TokenBook.kills),
    ],
)
def test_a_damaged_record_is_the_stores_affair(
    tmp_path: Path, key: str, ask: Callable[[TokenBook], Awaitable[object]]
) -> None:
    """It ended a monitor, and the next one."""

    async def main() -> None:
        store = SqliteStore(tmp_path / "gpuferry.db")
        await store.put(key, b"\xff")
        with pytest.raises(StoreError, match=f"the record {key} is damaged"):
            await ask(TokenBook(store))
        await store.close()

    asyncio.run(main())
