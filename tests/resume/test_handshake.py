"""Who may go on with a session, and what becomes of it otherwise."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

import pytest
from gpuferry.monitor.door import handshake
from gpuferry.specs._generated import frames

from tests.apiserver.guest import Ended
from tests.helpers.monitor import Monitor, monitor
from tests.monitor.fake_guest import connect, hello_frame, read_frame, read_greeting

from .guest import CountingGuest

GRACE = 600.0  # nobody loses a session by being slow
SECONDS = 120.0  # for whatever must come to pass
PAGE = 2 << 20


@pytest.fixture(scope="module")
def running() -> Iterator[Monitor]:
    with monitor("--pool", "1", "--resume-grace", str(GRACE), in_clear=True) as started:
        yield started


@dataclass
class Held:
    """A session held by a guest in Python that counts its stream."""

    guest: CountingGuest
    key: bytes


def resumable_hello(nonce: bytes, server_nonce: bytes, token: str) -> bytes:
    """HELLO with the flag that asks for it."""
    frame = bytearray(hello_frame(server_nonce, token, nonce=nonce))
    start = frames.Header.SIZE
    frame[start + 2 : start + 4] = frames.HelloFlag.RESUMABLE.to_bytes(2, "little")
    frame[-32:] = handshake.guest_proof(token.encode(), server_nonce, nonce, bytes(frame[start:-32]))
    return bytes(frame)


@contextmanager
def held(running: Monitor, *, resumable: bool = True) -> Iterator[Held]:
    """From connect to WELCOME."""
    connection = connect(running.tcp)
    with closing(connection):
        server_nonce, nonce = read_greeting(connection), secrets.token_bytes(32)
        if resumable:
            connection.sendall(resumable_hello(nonce, server_nonce, running.token))
        else:
            connection.sendall(hello_frame(server_nonce, running.token, nonce=nonce))
        guest = CountingGuest(connection)
        guest.receive_welcome()
        key = handshake.resume_key(running.token.encode(), server_nonce + nonce)
        yield Held(guest, key)


def resume_body(server_nonce: bytes, session: int, key: bytes, received: int) -> bytes:
    """What RESUME says."""
    fields = (frames.PROTOCOL_VERSION, 0, secrets.token_bytes(32), session, received)
    unproven = frames.Resume.LAYOUT.pack(*fields, b"")[:-32]
    return unproven + hmac.digest(key, frames.PROOF_RESUME + server_nonce + unproven, hashlib.sha256)


def ask(connection: socket.socket, body: bytes) -> None:
    header = frames.frame(frames.Frame.RESUME, body)[: frames.Header.SIZE]
    connection.sendall(header + body)


def resume(
    running: Monitor, session: int, key: bytes, received: int
) -> tuple[socket.socket, int, bytes, bool]:
    """Connection, op and body of the answer, and whether the server proved itself."""
    connection = connect(running.tcp)
    server_nonce = read_greeting(connection)
    body = resume_body(server_nonce, session, key, received)
    ask(connection, body)
    op, answer = read_frame(connection)
    expected = hmac.digest(key, frames.PROOF_RESUMED + server_nonce + body, hashlib.sha256)
    return connection, op, answer, answer[:32] == expected


def is_refused(running: Monitor, session: int, key: bytes, received: int = 0) -> None:
    """With the reason that says nothing about whose session it is."""
    connection, op, body, _ = resume(running, session, key, received)
    with closing(connection):
        assert op == frames.Frame.REFUSED
        assert frames.Refused.unpack(body).reason == handshake.Reason.NO_SESSION


def wait_gone(running: Monitor) -> None:
    """Until no session holds memory, and the API server is ready for another."""
    deadline = time.monotonic() + SECONDS
    while (device := running.status()["devices"][0])["memory_granted"] or not device["pool_idle"]:
        assert time.monotonic() < deadline


def test_goes_on_where_it_stopped(running: Monitor) -> None:
    """A request is cut in two; its answer comes on the second connection, once."""
    with held(running) as session:
        guest = session.guest
        address = guest.map(2)
        guest.write(address, b"abcd")
        assert guest.read(address, 4) == b"abcd"
        session_id = guest.session
        guest.socket.shutdown(socket.SHUT_RDWR)
        # Everything that it sent was received, and everything that was sent to it: only then was it read.
        connection, op, body, proven = resume(running, session_id, session.key, guest.received)
        assert (op, proven) == (frames.Frame.RESUMED, True)
        assert int.from_bytes(body[32:], "little") == guest.sent
        guest.adopt(connection)
        with closing(connection):
            assert guest.read(address, 4) == b"abcd"
            guest.close()
    wait_gone(running)


def test_a_guest_that_is_back_before_its_api_server_knows(running: Monitor) -> None:
    """The monitor says WELCOME before it hands the guest over; this one was quicker than both."""
    with held(running) as session:
        session.guest.close()
    wait_gone(running)
    with closing(connect(running.tcp)) as first, closing(connect(running.tcp)) as second:
        greetings, nonce = [read_greeting(first), read_greeting(second)], secrets.token_bytes(32)
        key = handshake.resume_key(running.token.encode(), greetings[0] + nonce)
        running.process.send_signal(signal.SIGSTOP)
        first.sendall(resumable_hello(nonce, greetings[0], running.token))
        ask(second, resume_body(greetings[1], session.guest.session + 1, key, 0))
        running.process.send_signal(signal.SIGCONT)
        assert read_frame(second)[0] == frames.Frame.RESUMED
        guest = CountingGuest(first)
        guest.receive_welcome()
        guest.adopt(second)
        assert guest.sync().status == 0
        guest.close()
    wait_gone(running)


def test_the_server_sends_again_what_was_lost(running: Monitor) -> None:
    """The guest claims to have received nothing: it gets all of it again, byte by byte."""
    with held(running) as session:
        guest = session.guest
        address = guest.map(2)
        guest.write(address, bytes(range(256)))
        data = guest.read(address, 256)
        connection, op, _, _ = resume(running, guest.session, session.key, 0)
        with closing(connection):
            assert op == frames.Frame.RESUMED
            again = b""
            while len(again) < guest.received:
                again += connection.recv(guest.received - len(again))
            assert data in again
            guest.adopt(connection)
            assert guest.read(address, 256) == data
            guest.close()
    wait_gone(running)


def test_a_second_connection_replaces_a_living_first(running: Monitor) -> None:
    """The first may be half open: nobody can know."""
    with held(running) as session:
        guest, first = session.guest, session.guest.socket
        connection, op, _, _ = resume(running, guest.session, session.key, guest.received)
        with closing(connection):
            assert op == frames.Frame.RESUMED
            assert first.recv(1) == b""
            guest.adopt(connection)
            assert guest.sync().status == 0
            guest.close()
    wait_gone(running)


def test_the_key_of_the_session_is_needed(running: Monitor) -> None:
    """The token alone does not do, and the session goes on undisturbed."""
    with held(running) as session:
        is_refused(running, session.guest.session, b"x" * 32)
        is_refused(running, session.guest.session, running.token.encode())
        assert session.guest.sync().status == 0
        session.guest.close()
    wait_gone(running)


def test_unknown_ended_and_ordinary_sessions_are_refused(running: Monitor) -> None:
    with held(running) as session:
        is_refused(running, session.guest.session + 1, session.key)
        session.guest.close()
    wait_gone(running)
    is_refused(running, session.guest.session, session.key)
    with held(running, resumable=False) as session:
        is_refused(running, session.guest.session, session.key)
        assert session.guest.sync().status == 0
        session.guest.close()
    wait_gone(running)


def test_counts_that_cannot_be(running: Monitor) -> None:
    """More than was sent."""
    with held(running) as session:
        is_refused(running, session.guest.session, session.key, 1 << 40)
        assert session.guest.sync().status == 0
        session.guest.close()
    wait_gone(running)


def test_what_was_acknowledged_is_not_sent_again(running: Monitor) -> None:
    """It was given up: a guest that wants it nevertheless cannot go on, and the session is not disturbed."""
    with held(running) as session:
        guest = session.guest
        address = guest.map(2)
        guest.write(address, bytes(range(256)) * 4096)
        data = guest.read(address, 1 << 20)
        count = guest.received
        guest.socket.sendall(frames.frame(frames.Frame.ACKNOWLEDGE, frames.Acknowledge(count).pack()))
        assert guest.sync().status == 0
        is_refused(running, guest.session, session.key, count - 1)
        assert guest.read(address, 1 << 20) == data
        connection, op, _, _ = resume(running, guest.session, session.key, guest.received)
        with closing(connection):
            assert op == frames.Frame.RESUMED
            guest.adopt(connection)
            assert guest.read(address, 1 << 20) == data
            guest.close()
    wait_gone(running)


def test_an_end_that_is_seen_together_with_its_cure(running: Monitor) -> None:
    """The end of the first connection does not count against the second, whatever is looked at first."""
    with held(running) as session:
        guest = session.guest
        guest.sync()
        (server,) = running.status()["servers"]
        connection = connect(running.tcp)
        body = resume_body(read_greeting(connection), guest.session, session.key, guest.received)
        os.kill(server["pid"], signal.SIGSTOP)
        try:
            guest.socket.shutdown(socket.SHUT_RDWR)
            said = running.log.stat().st_size
            ask(connection, body)
            deadline = time.monotonic() + SECONDS
            while b"guest came back" not in running.log.read_bytes()[said:]:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        finally:
            os.kill(server["pid"], signal.SIGCONT)
        with closing(connection):
            assert read_frame(connection)[0] == frames.Frame.RESUMED
            guest.adopt(connection)
            for _ in range(10):
                guest.sync()
            while (shown := running.status()["sessions"][0])["calls_sync"] < 11:
                assert time.monotonic() < deadline
            assert not shown["disconnected"]
            guest.close()
    wait_gone(running)


def test_who_is_away_is_shown_and_keeps_its_memory(running: Monitor) -> None:
    with held(running) as session:
        guest = session.guest
        guest.map(2)
        guest.sync()
        guest.socket.shutdown(socket.SHUT_RDWR)
        deadline = time.monotonic() + SECONDS
        while not (shown := running.status()["sessions"][0]).get("disconnected"):
            assert time.monotonic() < deadline
        assert shown["memory_mapped"] == 2 * PAGE
        connection, op, _, _ = resume(running, guest.session, session.key, guest.received)
        with closing(connection):
            assert op == frames.Frame.RESUMED
            guest.adopt(connection)
            guest.close()
    wait_gone(running)


def test_who_stays_away_loses_the_session() -> None:
    """Then everything is free."""
    with (
        monitor("--pool", "1", "--resume-grace", "0.2", in_clear=True) as impatient,
        held(impatient) as session,
    ):
        session.guest.map(2)
        session.guest.sync()
        session.guest.socket.shutdown(socket.SHUT_RDWR)
        wait_gone(impatient)
        is_refused(impatient, session.guest.session, session.key)


def test_an_acknowledgement_of_what_was_never_sent(running: Monitor) -> None:
    """Ends the session at once."""
    with held(running) as session:
        body = (1 << 50).to_bytes(8, "little")
        session.guest.socket.sendall(frames.frame(frames.Frame.ACKNOWLEDGE, body))
        assert "never sent" in session.guest.expect_end().text
    wait_gone(running)


def test_a_guest_that_acknowledges_nothing(running: Monitor) -> None:
    """What is kept for it is bounded: it loses the session before that grows without end."""
    with held(running) as session:
        guest = session.guest
        address = guest.map(2)

        def read_much() -> None:
            for _ in range(100):
                guest.read(address, 4 << 20)

        with pytest.raises((Ended, ConnectionError)):
            read_much()
    wait_gone(running)
