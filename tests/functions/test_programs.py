"""Functions that are programs which speak HTTP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .serving import PYTHON, Meeting, Server, gone

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
        assert json.loads(one.asked.got().body)["text"] == "x"
    assert len(server.show("several")["replicas"]) == 1


def test_an_invocation_without_an_answer_is_not_repeated(server: Server, program: Path) -> None:
    log = deploy(server, "hang-up", program)
    got = server.ask("GET", "/function/hang-up?do=hang-up")
    assert (got.status, got.ran, got.error) == (502, "unknown", "bad_answer")
    assert log.read_text().count("hang-up") == 1
    assert server.ask("GET", "/function/hang-up").status == 201


def test_a_program_that_crashes_is_replaced(server: Server, program: Path) -> None:
    deploy(server, "falling", program, most=1)
    got = server.ask("GET", "/function/falling?do=crash")
    assert (got.status, got.ran, got.error) == (502, "unknown", "crashed")
    assert "status 5" in json.loads(got.body)["why"]
    assert server.ask("GET", "/function/falling").status == 201


def test_a_process_with_one_that_takes_too_long_gets_no_more(server: Server, program: Path) -> None:
    deploy(server, "mixed", program, most=1, concurrency=2, timeout=0.2)
    got = server.ask("GET", "/function/mixed?do=loop")
    assert (got.status, got.ran, got.error) == (504, "unknown", "timeout")
    assert not [one for one in server.show("mixed")["replicas"] if one["state"] in ("idle", "busy")]
    deploy(server, "alone", program, most=1, timeout=0.2)
    pid = server.show("alone")["replicas"][0]["pid"]
    got = server.ask("GET", "/function/alone?do=loop")
    assert (got.status, got.ran, got.error) == (504, "unknown", "timeout")
    assert gone(pid)


def test_an_answer_of_a_program_is_bounded(server: Server, program: Path) -> None:
    deploy(server, "bounded", program, body=100)
    got = server.ask("POST", "/function/bounded", b"x" * 100)
    assert (got.status, got.ran, got.error) == (502, "yes", "bad_answer")


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


def test_a_status_that_is_none_is_not_passed_on(server: Server) -> None:
    """101 least of all: a balancer would make a tunnel of the connection that its other callers share."""
    file = server.folder / "states.py"
    file.write_text(STATES)
    server.deploy("states", command=[PYTHON, str(file), "$PORT"])
    for status in ("101", "000", "600", "999"):
        got = server.ask("GET", f"/function/states?{status}")
        assert (got.status, got.error) == (502, "bad_answer")
