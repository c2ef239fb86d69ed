"""The records of native/tls, with Python's ssl as the other side, and with somebody in between."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from gpuferry.apiserver.control import Control
from gpuferry.monitor.pool.channel import channel_pair
from gpuferry.monitor.views.web.server import following
from gpuferry.native.tls._records import NoTls, Records
from gpuferry.native.tls.shake import Shake, _keylog
from gpuferry.native.tls.stream import TlsSocket
from gpuferry.specs._generated import node_pb2

from tests.helpers.certificates import Certificates

HEADER = 5
SUITE = "TLS_AES_128_GCM_SHA256"
ONE, OTHER = b"a" * 32, b"b" * 32


def step_through(connection: socket.socket, shake: Shake) -> TlsSocket:
    connection.sendall(shake.step(b""))
    while not shake.done:
        came = connection.recv(1 << 16)
        assert came
        connection.sendall(shake.step(came))
    return TlsSocket(connection, shake.records())


@contextmanager
def ours_and_pythons(
    certificates: Certificates, server: bool = True
) -> Iterator[tuple[TlsSocket, ssl.SSLSocket]]:
    """The two ends of a connection: ours as the server, or as the client."""
    identity = certificates.identity()
    here, there = socket.socketpair()
    for end in (here, there):
        end.settimeout(10)
    shake = Shake(identity.server_context()) if server else Shake(identity.client_context(), "localhost")
    made: list[TlsSocket] = []
    thread = threading.Thread(target=lambda: made.append(step_through(here, shake)))
    thread.start()
    if server:
        peer = identity.client_context().wrap_socket(there, server_hostname="localhost")
    else:
        peer = identity.server_context().wrap_socket(there, server_side=True)
    thread.join()
    here.settimeout(None)
    with peer, made[0]:
        yield made[0], peer


def exactly(connection: TlsSocket | ssl.SSLSocket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        assert part
        data += part
    return data


@pytest.mark.parametrize("server", [True, False], ids=["server", "client"])
def test_another_implementation_understands_them(certificates: Certificates, server: bool) -> None:
    with ours_and_pythons(certificates, server) as (ours, peer):
        for size in (1, 100, 1 << 14, (1 << 14) + 1, 100_000):
            data = bytes(range(256)) * (size // 256 + 1)
            peer.sendall(data[:size])
            assert exactly(ours, size) == data[:size]
            ours.sendall(data[:size])
            assert exactly(peer, size) == data[:size]


def test_others_may_use_the_same_context(certificates: Certificates) -> None:
    """Their secrets are not taken for ours, between whatever steps they come, and however many they are."""
    identity = certificates.identity()
    shakes = [Shake(identity.server_context()), Shake(identity.client_context(), "localhost")]
    server, client = shakes

    def somebody_else() -> None:
        up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
        one = identity.server_context().wrap_bio(up, down, server_side=True)
        other = identity.client_context().wrap_bio(down, up, server_hostname="localhost")
        for _ in range(2):
            for end in (other, one):
                with contextlib.suppress(ssl.SSLWantReadError):
                    end.do_handshake()

    said = b""
    while not (server.done and client.done):
        for shake in (client, server):
            for _ in range(100):
                somebody_else()
            said = shake.step(said)
    here, there = socket.socketpair()
    with TlsSocket(here, server.records()) as ours, TlsSocket(there, client.records()) as theirs:
        ours.sendall(b"said")
        assert exactly(theirs, 4) == b"said"


def test_connections_of_the_page_leave_no_secrets(certificates: Certificates) -> None:
    """Strangers may have as many as they like, and nobody empties what they would be written to."""
    identity = certificates.identity()
    Shake(identity.server_context())
    before = os.fstat(_keylog()._file).st_size
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    browser = ssl.create_default_context(cafile=str(certificates.authority))
    ends = [
        browser.wrap_bio(down, up, server_hostname="localhost"),
        following(identity).wrap_bio(up, down, server_side=True),
    ]
    for end in (*ends, *ends):
        with contextlib.suppress(ssl.SSLWantReadError):
            end.do_handshake()
    assert ends[1].version() == "TLSv1.3"
    assert os.fstat(_keylog()._file).st_size == before


def test_keys_are_changed_in_time(certificates: Certificates) -> None:
    with ours_and_pythons(certificates) as (ours, peer):
        ours._records.update_after(2)
        data = bytes(range(256)) * 1000  # 16 records: 8 keys
        sending = threading.Thread(target=ours.sendall, args=(data,))
        sending.start()
        assert exactly(peer, len(data)) == data
        sending.join()


@contextmanager
def pair(room: int = 0) -> Iterator[tuple[TlsSocket, TlsSocket, socket.socket, socket.socket]]:
    """Two ends of ours with keys that were told them, and the sockets below, which are not connected."""
    a, from_a = socket.socketpair()
    b, to_b = socket.socketpair()
    if room:
        a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, room)
    for end in (from_a, to_b):
        end.settimeout(5)
    with a, b, from_a, to_b:
        one, other = Records.begin(SUITE, ONE, OTHER), Records.begin(SUITE, OTHER, ONE)
        yield TlsSocket(a, one), TlsSocket(b, other), from_a, to_b


def sealed(end: TlsSocket, wire: socket.socket, data: bytes) -> bytes:
    """The record in which `data` goes out."""
    end.sendall(data)
    return wire.recv(1 << 17)


def test_every_flipped_bit_is_found() -> None:
    with pair() as (ours, _, wire, _):
        record = sealed(ours, wire, b"what was said")
    for bit in range(8 * len(record)):
        flipped = bytearray(record)
        flipped[bit // 8] ^= 1 << bit % 8
        with pair() as (_, theirs, _, wire):
            wire.sendall(flipped)
            wire.shutdown(socket.SHUT_WR)
            try:
                said = theirs.recv(100)
            except ConnectionAbortedError:
                continue
            assert not said, "a changed record was taken"  # a longer length: the end came before


def test_what_is_repeated_left_out_or_in_another_order_is_found() -> None:
    with pair() as (ours, _, wire, _):
        first, second = sealed(ours, wire, b"first"), sealed(ours, wire, b"second")
    for came in (first + first, second, second + first):
        with pair() as (_, theirs, _, wire):
            wire.sendall(came)
            if came.startswith(first):
                assert theirs.recv(5) == b"first"
            for _ in range(2):  # and nothing is taken afterwards
                with pytest.raises(ConnectionAbortedError):
                    theirs.recv(5)


def test_what_is_cut_off_is_not_taken() -> None:
    with pair() as (ours, _, wire, _):
        record = sealed(ours, wire, b"what was said")
    for size in range(len(record)):
        with pair() as (_, theirs, _, wire):
            wire.sendall(record[:size])
            wire.shutdown(socket.SHUT_WR)
            assert theirs.recv(100) == b""


@pytest.mark.parametrize(
    "came",
    [
        b"GPUFERRY in clear, and more of it",
        bytes([23, 3, 3, 0xFF, 0xFF]) + bytes(100),
        bytes([23, 3, 3, 0, 3]) + bytes(3),
        bytes([22, 3, 3, 0, 40]) + bytes(40),
        bytes([21, 3, 3, 0, 2, 2, 40]),
        bytes([20, 3, 3, 0, 1, 1]),
    ],
    ids=["clear", "too long", "too short", "handshake", "alert", "change cipher"],
)
def test_what_is_no_record_of_data_is_refused(came: bytes) -> None:
    with pair() as (_, theirs, _, wire):
        wire.sendall(came)
        with pytest.raises(ConnectionAbortedError):
            theirs.recv(100)


def expand(secret: bytes, label: str, size: int) -> bytes:
    """HKDF-Expand-Label (RFC 8446, 7.1), by another implementation."""
    name = b"tls13 " + label.encode()
    info = size.to_bytes(2, "big") + bytes([len(name)]) + name + b"\0"
    return HKDFExpand(SHA256(), size, info).derive(secret)


def record_of(secret: bytes, sequence: int, kind: int, content: bytes) -> bytes:
    """A record (RFC 8446, 5.2), by another implementation."""
    size = len(content) + 1 + 16
    header = bytes([23, 3, 3]) + size.to_bytes(2, "big")
    nonce = int.from_bytes(expand(secret, "iv", 12), "big") ^ sequence
    key = AESGCM(expand(secret, "key", 16))
    return header + key.encrypt(nonce.to_bytes(12, "big"), content + bytes([kind]), header)


@pytest.mark.parametrize("content", [(23, b""), (22, b"\x04\0\0\0")], ids=["empty", "ticket"])
def test_who_sends_records_without_data_does_not_keep_us_reading(content: tuple[int, bytes]) -> None:
    """The monitor's door reads what has come before it looks at others: it may be a few, and then no more."""
    few, many = 32, 100
    with pair() as (ours, _, wire, _):
        said = (content,) * few + ((23, b"data"),)
        wire.sendall(b"".join(record_of(OTHER, at, *each) for at, each in enumerate(said)))
        assert ours.recv(100) == b"data"
        wire.sendall(b"".join(record_of(OTHER, few + 1 + at, *content) for at in range(many)))
        with pytest.raises(ConnectionAbortedError):
            ours.recv(100, socket.MSG_DONTWAIT)


def test_the_other_side_may_ask_for_another_key() -> None:
    """KeyUpdate with update_requested: its next key is taken, and ours is changed before the next record."""
    asked = bytes([24, 0, 0, 1, 1])
    following = expand(OTHER, "traffic upd", 32)
    with pair() as (ours, _, wire, _):
        wire.sendall(record_of(OTHER, 0, 22, asked) + record_of(following, 0, 23, b"with the next key"))
        assert ours.recv(100) == b"with the next key"
        said = sealed(ours, wire, b"answered")
    change = record_of(ONE, 0, 22, asked[:4] + b"\0")
    assert said == change + record_of(expand(ONE, "traffic upd", 32), 0, 23, b"answered")


@pytest.mark.parametrize(
    ("kind", "content"),
    [(22, bytes([1, 0, 0, 0])), (22, bytes([24, 0, 0, 1, 2])), (21, bytes([2, 20])), (20, b"\1"), (0, b"\0")],
    ids=["renegotiation", "no such update", "fatal alert", "change cipher", "nothing"],
)
def test_an_authentic_record_of_another_kind_ends_the_connection(kind: int, content: bytes) -> None:
    with pair() as (ours, _, wire, _):
        wire.sendall(record_of(OTHER, 0, kind, content))
        with pytest.raises(ConnectionAbortedError):
            ours.recv(100)


def test_the_other_side_may_say_that_it_is_over() -> None:
    with pair() as (ours, _, wire, _):
        wire.sendall(record_of(OTHER, 0, 23, b"last") + record_of(OTHER, 1, 21, bytes([1, 0])))
        assert ours.recv(100) == b"last"
        assert ours.recv(100) == b""


def test_another_process_goes_on_wherever_this_one_stopped() -> None:
    """Within a record on the way in, with plain text that nobody took, with a record half written."""
    data = bytes(range(256)) * 2000
    with pair(room=4096) as (ours, theirs, wire, out):
        ours.setblocking(False)
        said, got = 0, b""
        while said < len(data) or len(got) < len(data):
            try:
                said += ours.send(data[said : said + 50_000], socket.MSG_DONTWAIT) if said < len(data) else 0
            except BlockingIOError:
                taken = ours._taken
                ours = TlsSocket.restore(ours.socket, ours.state())
                ours._taken = taken
            part = wire.recv(1 << 16, socket.MSG_DONTWAIT) if _readable(wire) else b""
            for at in range(0, len(part), 5000):
                out.sendall(part[at : at + 5000])
                theirs = TlsSocket.restore(theirs.socket, theirs.state())
                theirs.setblocking(False)
                try:
                    got += theirs.recv(700)
                except BlockingIOError:
                    continue
            while theirs.has_input:
                got += theirs.recv(700)
        assert got == data


def test_an_order_has_room_for_all_that_was_said_ahead() -> None:
    """What a guest says behind its HELLO comes to its API server, as much as the monitor reads at once."""
    channel, end = channel_pair()
    with pair() as (ours, theirs, wire, out):
        ours.sendall(bytes(100_000))
        came = 0
        while came < 100_000:
            part = wire.recv(1 << 17)
            out.sendall(part)
            came += len(part)
        theirs.recv(1)
        state = theirs.state()
        assert len(state) > 64 << 10
        channel.send(node_pb2.ToServer(resume=node_pb2.Resume(session=7, proof=bytes(32))), theirs)
        control = Control(end.detach(), frozenset({"resume"}))
        order, (descriptor,) = control.receive()
        os.close(descriptor)
        control._socket.close()

    async def close() -> None:
        channel.close()

    asyncio.run(close())
    assert order
    assert order.tls == state


def _readable(wire: socket.socket) -> bool:
    try:
        return bool(wire.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except BlockingIOError:
        return False


@pytest.mark.parametrize("change", [b"", b"\x09\x00", bytes(132), b"\x01\x00\x01\x13" + b"\xff" * 128])
def test_a_state_that_is_none_is_refused(change: bytes) -> None:
    with pytest.raises(NoTls):
        Records.restore(change)


def test_secrets_of_another_suite_are_refused() -> None:
    with pytest.raises(NoTls):
        Records.begin("TLS_CHACHA20_POLY1305_SHA256", ONE, OTHER)
    with pytest.raises(ValueError, match="length"):
        Records.begin(SUITE, ONE[:10], OTHER)
