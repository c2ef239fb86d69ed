"""Functions that are programs which speak HTTP."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
import uvloop
from gpuferry.monitor.functions import program as tried
from gpuferry.monitor.functions.deployment import Deployment
from gpuferry.monitor.functions.invocation import Call, Code, Failed, Ran
from gpuferry.monitor.functions.process import Process
from gpuferry.monitor.functions.program import NUMBER, ProgramReplica, _Connections, _once

from .serving import PYTHON, Asked, Meeting, Server, gone, leave, until

PROGRAM = """
import http.server, json, os, sys, threading, urllib.parse
log = open(sys.argv[2], "a")

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        log.write(self.path + "\\n"); log.flush()
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
        if query.get("do") == "hang-up":
            self.close_connection = True
            return
        if query.get("do") == "crash":
            os._exit(5)
        if query.get("do") == "loop":
            threading.Event().wait()
        text = "fine"
        if query.get("do") == "told":
            with open(query["here"], "w") as here: here.write(str(os.getpid()))
            if self.connection.recv(1) == b"": log.write("told\\n"); log.flush()
            with open(query["go"]) as go: text = go.read()
        if query.get("do") == "meet":
            with open(query["here"], "w") as here: here.write(str(os.getpid()))
            with open(query["go"]) as go: text = go.read()
        said = {"path": self.path, "body": body.decode(), "text": text, "pid": os.getpid()}
        said = json.dumps(said).encode()
        self.send_response(201)
        self.send_header("Content-Length", str(len(said)))
        self.send_header("X-Mine", "yes")
        self.send_header("Location", "/elsewhere")
        self.end_headers()
        self.wfile.write(said)
    do_POST = do_PUT = do_GET

http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@pytest.fixture(scope="module")
def program(server: Server) -> Path:
    file = server.folder / "program.py"
    file.write_text(PROGRAM)
    return file


def deploy(server: Server, name: str, program: Path, **settings: Any) -> Path:
    log = server.folder / f"{name}.log"
    command = [PYTHON, str(program), "$PORT", str(log)]
    server.deploy(name, command=command, **settings)
    return log


def test_a_program_answers_itself(server: Server, program: Path) -> None:
    deploy(server, "program", program)
    got = server.ask("PUT", "/function/program/a%2Fb/../c?x=%26", b"said", X_Mine="1")
    said = json.loads(got.body)
    assert (got.status, got.ran, got.headers["X-Mine"], got.headers["Location"]) == (
        201,
        "yes",
        "yes",
        "/elsewhere",
    )
    assert (said["path"], said["body"]) == ("/a%2Fb/../c?x=%26", "said")


def test_several_at_once_in_one_process(server: Server, program: Path) -> None:
    deploy(server, "several", program, most=1, concurrency=2)
    held = [Meeting(server, "several") for _ in range(2)]
    assert len({one.come() for one in held}) == 1
    for one in held:
        one.go("x")
        got = one.asked.got()
        assert json.loads(got.body)["text"] == "x"
        assert got.headers["X-Gpuferry-Start"] == "warm"  # the process was there
    shown = server.show("several")
    assert len(shown["replicas"]) == 1
    assert (shown["invocations"]["warm"], shown["invocations"]["cold"]) == (2, 0)


def test_an_invocation_without_an_answer_is_not_repeated(server: Server, program: Path) -> None:
    log = deploy(server, "hang-up", program)
    got = server.ask("GET", "/function/hang-up?do=hang-up")
    assert (got.status, got.ran, got.error) == (502, "unknown", "bad_answer")
    assert json.loads(got.body)["why"] == "the program gave no answer: it hung up"
    assert log.read_text().count("hang-up") == 1
    assert server.ask("GET", "/function/hang-up").status == 201


def test_a_program_that_crashes_is_replaced(server: Server, program: Path) -> None:
    deploy(server, "falling", program, most=1)
    got = server.ask("GET", "/function/falling?do=crash")
    assert (got.status, got.ran, got.error) == (502, "unknown", "crashed")
    assert "status 5" in json.loads(got.body)["why"]
    assert server.ask("GET", "/function/falling").status == 201


def test_a_program_that_crashed_is_known_to_have_however_late_its_supervisor_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It had hung up, as if it lived: nobody was told of the crash."""
    monkeypatch.setattr(tried, "ENDING_SECONDS", 0.0)

    async def crash() -> None:
        replica = tried.ProgramReplica(Deployment("f", command=("sleep",)), lambda *_: None)
        config = {"memory": 0, "command": ["sleep", "600"]}
        replica.process = process = Process(config, os.environ, "", "/", (), replica.hear)
        while not process.pid:
            await asyncio.sleep(0.001)
        supervisor = process._popen.pid
        assert not process.ending
        os.kill(supervisor, signal.SIGSTOP)
        os.kill(process.pid, signal.SIGABRT)
        while not gone(process.pid):
            await asyncio.sleep(0.001)
        looking = asyncio.ensure_future(replica._look())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not looking.done()
        os.kill(supervisor, signal.SIGCONT)
        await looking
        assert not replica.alive
        assert "SIGABRT" in process.status

    asyncio.run(crash())


# Answers one invocation, and listens no more as soon as that has come: as servers do that end after so many.
LAST = """
import http.server, os, sys, urllib.parse
asked = False

class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        global asked
        asked = True
        self.server.socket.close()
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
        with open(query["here"], "w") as here: here.write(str(os.getpid()))
        with open(query["go"]) as go: text = go.read().encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
while not asked: server.handle_request()
"""


def test_what_runs_in_a_program_that_listens_no_more_is_answered(server: Server) -> None:
    """The next one's connection was refused, and the program killed for it."""
    file = server.folder / "last.py"
    file.write_text(LAST)
    server.deploy("last", command=[PYTHON, str(file), "$PORT"], most=1, concurrency=2)
    first = Meeting(server, "last")
    pid = first.come()
    second = Meeting(server, "last")
    assert second.come() != pid
    for one in (first, second):
        one.go("as ever")
        assert one.asked.got().body == b"as ever"


def test_what_this_server_lacks_is_no_fault_of_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without descriptors for connections it killed one program after the other."""

    async def connect(*_: object, **__: object) -> None:
        there: Any = SimpleNamespace(host="127.0.0.1", port=1, ssl=True)
        raise aiohttp.ClientConnectorError(there, OSError(errno.EMFILE, "Too many open files"))

    async def ask() -> Failed:
        nothing: Any = None
        replica = ProgramReplica(Deployment("f", command=("x",)), lambda *_: None)
        connections = replica._connections = _Connections()
        async with aiohttp.ClientSession(connector=connections, middlewares=(_once,)) as client:
            replica._client = client
            with pytest.raises(Failed) as caught:
                await replica.invoke(1, Call("POST", "", "", (), b""), nothing)
        assert not replica.retiring
        return caught.value

    monkeypatch.setattr(_Connections, "connect", connect)
    failed = asyncio.run(ask())
    assert (failed.code, failed.ran) == (Code.REFUSED, Ran.NO)
    assert failed.why == "the program cannot be reached: Too many open files"


def test_a_process_with_one_that_takes_too_long_gets_no_more(server: Server, program: Path) -> None:
    deploy(server, "mixed", program, most=1, concurrency=2, timeout=0.2)
    got = server.ask("GET", "/function/mixed?do=loop")
    assert (got.status, got.ran, got.error) == (504, "unknown", "timeout")
    assert not [one for one in server.show("mixed")["replicas"] if one["state"] in ("idle", "busy")]
    deploy(server, "alone", program, most=1, timeout=0.2)
    pid = server.show("alone")["replicas"][0]["pid"]
    got = server.ask("GET", "/function/alone?do=loop")
    assert (got.status, got.ran, got.error) == (504, "unknown", "timeout")
    until(lambda: gone(pid), bool)  # its connection closes before it is


def abandoned(server: Server, name: str, log: Path) -> tuple[int, Path]:
    """The pid of a program that works on for a caller who has gone, of which it was told; and how it ends."""
    here, go = server.folder / f"{name}-here", server.folder / f"{name}-go"
    os.mkfifo(here)
    os.mkfifo(go)
    caller = leave(server, f"/function/{name}?do=told&here={here}&go={go}")
    pid = int(here.read_text())
    caller.close()
    until(log.read_text, lambda said: "told" in said)
    return pid, go


def test_a_program_keeps_its_place_until_it_has_ended_for_a_caller_who_has_gone(
    server: Server, program: Path
) -> None:
    """Otherwise the next one would run beside it, in a process that is to have one at a time."""
    log = deploy(server, "kept", program, most=1)
    _, go = abandoned(server, "kept", log)
    assert server.show("kept")["running"] == 1
    after = Asked(lambda: server.ask("GET", "/function/kept"))
    server.becomes("kept", lambda shown: shown["waiting"] == 1)
    go.write_text("ended")
    assert after.got().status == 201


def test_a_program_that_works_on_for_nobody_is_killed_where_that_is_wanted(
    server: Server, program: Path
) -> None:
    log = deploy(server, "zealous", program, most=1, cancel="kill", grace=0.05)
    pid, _ = abandoned(server, "zealous", log)
    server.becomes("zealous", lambda shown: shown["running"] == 0)
    until(lambda: gone(pid), bool)  # it was killed, and ends when the kernel gets to it
    text = server.ask("GET", "/metrics", Authorization=f"Bearer {server.token}").body.decode()
    assert 'invocations_total{function="zealous",result="cancelled"} 1.0' in text


def test_where_others_share_its_process_they_end_first(server: Server, program: Path) -> None:
    log = deploy(server, "zealous-pair", program, most=1, concurrency=2, cancel="kill", grace=0.05)
    other = Meeting(server, "zealous-pair")
    other.come()
    pid, _ = abandoned(server, "zealous-pair", log)
    server.becomes("zealous-pair", lambda shown: shown["running"] == 1)
    other.go("as ever")
    assert json.loads(other.asked.got().body)["text"] == "as ever"
    until(lambda: gone(pid), bool)


def test_an_answer_of_a_program_is_bounded(server: Server, program: Path) -> None:
    deploy(server, "bounded", program, body=100)
    got = server.ask("POST", "/function/bounded", b"x" * 100)
    assert (got.status, got.ran, got.error) == (502, "yes", "bad_answer")


def test_who_goes_before_there_is_a_connection_asks_nothing() -> None:
    async def ask() -> None:
        connections = _Connections()
        connections.expect(7)
        connections.end(7)
        with socket.create_server(("127.0.0.1", 0)) as listening:
            async with aiohttp.ClientSession(connector=connections) as client:
                url = f"http://127.0.0.1:{listening.getsockname()[1]}"
                with pytest.raises(aiohttp.ClientConnectionError, match="has gone"):
                    await client.get(url, headers={NUMBER: "7"})
            with listening.accept()[0] as accepted:
                assert accepted.recv(100) == b""

    asyncio.run(ask())


def test_who_goes_after_the_program_has_hung_up_harms_nobody() -> None:
    async def ask() -> None:
        connections = _Connections()
        connections.expect(7)
        with socket.create_server(("127.0.0.1", 0)) as listening:
            url = f"http://127.0.0.1:{listening.getsockname()[1]}"
            async with aiohttp.ClientSession(connector=connections) as client:
                asked = asyncio.ensure_future(client.get(url, headers={NUMBER: "7"}))
                accepted, _ = await asyncio.to_thread(listening.accept)
                with accepted:
                    await asyncio.to_thread(accepted.recv, 1000)
                    accepted.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                await (await asked).read()
                connections.end(7)

    uvloop.run(ask())


def test_two_that_start_at_once_have_ports_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port is free until its program listens there, and may be named again until then: invocations would go
    to another function's program.
    """
    named = iter([5000, 5000, 5001, 5000])
    monkeypatch.setattr(tried, "_free_port", lambda: next(named))
    ports = tried.Ports()
    assert [ports.take(), ports.take()] == [5000, 5001]
    ports.give_back(5000)
    assert ports.take() == 5000


SAYS = """
import socket, sys
listening = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    caller, _ = listening.accept()
    with caller:
        if caller.recv(65536): caller.sendall(sys.argv[2].encode())
"""
STATES = """
import socket, sys
listening = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    caller, _ = listening.accept()
    with caller:
        said = caller.recv(65536).partition(b"?")[2].partition(b" ")[0]
        if said:
            caller.sendall(b"HTTP/1.1 %s x\\r\\nContent-Length: 0\\r\\nConnection: close\\r\\n\\r\\n" % said)
"""


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("HTTP/1.1 20", "it hung up"),
        ("hello\r\n\r\n", "Bad status line: Expected HTTP/, RTSP/ or ICE/: b'hello' ^"),
    ],
)
def test_what_is_wrong_with_an_answer_is_said_in_a_line(server: Server, said: str, why: str) -> None:
    file = server.folder / "says.py"
    file.write_text(SAYS)
    server.deploy("says", command=[PYTHON, str(file), "$PORT", said])
    assert json.loads(server.ask("GET", "/function/says").body)["why"] == f"the program gave no answer: {why}"


def test_a_status_that_is_none_is_not_passed_on(server: Server) -> None:
    """101 least of all: a balancer would make a tunnel of the connection that its other callers share."""
    file = server.folder / "states.py"
    file.write_text(STATES)
    server.deploy("states", command=[PYTHON, str(file), "$PORT"])
    for status in ("101", "000", "600", "999"):
        got = server.ask("GET", f"/function/states?{status}")
        assert (got.status, got.error) == (502, "bad_answer")


ECHO = """
import http.server, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("X-Name", self.headers["X-Name"])
        self.end_headers()
    def do_HEAD(self):
        self.send_response(200)
        self.send_header("Content-Length", "12345")
        self.end_headers()

http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@pytest.mark.parametrize("name", [b"caf\xe9", "café".encode(), b"\x80\xff plain"])
def test_headers_are_bytes(server: Server, name: bytes) -> None:
    """Names of files came without their Latin-1 letters, and an answer with one was refused."""
    file = server.folder / "echo.py"
    file.write_text(ECHO)
    server.deploy("echo", command=[PYTHON, str(file), "$PORT"])
    got = server.ask("GET", "/function/echo", X_Name=name.decode("latin-1"))
    assert (got.status, got.headers["X-Name"].encode("latin-1")) == (200, name), got.body


def test_who_asks_for_the_head_alone_learns_how_long_the_body_is(server: Server) -> None:
    file = server.folder / "echo.py"
    file.write_text(ECHO)
    server.deploy("echo", command=[PYTHON, str(file), "$PORT"])
    got = server.ask("HEAD", "/function/echo")
    assert (got.status, got.headers["Content-Length"], got.body) == (200, "12345", b"")
