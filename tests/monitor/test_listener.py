"""The door by itself: what a guest's connection brings along, and who makes room for whom."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import select
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from gpuferry.monitor.door import listener as doors
from gpuferry.monitor.door.credentials import OwnToken
from gpuferry.monitor.door.guests import Guest
from gpuferry.monitor.door.handshake import Claim, Proven, Refusal, Resume
from gpuferry.monitor.door.listener import Listener, listen_tcp
from gpuferry.monitor.door.secure import SecureHandshake
from gpuferry.native.tls.stream import Connection

from tests.helpers.certificates import certificates
from tests.monitor.fake_guest import hello_frame, read_greeting

TOKEN = "0" * 64
DEADLINE = 60  # seconds for one more to be heard


def test_connections_inherit_what_was_set_on_the_listening_socket() -> None:
    with listen_tcp("127.0.0.1:0") as listening:
        with socket.create_connection(listening.getsockname()):
            listening.setblocking(True)
            connection, _ = listening.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 15
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 20_000
            assert connection.getblocking()


def test_a_crowd_does_not_fill_what_the_system_keeps_for_the_listener() -> None:
    """Who came behind 513 that nobody had accepted yet was not heard before TCP asked again, 1 s later: and
    not then, either, if nobody had accepted any by then.
    """
    most = int(Path("/proc/sys/net/core/somaxconn").read_text())
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(listen_tcp("127.0.0.1:0"))
        waiting = {}
        for _ in range(min(most, 700)):
            connection = stack.enter_context(socket.socket())
            connection.setblocking(False)
            connection.connect_ex(listening.getsockname())
            waiting[connection.fileno()] = connection
        # A busy kernel takes its time; who finds the queue full is not heard, for nobody accepts.
        poll = select.poll()
        for waits in waiting:
            poll.register(waits, select.POLLOUT)
        while waiting:
            connected = poll.poll(1000 * DEADLINE)
            assert connected, f"{len(waiting)} were not heard"
            for descriptor, _ in connected:
                poll.unregister(descriptor)
                del waiting[descriptor]


class Reception:
    """A door that accepts every guest whose proof is right."""

    def __init__(self) -> None:
        self.came: list[Guest] = []

    def arrive(self, guests: Sequence[Guest]) -> None:
        self.came.extend(guests)

    def quiet(self) -> None:
        pass

    def resume(self, connection: Connection, peer: str, resume: Resume) -> None:
        raise AssertionError(peer)

    def turn_away(self, connection: Connection, peer: str, refusal: Refusal) -> None:
        raise AssertionError(refusal.text)


def test_the_oldest_of_a_crowd_makes_room() -> None:
    """More handshakes than there may be at once: those that say nothing go, and who then comes is heard."""

    async def main() -> None:
        reception = Reception()
        listening = listen_tcp("127.0.0.1:0")
        listener = Listener(listening, OwnToken(TOKEN.encode()), 60, reception, most=4)
        with contextlib.closing(listener), contextlib.ExitStack() as stack:

            def come() -> socket.socket:
                return stack.enter_context(socket.create_connection(listening.getsockname()))

            silent = [come() for _ in range(20)]
            listener._look()
            guest = come()
            listener._look()
            for gone in silent[:17]:
                read_greeting(gone)
                assert gone.recv(1) == b""
            guest.sendall(hello_frame(read_greeting(guest), TOKEN))
            listener._look()
            assert [one.hello.program for one in reception.came] == ["fake"]
            reception.came[0].connection.close()

    asyncio.run(main())


def test_without_descriptors_for_tls_a_guest_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the certificate has just changed. It ended the look at all others."""
    failing = [OSError(errno.EMFILE, os.strerror(errno.EMFILE))]

    def begin(*arguments: Any) -> SecureHandshake:
        if failing:
            raise failing.pop()
        return SecureHandshake(*arguments)

    async def main() -> None:
        listening = listen_tcp("127.0.0.1:0")
        identity = certificates().identity()
        listener = Listener(listening, OwnToken(TOKEN.encode()), 60, Reception(), identity)
        with contextlib.closing(listener), contextlib.ExitStack() as stack:
            one, other = (
                stack.enter_context(socket.create_connection(listening.getsockname())) for _ in range(2)
            )
            listener._look()
            assert one.recv(1) == b""
            host, port = other.getsockname()
            assert [each.peer for each in listener._handshakes.values()] == [f"{host}:{port}"]

    monkeypatch.setattr(doors, "SecureHandshake", begin)
    asyncio.run(main())


class Slow(OwnToken):
    """Must look each token up, for as long as it takes."""

    def at_once(self, claim: Claim) -> Proven | None:
        return None

    async def judge(self, claim: Claim) -> Proven | None:
        await asyncio.get_running_loop().create_future()
        return None


def test_claims_that_take_long_make_room_at_once() -> None:
    """Those that were told to go counted until the next round, and all anew for each who came."""

    async def main() -> None:
        listening = listen_tcp("127.0.0.1:0")
        listener = Listener(listening, Slow(TOKEN.encode()), 60, Reception(), most=4)
        with contextlib.closing(listener), contextlib.ExitStack() as stack:

            def come() -> socket.socket:
                return stack.enter_context(socket.create_connection(listening.getsockname()))

            for _ in range(4):
                guest = come()
                listener._look()
                guest.sendall(hello_frame(read_greeting(guest), TOKEN))
                listener._look()
            assert len(listener._lookups) == 4
            for _ in range(3):
                come()
            listener._look()
            assert (len(listener._lookups), len(listener._handshakes)) == (3, 1)  # who says nothing first
            await asyncio.sleep(0)

    asyncio.run(main())
