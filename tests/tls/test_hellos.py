"""A ClientHello that is made to cost much."""

from __future__ import annotations

import asyncio
import os
import ssl
import struct

import pytest
from gpuferry.monitor.views.web.encrypted import Encrypted
from gpuferry.native.tls.shake import CLEAR_MOST, ClearRecords, Shake

from tests.helpers.certificates import Certificates
from tests.web.test_encrypted import Inner, Line

UNKNOWN = 0x3FFF  # of no group that there is


def extension(kind: int, body: bytes) -> bytes:
    return struct.pack("!HH", kind, len(body)) + body


def client_hello(groups: int, keys: int) -> bytes:
    """In records. Each key is for the last of the groups, and no server knows any of those."""
    named = b"".join(struct.pack("!H", 0x4000 + number) for number in range(groups - 1))
    named += struct.pack("!H", UNKNOWN)
    shares = struct.pack("!HHB", UNKNOWN, 1, 7) * keys
    extensions = extension(43, b"\x02\x03\x04") + extension(13, b"\0\4\4\3\x08\4")
    extensions += extension(10, struct.pack("!H", len(named)) + named)
    extensions += extension(51, struct.pack("!H", len(shares)) + shares)
    body = b"\x03\x03" + os.urandom(32) + b"\0" + b"\0\2\x13\1" + b"\1\0"
    body += struct.pack("!H", len(extensions)) + extensions
    message = b"\1" + len(body).to_bytes(3, "big") + body
    parts = [message[at : at + 16000] for at in range(0, len(message), 16000)]
    return b"".join(b"\x16\x03\1" + struct.pack("!H", len(part)) + part for part in parts)


LONG = client_hello(16000, 6500)  # each key is looked for in all groups: 60 ms


@pytest.mark.parametrize("piece", [1000, 16 << 10, 1 << 20])
def test_the_door_does_not_read_one_without_end(certificates: Certificates, piece: int) -> None:
    shake = Shake(certificates.identity().server_context())

    def say() -> None:
        for at in range(0, len(LONG), piece):
            shake.step(LONG[at : at + piece])

    with pytest.raises(ssl.SSLError, match="longer than any"):
        say()
    assert not shake.done


def test_the_page_does_not_either(certificates: Certificates) -> None:
    async def main() -> None:
        line = Line()
        encrypted = Encrypted(Inner(), certificates.identity().page_context())
        encrypted.connection_made(line)
        encrypted.data_received(LONG)
        assert not line.open
        encrypted.connection_lost(None)
        with pytest.raises(ssl.SSLError, match="longer than any"):
            await encrypted.secured

    asyncio.run(main())


def test_only_what_is_not_encrypted_is_counted() -> None:
    said = ClearRecords()
    for kind in (20, 21, 23):
        for byte in bytes([kind, 3, 3, 0x40, 0]) + bytes(0x4000):
            said.add(bytes([byte]))
    hello = b"\x16\3\1" + struct.pack("!H", CLEAR_MOST // 2 - 5) + bytes(CLEAR_MOST // 2 - 5)
    said.add(hello + hello[:3])
    said.add(hello[3:])
    with pytest.raises(ssl.SSLError):
        said.add(b"\x16\3\1\0\1")
