"""What HTTP allows and others do, on bare sockets."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import time
import tracemalloc
from types import SimpleNamespace
from typing import cast
from unittest.mock import AsyncMock, Mock

import pytest
from aiohttp import StreamReader, web
from aiohttp.base_protocol import BaseProtocol
from aiohttp.web_protocol import RequestHandler
from gpuferry.monitor.functions import bodies, connection
from gpuferry.monitor.functions.invocation import Code, Failed
from gpuferry.monitor.views.web.gate import Gate, Visit

from .serving import DEADLINE, DEEDS, Server

MOST = 1000  # bytes of a body


@pytest.fixture(scope="module")
def name(server: Server) -> str:
    server.deploy("http", body=MOST, most=1)
    return "http"


class Caller:
    """A connection, on which whatever a test wants is said."""

    def __init__(self, server: Server) -> None:
        host, _, port = server.address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), DEADLINE)
        self._heard = self._socket.makefile("rb")

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *_: object) -> None:
        self._heard.close()
        self._socket.close()

    def ask(self, path: str, *headers: str) -> None:
        lines = (f"POST {path} HTTP/1.1", "Host: 127.0.0.1", *headers)
        self._socket.sendall("".join(f"{line}\r\n" for line in lines).encode() + b"\r\n")

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the next answer; of an interim one no body."""
        status = int(self._heard.readline().split()[1])
        headers = {}
        while line := self._heard.readline().strip():
            key, _, value = line.decode().partition(": ")
            headers[key] = value
        return status, headers, self._heard.read(int(headers.get("Content-Length", 0)))


def test_a_body_is_asked_for_once_it_is_wanted(server: Server, name: str) -> None:
    with Caller(server) as caller:
        caller.ask(f"/function/{name}", "Content-Length: 3", "Expect: 100-continue")
        assert caller.answer() == (100, {}, b"")
        caller.send(b"abc")
        status, _, body = caller.answer()
        assert (status, body) == (200, b"abc")


def test_a_name_is_the_same_with_letters_that_are_escaped(server: Server, name: str) -> None:
    with Caller(server) as caller:
        caller.ask("/function/h%74tp", "Content-Length: 3")
        caller.send(b"abc")
        status, _, body = caller.answer()
        assert (status, body) == (200, b"abc")


@pytest.mark.parametrize(("path", "wanted"), [("/function/http", 413), ("/function/nobody", 404)])
def test_a_body_that_is_refused_is_not_asked_for(server: Server, name: str, path: str, wanted: int) -> None:
    with Caller(server) as caller:
        caller.ask(path, f"Content-Length: {MOST + 1}", "Expect: 100-continue")
        assert caller.answer()[0] == wanted


def test_other_expectations_are_refused(server: Server, name: str) -> None:
    with Caller(server) as caller:
        caller.ask(f"/function/{name}", "Content-Length: 0", "Expect: miracles")
        assert caller.answer()[0] == 417


@pytest.mark.parametrize(
    "body", [gzip.compress(b"x" * 10 * MOST, mtime=0), b"no gzip at all"], ids=["gzip", "none"]
)
def test_a_function_gets_the_body_that_its_headers_speak_of(server: Server, name: str, body: bytes) -> None:
    with Caller(server) as caller:
        caller.ask(f"/function/{name}?do=echo", f"Content-Length: {len(body)}", "Content-Encoding: gzip")
        caller.send(body)
        status, _, back = caller.answer()
        assert (status, back) == (200, body)


def test_a_handler_sees_all_lines_of_a_header(server: Server, name: str) -> None:
    """As proxies write them: each adds a line, or has parted a cookie's."""
    with Caller(server) as caller:
        lines = ("X-Forwarded-For: 192.0.2.1", "Cookie: a=1", "x-forwarded-for: 192.0.2.2", "Cookie: b=2")
        caller.ask(f"/function/{name}?do=facts", "Content-Length: 0", *lines)
        headers = json.loads(caller.answer()[2])["headers"]
        assert headers["x-forwarded-for"] == "192.0.2.1, 192.0.2.2"
        assert headers["cookie"] == "a=1; b=2"


def test_a_chunk_that_is_none_is_told_at_once(server: Server, name: str) -> None:
    """Also behind good ones; it was told half a minute later that it came too slowly."""
    with Caller(server) as caller:
        caller.ask(f"/function/{name}", "Transfer-Encoding: chunked", "Expect: 100-continue")
        assert caller.answer()[0] == 100
        caller.send(b"3\r\nabc\r\n")
        caller.send(b"no length\r\n")
        status, headers, body = caller.answer()
        said = json.loads(body)
        assert (status, said["error"], said["ran"]) == (400, "malformed", "no")
        assert said["why"].startswith("the request's body is malformed: Invalid character in chunk size")
        assert headers["Connection"] == "close"


@pytest.mark.parametrize("ends", [True, False])
def test_a_head_is_bounded_in_all(server: Server, name: str, ends: bool) -> None:
    """128 headers of 8 KiB were taken, of each of 33 requests of a connection: a stranger with forty of these
    had a server's memory, 2 GiB.
    """
    with Caller(server) as caller:
        caller.ask(f"/function/{name}", "Content-Length: 0", *(f"A-{n}: {'x' * 8000}" for n in range(7)))
        assert caller.answer()[0] == 200
    with Caller(server) as caller:
        line = f"POST /function/{name} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n"
        caller.send(line.encode() + b"".join(b"A-%d: %s\r\n" % (n, b"x" * 8000) for n in range(9)))
        if ends:
            caller.send(b"\r\n")
        status, headers, _ = caller.answer()
        assert (status, headers["Connection"]) == (431, "close")


def connected() -> tuple[RequestHandler, Mock]:
    """One of a server's connections, and a transport that takes what is said on it."""
    connection.bound()
    made, transport = web.Server(AsyncMock())(), Mock(asyncio.Transport)
    transport.is_closing.return_value = False
    made.connection_made(transport)
    return made, transport


def test_a_body_is_no_head() -> None:
    """However much of it comes at once, and the next head behind it."""

    async def send() -> None:
        made, transport = connected()
        half = b"x" * 2 * connection.HEAD_MOST
        made.data_received(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (2 * len(half)))
        made.data_received(half)
        made.data_received(half + b"POST / HTTP/1.1\r\n")
        assert not transport.abort.called
        assert not transport.write.called
        made.data_received(b"".join(b"A-%d: %s\r\n" % (n, b"x" * 8000) for n in range(9)))
        assert transport.abort.called  # the first one was promised an answer
        made.connection_lost(None)

    asyncio.run(send())


def test_few_requests_wait_behind_the_one_that_is_answered(server: Server, name: str) -> None:
    """And all are answered, in their order."""

    async def fill() -> tuple[int, bool]:
        made, transport = connected()
        made.data_received(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 10)
        waiting = len(made._messages)
        made.connection_lost(None)
        return waiting, transport.pause_reading.called

    assert asyncio.run(fill()) == (connection.WAITING_MOST, True)
    with Caller(server) as caller:
        for number in range(10):
            caller.ask(f"/function/{name}/{number}?do=facts", "Content-Length: 0")
        told = [json.loads(caller.answer()[2])["path"] for _ in range(10)]
        assert told == [f"/{number}" for number in range(10)]


# What a handler may do to its own process.
FORKS = (
    DEEDS
    + """
    if do == "fork":
        child = os.fork()
        if not child:
            if request.query["how"] == "raise": raise RuntimeError("the child")
            return "the child"
        os.waitpid(child, 0)
        return "the parent"
    if do == "shut": sys.stdout.close(); return "shut"
"""
)


@pytest.mark.parametrize("how", ["return", "raise"])
def test_a_child_of_a_handler_does_not_answer(server: Server, how: str) -> None:
    server.deploy(f"forks-{how}", FORKS, most=1)
    replica = server.invoke(f"forks-{how}", "pid").body
    assert server.invoke(f"forks-{how}", "fork", how=how).body == b"the parent"
    assert [server.invoke(f"forks-{how}", "pid").body for _ in range(3)] == [replica] * 3


def test_a_handler_that_closes_its_output_has_answered(server: Server) -> None:
    server.deploy("shuts", FORKS, most=1)
    assert server.invoke("shuts", "shut").body == b"shut"
    assert server.invoke("shuts", "echo", body="x").body == b"x"


def test_a_body_that_is_said_to_be_large_has_no_more_time_for_its_first_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else who says so and sends nothing keeps a connection for minutes, and all of them from others."""
    monkeypatch.setattr(bodies, "SECONDS", 0.05)

    async def read() -> None:
        protocol = BaseProtocol(asyncio.get_running_loop())
        protocol.connection_made(asyncio.Transport())
        content = StreamReader(protocol, 1 << 16)
        content.feed_data(b"x")
        request = SimpleNamespace(body_exists=True, content_length=16 << 20, headers={}, content=content)
        with bodies.Bodies(1 << 30).hold() as held:
            await held.read(cast(web.BaseRequest, request), 16 << 20)

    with pytest.raises(Failed) as failed:
        asyncio.run(asyncio.wait_for(read(), 30))
    assert failed.value.code is Code.TOO_SLOW


def test_a_body_in_small_parts_takes_the_memory_that_it_is_counted_for() -> None:
    """Else who sends two bytes at a time takes sixty times as much as all bodies may have together."""
    size = 1 << 13

    async def read() -> bytes:
        protocol = BaseProtocol(asyncio.get_running_loop())
        content = StreamReader(protocol, 1 << 16)
        given = SimpleNamespace(at_eof=content.at_eof, readany=lambda: feed(content))
        request = SimpleNamespace(body_exists=True, content_length=size, headers={}, content=given)
        with bodies.Bodies(1 << 30).hold() as held:
            return await held.read(cast(web.BaseRequest, request), size)

    fed = 0

    async def feed(content: StreamReader) -> bytes:
        nonlocal fed
        content.feed_data(fed.to_bytes(2, "big"))
        part = await content.readany()
        fed += len(part)
        if fed == size:
            content.feed_eof()
        return part

    tracemalloc.start()
    try:
        assert len(asyncio.run(read())) == size
        assert tracemalloc.get_traced_memory()[1] < 16 * size
    finally:
        tracemalloc.stop()


def test_a_large_answer_has_the_time_that_it_takes() -> None:
    """16 MiB over a line of 4 Mbit/s take longer than what any answer may."""
    with socket.socket() as listening, socket.socket() as connection:
        gate = Gate(listening, 8, patient=True)
        visit = Visit(connection, "", 0.0)
        transport = asyncio.Transport()
        gate._by_transport[transport] = visit
        with gate.answering(transport) as many:
            many(16 << 20)
        assert visit.deadline > time.monotonic() + 200
        with gate.answering(transport):
            pass
        assert visit.deadline < time.monotonic() + 100  # the next one is another
