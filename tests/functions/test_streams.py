"""Answers in parts: generators, programs that stream, and what happens to them in the middle."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from gpuferry.monitor.functions import front
from gpuferry.monitor.functions.bodies import Bodies
from gpuferry.monitor.functions.invocation import Answer
from gpuferry.monitor.functions.stream import Stream

from .serving import DEADLINE, PYTHON, Got, Server, until
from .test_http import Caller

# What a request's `do` says; a pipe tells it when to go on.
YIELDS = """
import asyncio, os, time

def meet(request):
    with open(request.query["here"], "w") as here: here.write(str(os.getpid()))
    with open(request.query["go"]) as go: return go.read()

def met(request):
    yield "first"
    yield meet(request)
    yield "last"

def closed(request):
    try:
        while True:
            yield b"x" * 1000
    finally:
        meet(request)

async def asynchronous(request):
    try:
        while True:
            yield "x"
            await asyncio.sleep(0)
    finally:
        meet(request)

def several(request):
    yield {"one": 1}
    yield [2]
    yield {"three": 3}

def raises(before):
    yield from ["x"] * before
    raise ValueError("not that")

def large(size):
    for _ in range(size >> 20):
        yield bytes(1 << 20)

def counts(request):
    for number in range(1000):
        with open(request.query["file"], "w") as file: file.write(str(number))
        yield bytes(1 << 16)

def forks(request):
    yield "before"
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        yield "parent"
    else:
        yield "child"

def events():
    for number in range(3):
        yield f"data: {number}\\n\\n"

def nothing():
    return
    yield

def handle(request):
    do = request.query.get("do", "")
    if do == "met": return met(request)
    if do == "closed": return closed(request)
    if do == "async": return asynchronous(request)
    if do == "several": return several(request)
    if do == "raises": return raises(int(request.query["before"]))
    if do == "large": return large(int(request.query["size"]))
    if do == "counts": return counts(request)
    if do == "forks": return forks(request)
    if do == "nothing": return nothing()
    if do == "wrong": return iter(["x", 5])
    if do == "events": return events(), 200, {"Content-Type": "text/event-stream"}
    if do == "status": return iter(["no"]), 404
    if do == "silly": return iter(["no"]), 99
    if do == "exits": return exits()
    if do == "loops": return loops()
    return str(os.getpid())

def exits():
    yield "x"
    os._exit(4)

def loops():
    yield "x"
    while True: pass
"""


@pytest.fixture(scope="module")
def name(server: Server) -> str:
    server.deploy("streams", YIELDS, most=1)
    return "streams"


@contextlib.contextmanager
def reading(server: Server, path: str) -> Iterator[http.client.HTTPResponse]:
    """The answer, whose parts are read one by one; at the end the caller goes."""
    connection = server.connection()
    try:
        connection.request("POST", path)
        yield connection.getresponse()
    finally:
        connection.close()


def broken(server: Server, path: str) -> tuple[Got, str]:
    """An answer that breaks off after its head, and what the function's log says of it."""
    with reading(server, path) as answer:
        with pytest.raises(http.client.IncompleteRead) as error:
            answer.read()
        got = Got(answer.status, dict(answer.headers.items()), error.value.partial)
    name = path.split("/")[2].partition("?")[0]
    [said] = until(
        lambda: [line["text"] for line in server.logs(name) if "broke off" in line["text"]][-1:], bool
    )
    return got, said


def test_a_part_is_there_before_the_next_is_made(server: Server, name: str) -> None:
    here, go = server.folder / "stream-here", server.folder / "stream-go"
    answered = server.show(name)["invocations"]["ok"]
    os.mkfifo(here)
    os.mkfifo(go)
    with reading(server, f"/function/{name}?do=met&here={here}&go={go}") as answer:
        assert answer.read1() == b"first"
        assert (answer.headers["X-Gpuferry-Ran"], answer.headers["Content-Type"]) == (
            "yes",
            "text/plain; charset=utf-8",
        )
        here.read_text()
        go.write_text("second")
        assert answer.read() == b"secondlast"
    assert server.show(name)["invocations"]["ok"] == answered + 1


@pytest.mark.parametrize(
    ("do", "status", "kind", "body"),
    [
        ("events", 200, "text/event-stream", b"data: 0\n\ndata: 1\n\ndata: 2\n\n"),
        ("several", 200, "application/x-ndjson", b'{"one": 1}\n[2]\n{"three": 3}\n'),
        ("status", 404, "text/plain; charset=utf-8", b"no"),
        ("nothing", 200, None, b""),
    ],
)
def test_what_is_yielded(
    server: Server, name: str, do: str, status: int, kind: str | None, body: bytes
) -> None:
    got = server.invoke(name, do)
    assert (got.status, got.body, got.ran) == (status, body, "yes")
    assert kind is None or got.headers["Content-Type"] == kind


def test_an_exception_before_the_first_part_is_answered(server: Server, name: str) -> None:
    got = server.invoke(name, "raises", before=0)
    assert (got.status, got.error, got.ran) == (500, "raised", "yes")
    got = server.invoke(name, "silly")
    assert (got.status, got.error) == (500, "raised")


@pytest.mark.parametrize(("do", "why"), [("raises&before=2", "not that"), ("wrong", "handle yielded int")])
def test_one_in_the_middle_breaks_the_answer_off(server: Server, name: str, do: str, why: str) -> None:
    """Nobody takes half an answer for a whole one; the replica stays."""
    pid = server.invoke(name, "").body
    got, said = broken(server, f"/function/{name}?do={do}")
    assert (got.status, got.body[:1], got.ran) == (200, b"x", "yes")
    assert why in said
    assert server.invoke(name, "").body == pid


@pytest.mark.system
@pytest.mark.parametrize(
    ("do", "why", "limits"), [("exits", "status 4", {}), ("loops", "took longer", {"timeout": 3.0})]
)
def test_a_process_that_ends_in_the_middle(
    server: Server, do: str, why: str, limits: dict[str, float]
) -> None:
    """Its limit is longer than what it takes to begin, on a machine that is slow, too."""
    server.deploy(f"ends-{do}", YIELDS, most=1, **limits)
    got, said = broken(server, f"/function/ends-{do}?do={do}")
    assert (got.body, why in said) == (b"x", True)
    assert server.invoke(f"ends-{do}", "").status == 200


@pytest.mark.parametrize("do", ["closed", "async"])
def test_a_caller_who_goes_closes_the_generator(server: Server, name: str, do: str) -> None:
    here, go = server.folder / f"{do}-here", server.folder / f"{do}-go"
    os.mkfifo(here)
    os.mkfifo(go)
    with reading(server, f"/function/{name}?do={do}&here={here}&go={go}") as answer:
        assert answer.read(1) == b"x"
    here.read_text()
    go.write_text("")
    server.becomes(name, lambda shown: shown["running"] == 0)
    text = server.ask("GET", "/metrics", Authorization=f"Bearer {server.token}").body.decode()
    assert f'invocations_total{{function="{name}",result="cancelled"}}' in text
    assert server.invoke(name, "").status == 200


def test_a_handler_is_no_faster_than_its_caller_reads(server: Server, name: str) -> None:
    file = server.folder / "counted-parts"
    with Caller(server) as caller:
        caller.ask(f"/function/{name}?do=counts&file={file}", "Content-Length: 0")
        reached = until(lambda: _settled(file), lambda count: count is not None)
        assert reached < 100  # of 1000: what sockets hold is little
    server.becomes(name, lambda shown: shown["running"] == 0)


def _settled(file: Path) -> int | None:
    """How far it is, once it goes no further for a while."""
    seen = [file.read_text() if file.exists() else ""]
    for _ in range(20):
        seen.append(file.read_text() if file.exists() else "")
        time.sleep(0.02)
    return int(seen[-1]) if seen[-1] and len(set(seen)) == 1 else None


def test_a_stream_may_be_longer_than_any_body_but_a_part_may_not(server: Server) -> None:
    server.deploy("long", YIELDS, most=1, body=2 << 20)
    got = server.invoke("long", "large", size=8 << 20)
    assert (got.status, len(got.body)) == (200, 8 << 20)
    assert server.ask("HEAD", f"/function/long?do=large&size={8 << 20}").status == 200
    server.deploy("short", YIELDS, most=1, body=1 << 19)
    _, said = broken(server, f"/function/short?do=large&size={1 << 20}")
    assert "and may have" in said


def test_who_speaks_http_1_0_gets_it_whole(server: Server, name: str) -> None:
    host, _, port = server.address.rpartition(":")
    with socket.create_connection((host, int(port)), DEADLINE) as caller:
        caller.sendall(f"POST /function/{name}?do=several HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n".encode())
        said = caller.makefile("rb").read()
    assert said.endswith(b'\r\n\r\n{"one": 1}\n[2]\n{"three": 3}\n')
    assert b"Content-Length: 28" in said
    assert server.ask("HEAD", f"/function/{name}?do=several").body == b""


def test_a_child_that_a_generator_forked_does_not_answer(server: Server, name: str) -> None:
    pid = server.invoke(name, "").body
    assert server.invoke(name, "forks").body == b"beforeparent"
    assert server.invoke(name, "").body == pid


def test_a_chunked_request_is_read_whole_within_its_limit(server: Server) -> None:
    server.deploy("chunked", body=1000)
    parts = [b"x" * 400, b"y" * 400]
    got = server.ask("POST", "/function/chunked?do=echo", iter(parts))
    assert (got.status, got.body) == (200, b"".join(parts))
    assert server.ask("POST", "/function/chunked?do=echo", iter([*parts, *parts])).status == 413


PROGRAM = """
import http.server, os, sys, urllib.parse

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def chunk(self, data):
        self.wfile.write(b"%x\\r\\n%s\\r\\n" % (len(data), data))
    def do_POST(self):
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
        self.send_response(200)
        if query["do"] == "forever":
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            try:
                while True: self.wfile.write(b"data: x\\n\\n")
            except OSError:
                open(query["told"], "w").close()
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.chunk(b"first")
        if query["do"] == "meet":
            with open(query["here"], "w") as here: here.write(str(os.getpid()))
            with open(query["go"]) as go: self.chunk(go.read().encode())
        if query["do"] == "crash":
            os._exit(5)
        self.chunk(b"")
    def log_message(self, *_): pass

http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@pytest.fixture(scope="module")
def program(server: Server) -> str:
    file = server.folder / "streaming.py"
    file.write_text(PROGRAM)
    server.deploy("streamer", command=[PYTHON, str(file), "$PORT"], most=1, concurrency=4)
    return "streamer"


def test_a_program_streams(server: Server, program: str) -> None:
    here, go = server.folder / "program-here", server.folder / "program-go"
    os.mkfifo(here)
    os.mkfifo(go)
    with reading(server, f"/function/{program}?do=meet&here={here}&go={go}") as answer:
        assert answer.read1() == b"first"
        here.read_text()
        go.write_text("second")
        assert answer.read() == b"second"


def test_a_program_that_crashes_in_its_stream(server: Server, program: str) -> None:
    got, said = broken(server, f"/function/{program}?do=crash")
    assert (got.status, got.body) == (200, b"first")
    assert "gave no answer" in said


def test_a_program_learns_that_its_caller_has_gone(server: Server, program: str) -> None:
    told = server.folder / "program-told"
    with reading(server, f"/function/{program}?do=forever&told={told}") as answer:
        assert answer.headers["Content-Type"] == "text/event-stream"
        assert answer.read(7) == b"data: x"
    until(told.exists, bool)
    server.becomes(program, lambda shown: shown["running"] == 0)


@pytest.mark.parametrize("streams", [True, False])
def test_a_connection_that_closes_between_two_writes_is_no_error_of_ours(streams: bool) -> None:
    """Callers come and go: a traceback of each would be all that the log has."""

    async def run() -> list[Exception]:
        left, wrong = asyncio.Event(), []
        stream = Stream(left.set)

        async def handle(request: Any) -> web.StreamResponse:
            assert request.transport
            try:
                with Bodies(1 << 30).hold() as held:
                    if streams:
                        answered = asyncio.ensure_future(answer(request))
                        try:
                            return await front._pass_on(request, Answer(200, (), b""), stream, held, 1 << 20)
                        finally:
                            await answered
                    request.transport.close()
                    return await front._write(request, Answer(200, (), b""), bytes(1 << 20), held)
            except Exception as error:
                wrong.append(error)
                raise

        async def answer(request: Any) -> None:
            await stream.put(b"first")
            request.transport.close()
            await stream.put(b"second")

        runner = web.ServerRunner(web.Server(handle))
        await runner.setup()
        listening = socket.create_server(("127.0.0.1", 0))
        await web.SockSite(runner, listening).start()
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        await asyncio.wait_for(reader.read(), DEADLINE)
        writer.close()
        await runner.cleanup()
        return wrong

    assert asyncio.run(run()) == []


def test_who_does_not_read_a_stream_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever kept all connections open in this way kept everybody else out, for as long as it liked."""
    monkeypatch.setattr(front, "SECONDS", 0.05)
    monkeypatch.setattr(front, "BYTES_PER_SECOND", 1 << 40)

    async def run() -> None:
        left = asyncio.Event()
        stream = Stream(left.set)

        async def handle(request: Any) -> web.StreamResponse:
            with Bodies(1 << 30).hold() as held:
                return await front._pass_on(
                    request, Answer(200, (), b"", stream=stream), stream, held, 1 << 20
                )

        async def answer() -> None:
            while not left.is_set():
                await stream.put(bytes(1 << 20))

        runner = web.ServerRunner(web.Server(handle, handler_cancellation=True))
        await runner.setup()
        listening = socket.create_server(("127.0.0.1", 0))
        await web.SockSite(runner, listening).start()
        with socket.create_connection(listening.getsockname()) as caller:
            caller.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            parts = asyncio.ensure_future(answer())
            await asyncio.wait_for(left.wait(), DEADLINE)
            await parts
        await runner.cleanup()

    asyncio.run(run())


def test_who_does_not_read_a_large_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what has been read, and not by what there is to read: its memory is taken from all."""
    monkeypatch.setattr(front, "SECONDS", 0.05)
    monkeypatch.setattr(front, "BYTES_PER_SECOND", 1 << 20)

    async def run() -> None:
        cut = asyncio.Event()

        async def handle(request: Any) -> web.StreamResponse:
            try:
                with Bodies(1 << 30).hold() as held:
                    return await front._write(request, Answer(200, (), b""), bytes(64 << 20), held)
            finally:
                cut.set()

        runner = web.ServerRunner(web.Server(handle))
        await runner.setup()
        listening = socket.create_server(("127.0.0.1", 0))
        await web.SockSite(runner, listening).start()
        with socket.create_connection(listening.getsockname()) as caller:
            caller.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            await asyncio.wait_for(cut.wait(), DEADLINE)
        await runner.cleanup()

    asyncio.run(run())
