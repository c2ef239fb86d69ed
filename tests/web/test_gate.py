"""Who is slow, or comes too often, keeps nobody else out of the page."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import uvloop
from aiohttp import web
from gpuferry.monitor.views.web import gate, server

from tests.helpers.certificates import Certificates
from tests.monitor.harness import DEADLINE, wait_until

from .stage import KEY, Stage, empty, session
from .test_http import ask

HALF = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "


def request(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {KEY}\r\n\r\n".encode()


EVENTS = request("/api/events")


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage(empty(), connections=12) as stage:  # six of one machine, three of those streams
        yield stage


def connect(stage: Stage) -> socket.socket:
    where = urlsplit(stage.url)
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(DEADLINE)
    connection.connect((where.hostname, where.port))
    return connection


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_half_requests_keep_nobody_out(stage: Stage) -> None:
    with ExitStack() as stack:
        halves = [stack.enter_context(connect(stage)) for _ in range(40)]
        for half in halves:
            half.sendall(HALF)
        assert ask(stage.url, "/healthz")[0] == 200
        assert is_closed(halves[0])  # the oldest made room
        halves[-1].sendall(b"1\r\n\r\n")  # one of the latest goes on, and is answered
        assert halves[-1].recv(100).startswith(b"HTTP/1.1 200")


def test_a_request_that_is_never_complete_is_cut_off(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "HEADER_SECONDS", 0.05)
    monkeypatch.setattr(gate, "SWEEP_SECONDS", 0.01)
    with connect(stage) as half, connect(stage) as silent:
        with contextlib.suppress(ConnectionError):  # it may be cut off already
            half.sendall(HALF)
        assert is_closed(half)
        assert is_closed(silent)


def test_a_handshake_of_tls_that_is_never_complete_is_cut_off(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "HEADER_SECONDS", 0.05)
    monkeypatch.setattr(gate, "SWEEP_SECONDS", 0.01)
    with (
        Stage(empty(), identity=certificates.identity()) as stage,
        connect(stage) as silent,
        connect(stage) as half,
    ):
        with contextlib.suppress(ConnectionError):
            half.sendall(b"\x16\x03\x01\x02\x00\x01")  # a ClientHello begins
        assert is_closed(half)
        assert is_closed(silent)


def test_streams_of_one_machine_leave_room_for_others(stage: Stage) -> None:
    with ExitStack() as stack:
        answers = []
        for _ in range(4):
            page = stack.enter_context(connect(stage))
            page.sendall(EVENTS)
            answers.append(page.recv(12))
        assert answers == [b"HTTP/1.1 200"] * 3 + [b"HTTP/1.1 503"]
        assert ask(stage.url, "/readyz")[0] in (200, 503)


def test_streams_of_tenants_leave_room_wherever_they_come_from() -> None:
    """Each from an address of its own: of 32 connections 8 may be tenants' streams, 4 of them one's."""
    with socket.socket() as listening:
        door = gate.Gate(listening, 32)

        def may(tenant: str | None) -> bool:
            transport = asyncio.Transport()
            visit = gate.Visit(listening, f"10.0.0.{len(door._visits)}", 0.0)
            door._visits[visit] = None
            door._by_transport[transport] = visit
            return door.may_stream(transport, tenant)

        assert [may("a") for _ in range(5)] == [True] * 4 + [False]
        assert [may("b") for _ in range(4)] == [True] * 4
        assert not may("c")
        assert all(may(None) for _ in range(8))


def test_a_page_that_does_not_read_is_cut_off(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "READ_SECONDS", 0.05)
    crowd = empty()
    crowd.sessions.extend(session(number, program="x" * 500) for number in range(1500))
    with connect(stage) as page:
        page.sendall(EVENTS)
        assert page.recv(12) == b"HTTP/1.1 200"
        stage.show(crowd)
        wait_until(lambda: not stage.observatory._viewers, "nobody looks any more")


def test_an_answer_that_is_not_read_is_cut_off(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "ANSWER_SECONDS", 0.05)
    monkeypatch.setattr(gate, "SWEEP_SECONDS", 0.01)
    crowd = empty()
    crowd.sessions.extend(session(number, program="x" * 500) for number in range(1500))
    stage.show(crowd)
    with connect(stage) as slow:
        slow.sendall(request("/api/status"))
        read = 0
        while part := slow.recv(1 << 20) if read else slow.recv(16):
            read += len(part)
            if read < 100:
                wait_until(lambda: not stage._server._gate._visits, "it was cut off")
        assert read < 1500 * 500


def accepted(port: int) -> int:
    """How many connections that came to this port are open in this process."""
    ours = set()
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # another thread's, that it has closed
            ours.add(os.readlink(f"/proc/self/fd/{descriptor}"))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    here = [row for row in rows if int(row[1].rpartition(":")[2], 16) == port and row[3] != "0A"]
    return sum(f"socket:[{row[9]}]" in ours for row in here)


def test_who_does_not_read_the_end_of_its_last_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looked after a connection that was to be closed once all was sent: a stranger, who needs no key
    for the page's files, had as many descriptors as there were.
    """
    monkeypatch.setattr(gate, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(gate, "SWEEP_SECONDS", 0.01)
    monkeypatch.setattr(asyncio, "new_event_loop", uvloop.new_event_loop)  # as a monitor has
    last = b"GET /static/page.js HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    with Stage(empty(), connections=100) as stage, ExitStack() as stack:
        port = urlsplit(stage.url).port
        assert port
        for answers in range(30):  # of some so much is left that it fits into what is sent by and by
            slow = stack.enter_context(connect(stage))
            slow.sendall(request("/static/page.js") * answers + last)
            assert slow.recv(1)
        wait_until(lambda: not accepted(port), "none is open any more")


@pytest.mark.parametrize(
    "body", [b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 1000, b"Content-Length: 9\r\n\r\n"]
)
def test_nobody_reads_a_body(stage: Stage, body: bytes) -> None:
    """The parts of half a megabyte kept all others waiting, before anybody knew whose they were."""
    with connect(stage) as connection:
        connection.sendall(b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\n" + body)
        assert connection.recv(100).startswith(b"HTTP/1.1 413")
        assert is_closed(connection)
    assert ask(stage.url, "/healthz")[0] == 200


def test_a_head_without_end_is_refused(stage: Stage) -> None:
    with connect(stage) as connection:
        connection.sendall(HALF + b"1" * (64 << 10))
        assert connection.recv(100).startswith(b"HTTP/1.1 431")


def test_requests_in_one_piece_are_all_answered(stage: Stage) -> None:
    with connect(stage) as connection:
        connection.sendall(request("/healthz") * 20 + HALF)
        connection.sendall(b"1\r\n\r\n")
        answers = b""
        while answers.count(b"HTTP/1.1 200") < 21:
            part = connection.recv(4096)
            assert part
            answers += part


@pytest.mark.parametrize(
    "head",
    [
        b"Host: 127.0.0.1\r\nAuthorization: Basic \xc3\xa9",
        b"Host: 127.0.0.1\r\nAuthorization: Bearer \xff",
        b"Host: 127.0.0.1\r\nCookie: gpuferry-page-%d=\xff",
        b"Host: \xff",
        b"Host: 127.0.0.1\r\nno header",
    ],
)
def test_strangers_write_nothing_into_the_log(
    stage: Stage, caplog: pytest.LogCaptureFixture, head: bytes
) -> None:
    """Each of these was a traceback, as often as anybody liked."""
    with connect(stage) as connection:
        port = connection.getpeername()[1]
        connection.sendall(b"GET /metrics HTTP/1.1\r\n" + head.replace(b"%d", b"%d" % port) + b"\r\n\r\n")
        assert connection.recv(12).endswith((b" 400", b" 401", b" 403"))
    assert ask(stage.url, "/healthz")[0] == 200
    assert not caplog.records


def test_a_page_that_is_closed_before_it_is_answered_writes_nothing_into_the_log(
    stage: Stage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hung_up(*_: object) -> None:
        raise ConnectionResetError("Cannot write to closing transport")

    with monkeypatch.context() as there:
        there.setattr(web.StreamResponse, "prepare", hung_up)
        with connect(stage) as connection:
            connection.sendall(EVENTS)
            assert is_closed(connection)
    assert ask(stage.url, "/healthz")[0] == 200
    assert not caplog.records
