"""TLS of the page and of functions, before somebody who sends records that bring nothing."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256, SHA384, HashAlgorithm
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from gpuferry.monitor.views.web.encrypted import BARREN_MOST, FORGIVEN_BYTES, RECORDS_ONCE, Encrypted

from tests.helpers.certificates import Certificates

SUITES: dict[str, tuple[HashAlgorithm, int]] = {
    "TLS_AES_128_GCM_SHA256": (SHA256(), 16),
    "TLS_AES_256_GCM_SHA384": (SHA384(), 32),
}
KEYS_CHANGE = b"\x18\0\0\1\0"  # KeyUpdate, which asks for none in return


class Line(asyncio.Transport):
    """What the server writes, and how its connection fares."""

    def __init__(self) -> None:
        super().__init__()
        self.sent, self.reads, self.open = bytearray(), True, True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += data

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def close(self) -> None:
        self.open = False

    def abort(self) -> None:
        self.open = False


class Inner(asyncio.Protocol):
    """What is spoken on it."""

    def __init__(self) -> None:
        self.came, self.over, self.transport = b"", False, asyncio.Transport()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.came += data

    def eof_received(self) -> None:
        self.over = True


class Client:
    """The other end, by OpenSSL until the handshake is over, and then by hand."""

    def __init__(self, certificates: Certificates, folder: Path) -> None:
        context = certificates.identity("client").client_context()
        context.keylog_filename = str(folder / "keys")
        self._up, self._down = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._down, self._up, server_hostname="localhost")
        self._keys = folder / "keys"
        self._secret, self._count = b"", 0

    def step(self, came: bytes) -> bytes:
        """What OpenSSL has to say to this."""
        self._down.write(came)
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            pass
        else:
            lines = [line.split() for line in self._keys.read_text().splitlines()]
            (self._secret,) = [
                bytes.fromhex(line[2]) for line in lines if line[0] == "CLIENT_TRAFFIC_SECRET_0"
            ]
        return self._up.read()

    def read(self, came: bytes) -> bytes:
        self._down.write(came)
        return self.tls.read(1 << 16)

    def record(self, kind: int, content: bytes) -> bytes:
        """The next record of this content (RFC 8446, 5.2)."""
        header = bytes([23, 3, 3]) + (len(content) + 17).to_bytes(2, "big")
        nonce = int.from_bytes(self._expand("iv", 12), "big") ^ self._count
        self._count += 1
        key = AESGCM(self._expand("key", self._suite()[1]))
        return header + key.encrypt(nonce.to_bytes(12, "big"), content + bytes([kind]), header)

    def change_keys(self) -> bytes:
        """The record that says so; the next one has the next key (7.2)."""
        said = self.record(22, KEYS_CHANGE)
        self._secret, self._count = self._expand("traffic upd", len(self._secret)), 0
        return said

    def _suite(self) -> tuple[HashAlgorithm, int]:
        cipher = self.tls.cipher()
        assert cipher
        return SUITES[cipher[0]]

    def _expand(self, label: str, size: int) -> bytes:
        name = b"tls13 " + label.encode()
        info = size.to_bytes(2, "big") + bytes([len(name)]) + name + b"\0"
        return HKDFExpand(self._suite()[0], size, info).derive(self._secret)


Scene = Callable[[Encrypted, Line, Inner, Client], Coroutine[Any, Any, None]]


@pytest.fixture
def play(certificates: Certificates, tmp_path: Path) -> Callable[[Scene], None]:
    """Plays a scene on a connection whose handshake is over."""

    async def main(scene: Scene) -> None:
        line, inner, client = Line(), Inner(), Client(certificates, tmp_path)
        encrypted = Encrypted(inner, certificates.identity().page_context())
        encrypted.connection_made(line)
        said = client.step(b"")
        while not encrypted.secured.done():
            encrypted.data_received(said)
            said = client.step(bytes(line.sent))
            line.sent.clear()
        assert inner.transport is encrypted
        await scene(encrypted, line, inner, client)

    return lambda scene: asyncio.run(main(scene))


def test_who_changes_keys_without_end_is_cut_off(play: Callable[[Scene], None]) -> None:
    """Ten thousand of them, which come in one piece, kept all others waiting for a second."""

    async def scene(encrypted: Encrypted, line: Line, inner: Inner, client: Client) -> None:
        few = b"".join(client.change_keys() for _ in range(BARREN_MOST - 4))  # and those of the handshake
        encrypted.data_received(few + client.record(23, b"data"))
        assert (inner.came, line.open) == (b"data", True)
        for _ in range(4):  # a little data between them is no excuse
            encrypted.data_received(client.change_keys() + client.record(23, b"x"))
        assert not line.open
        assert encrypted.is_closing()

    play(scene)


def test_who_sends_much_may_change_keys(play: Callable[[Scene], None]) -> None:
    async def scene(encrypted: Encrypted, line: Line, inner: Inner, client: Client) -> None:
        for _ in range(2 * BARREN_MOST):
            said = client.change_keys()
            said += b"".join(client.record(23, bytes(1 << 14)) for _ in range(FORGIVEN_BYTES >> 14))
            encrypted.data_received(said)
        assert line.open
        assert len(inner.came) == 2 * BARREN_MOST * FORGIVEN_BYTES

    play(scene)


def test_who_sends_many_records_lets_others_have_their_turn(play: Callable[[Scene], None]) -> None:
    async def scene(encrypted: Encrypted, line: Line, inner: Inner, client: Client) -> None:
        many = 3 * RECORDS_ONCE
        encrypted.data_received(b"".join(client.record(23, b"x") for _ in range(many)))
        assert len(inner.came) == RECORDS_ONCE
        assert not line.reads
        for _ in range(4):
            await asyncio.sleep(0)
        assert inner.came == b"x" * many
        assert line.reads

    play(scene)


def test_nothing_is_taken_as_long_as_nobody_reads(play: Callable[[Scene], None]) -> None:
    async def scene(encrypted: Encrypted, line: Line, inner: Inner, client: Client) -> None:
        encrypted.pause_reading()
        assert not line.reads
        encrypted.data_received(client.record(23, b"data"))
        assert inner.came == b""
        encrypted.resume_reading()
        await asyncio.sleep(0)
        assert (inner.came, line.reads) == (b"data", True)

    play(scene)


def test_records_come_in_any_pieces(play: Callable[[Scene], None]) -> None:
    async def scene(encrypted: Encrypted, line: Line, inner: Inner, client: Client) -> None:
        for byte in client.record(23, b"one") + client.record(23, b"two"):
            encrypted.data_received(bytes([byte]))
        assert inner.came == b"onetwo"
        encrypted.write(b"answer")
        assert client.read(bytes(line.sent)) == b"answer"

    play(scene)


def test_each_end_may_say_that_it_is_over(play: Callable[[Scene], None]) -> None:
    async def scene(encrypted: Encrypted, line: Line, inner: Inner, client: Client) -> None:
        encrypted.write(b"last")
        encrypted.data_received(client.record(21, b"\1\0"))  # close_notify
        assert inner.over
        assert not line.open
        assert client.read(bytes(line.sent)) == b"last"
        assert client.read(b"") == b""  # and ours

    play(scene)


@pytest.mark.parametrize("came", [b"\x17\x03\x03\xff\xff", b"\x17\x03\x03\0\x20" + bytes(32)])
def test_what_is_no_record_ends_the_connection(play: Callable[[Scene], None], came: bytes) -> None:
    async def scene(encrypted: Encrypted, line: Line, inner: Inner, client: Client) -> None:
        encrypted.data_received(came)
        assert not line.open
        assert inner.came == b""

    play(scene)
