"""Queues, bodies, callers that leave, and names and paths of no sense."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import socket
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from gpuferry.monitor.functions.bodies import Bodies
from gpuferry.monitor.functions.logbook import LETTERS_MOST, LINES_MOST, Line, LogBook
from gpuferry.monitor.functions.replica import StartFailed
from gpuferry.monitor.functions.system import System

from .serving import DEADLINE, Asked, Meeting, Server, leave, serving, until


def test_a_full_queue_says_when_to_come_again(server: Server) -> None:
    server.deploy("queue", most=1, queue=1)
    first = Meeting(server, "queue")
    first.come()
    second = Asked(lambda: server.invoke("queue", body="second"))
    server.becomes("queue", lambda function: function["waiting"] == 1)
    got = server.invoke("queue")
    assert (got.status, got.ran, got.error) == (429, "no", "queue_full")
    assert int(got.headers["Retry-After"]) >= 1
    first.go("first")
    assert first.asked.got().body == b"first"
    assert second.got().body == b"second"


def test_who_waits_too_long_has_not_run(server: Server) -> None:
    server.deploy("patience", most=1, wait=1.0)  # as long as the first may take to begin
    first = Meeting(server, "patience")
    first.come()
    got = server.invoke("patience")
    assert (got.status, got.ran, got.error) == (504, "no", "waited")
    assert server.show("patience")["waiting"] == 0
    first.go("first")
    assert first.asked.got().body == b"first"


def test_who_leaves_the_queue_is_not_run(server: Server) -> None:
    server.deploy("leaving", most=1)
    first = Meeting(server, "leaving")
    first.come()
    caller = leave(server, "/function/leaving?do=say")
    server.becomes("leaving", lambda function: function["waiting"] == 1)
    caller.close()
    server.becomes("leaving", lambda function: function["waiting"] == 0)
    first.go("first")
    assert first.asked.got().body == b"first"
    assert server.invoke("leaving").status == 200
    assert server.show("leaving")["invocations"]["ok"] == 2


@pytest.mark.some(1)
@pytest.mark.parametrize("kind", ["sync", "async", "half"])
def test_a_handler_is_told_that_its_caller_has_gone(server: Server, kind: str) -> None:
    """Also one that has only ended its sending side (half): TCP says the same of both."""
    source = (
        "import asyncio\n"
        "async def handle(request):\n"
        "    with open(request.query['here'], 'w') as here: here.write('1')\n"
        "    try: await asyncio.sleep(600)\n"
        "    except asyncio.CancelledError:\n"
        "        with open(request.query['go'], 'w') as go: go.write('told')\n"
        "        raise\n"
    )
    server.deploy("told", *([source] if kind == "async" else []), most=1)
    here, go = server.folder / f"here-{kind}", server.folder / f"go-{kind}"
    os.mkfifo(here)
    os.mkfifo(go)
    caller = leave(server, f"/function/told?do=told&here={here}&go={go}")
    assert here.read_text() == "1"
    if kind == "half":
        caller.shutdown(socket.SHUT_WR)
        assert caller.recv(1) == b""  # and is not answered
    caller.close()
    assert go.read_text() == "told"
    server.becomes("told", lambda function: function["running"] == 0)
    assert len(server.show("told")["replicas"]) == 1  # it goes on


def test_a_handler_that_does_not_stop_is_killed_where_that_is_wanted(server: Server) -> None:
    server.deploy("stubborn", most=1, cancel="kill", grace=0.05)
    here, go = server.folder / "here-stubborn", server.folder / "go-stubborn"
    os.mkfifo(here)
    os.mkfifo(go)
    caller = leave(server, f"/function/stubborn?do=meet&here={here}&go={go}")
    here.read_text()
    caller.close()
    server.becomes("stubborn", lambda function: function["running"] == 0)
    assert server.invoke("stubborn", body="again").body == b"again"


def chunks(size: int) -> list[bytes]:
    return [b"x" * 1000] * (size // 1000)


def test_bodies_are_bounded_whatever_is_said_of_them(server: Server) -> None:
    server.deploy("small", body=10_000)
    assert server.invoke("small", body=b"x" * 10_000).status == 200
    got = server.invoke("small", body=b"x" * 10_001)
    assert (got.status, got.ran) == (413, "no")
    connection = server.connection()
    connection.request("POST", "/function/small", iter(chunks(11_000)), encode_chunked=True)
    answer = connection.getresponse()
    assert answer.status == 413
    connection.close()
    connection = server.connection()
    connection.request("POST", "/function/small", iter(chunks(9_000)), encode_chunked=True)
    assert len(connection.getresponse().read()) == 9_000
    connection.close()


def test_halves_of_bodies_keep_nobody_out() -> None:
    """Where all connections are such, the oldest goes: others are answered, who were heard whole."""
    places = 8
    with serving("--driver", "none", "--connections", str(places)) as server, contextlib.ExitStack() as stack:
        server.deploy("busy", most=1)
        held = Meeting(server, "busy")
        held.come()
        host, _, port = server.address.rpartition(":")
        head = b"POST /function/busy HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n"
        for _ in range(places - 1):
            half = stack.enter_context(socket.create_connection((host, int(port)), DEADLINE))
            half.sendall(head + b"Expect: 100-continue\r\n\r\n")
            assert half.recv(100).split()[1] == b"100"
            half.sendall(b"half")
        for _ in range(places):
            assert server.ask("GET", "/healthz").status == 200
        held.go("heard")
        assert held.asked.got().body == b"heard"


def test_a_header_without_end_is_refused(server: Server) -> None:
    host, _, port = server.address.rpartition(":")
    with socket.create_connection((host, int(port))) as caller:
        caller.settimeout(DEADLINE)
        caller.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nA: " + b"x" * 20_000)
        assert caller.recv(1000).split()[1] == b"400"
    assert server.ask("GET", "/healthz").status == 200
    assert "xxxx" not in (server.folder / "server.log").read_text()  # callers cannot fill the log


@pytest.mark.parametrize(
    "path",
    [
        "/function/",
        "/function/..",
        "/function/../system/functions",
        "/function/%2e%2e/system/functions",
        "/function/NAME",
        "/function/a%00b",
        "/function/" + "a" * 64,
        "/function/-a",
        "/function/%C3%BC",
    ],
)
def test_names_of_no_sense_are_nobodys(server: Server, path: str) -> None:
    assert server.ask("POST", path, b"x").status in {404, 401, 400}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ([], "an object is wanted"),
        ({}, "either a Python file or a program"),
        ({"source": "x", "command": ["y"]}, "either a Python file or a program"),
        ({"source": "x", "secret": 1}, "unknown: secret"),
        ({"source": 1}, "source: text is wanted"),
        ({"source": "x", "most": 0}, "replicas 0..0: at least 1 and at most 64"),
        ({"source": "x", "timeout": 10**400}, "is not from 0.001"),
        ({"source": "x", "most": 1.5}, "most: a whole number"),
        ({"source": "x", "timeout": True}, "timeout: a number"),
        ({"source": "x", "least": 3, "most": 2}, "3..2"),
        ({"source": "x", "concurrency": 2}, "one at a time"),
        ({"source": "x", "file": "../../evil.py"}, "file: a file's name"),
        ({"source": "x", "folder": "relative"}, "folder: an absolute path"),
        ({"source": "x", "environment": {"A=B": "c"}}, "environment"),
        ({"source": "x", "environment": {"A": "c\0"}}, "environment"),
        ({"command": ["a\0"]}, "command"),
        ({"command": [""]}, "no name"),
        ({"source": "x", "cancel": "maybe"}, "cancel"),
        ({"source": "x", "file": "é" * 126}, "file: a file's name"),
        ({"source": "\ud800"}, r"'\ud800' is no text"),
        ({"source": "x", "environment": {"A": "\ud800"}}, r"'\ud800' is no text"),
        ({"command": ["x", "\ud800"]}, r"'\ud800' is no text"),
    ],
)
def test_deployments_of_no_sense_are_refused(server: Server, said: object, why: str) -> None:
    got = server.system("PUT", "functions/nonsense", said)
    assert got.status == 400
    assert why in got.body.decode()
    assert server.system("GET", "functions/nonsense").status == 404


# While it starts, in memory that RLIMIT_DATA does not limit.
GROWS = """
import mmap, time
held = mmap.mmap(-1, 200 << 20)
for _ in range(200): held.write(bytes(1 << 20))
time.sleep(3600)
"""


@pytest.mark.system
def test_a_function_that_cannot_start_is_not_deployed(server: Server) -> None:
    for settings, why in (
        ({"source": "1 / 0"}, "ZeroDivisionError"),
        ({"source": "x = 1"}, "no function `handle`"),
        ({"source": "import os\nos._exit(4)"}, "status 4"),
        ({"source": GROWS, "memory": 96 << 20, "start": 3600}, "MiB, and may have 96MiB of memory"),
        ({"source": "while True: pass", "start": 0.1}, "not ready within 0.1 s"),
        ({"source": "def handle(r): pass", "memory": 1024}, "may have 1KiB of memory (--memory)"),
        ({"command": ["sleep", "60"], "start": 0.1}, "did not listen on $PORT within 0.1 s"),
        ({"source": "def handle(): pass"}, "handle takes one argument, the request"),
        ({"source": "def handle(a, b): pass"}, "handle takes one argument, the request"),
        ({"command": ["/nowhere/at-all"]}, "ended before it listened"),
        ({"source": "def handle(r): pass", "python": "/nowhere/python"}, "/nowhere/python"),
        ({"source": "def handle(r): pass", "folder": "/nowhere"}, "/nowhere"),
    ):
        got = server.system("PUT", "functions/broken", settings)
        assert got.status == 422, (settings, got)
        assert why in got.body.decode()
    assert server.system("GET", "functions/broken").status == 404


def test_a_broken_revision_leaves_the_one_before(server: Server) -> None:
    server.deploy("steady")
    assert server.system("PUT", "functions/steady", {"source": "1 / 0"}).status == 422
    assert server.invoke("steady", body="as ever").body == b"as ever"
    assert server.show("steady")["revision"] == 1


def test_who_leaves_what_fails_leaves_no_complaint(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deployment goes on without its caller, and a log has nobody to follow it: both were tracebacks."""

    async def deploy(_: object) -> None:
        await asyncio.sleep(0)
        raise StartFailed("no")

    async def hung_up(*_: object) -> None:
        raise ConnectionResetError("Cannot write to closing transport")

    async def read(*_: object) -> bytes:
        return b'{"source": "x", "folder": "/"}'

    async def main() -> list[str]:
        complaints: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, said: complaints.append(said["message"]))
        there: Any = SimpleNamespace(deploy=deploy, get=lambda _: SimpleNamespace(book=LogBook()))
        nothing: Any = None
        system = System(nothing, there, nothing, Bodies(1 << 20), nothing, nothing)
        request: Any = SimpleNamespace(match_info={"name": "f"}, query={"follow": "1"}, transport=None)
        leaving = asyncio.ensure_future(system._deploy(request))
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.wait({leaving})
        assert leaving.cancelled()
        await asyncio.sleep(0.01)
        gc.collect()
        await system._logs(request)
        return complaints

    monkeypatch.setattr("gpuferry.monitor.functions.bodies.Held.read", read)
    monkeypatch.setattr(web.StreamResponse, "prepare", hung_up)
    assert asyncio.run(main()) == []


def test_output_is_kept_in_bounds(server: Server) -> None:
    source = "def handle(request):\n    print('x' * 100_000 + '\\x1b[2J')\n    print('end')\n"
    server.deploy("loud", source)
    server.invoke("loud")
    lines = until(lambda: server.logs("loud"), lambda lines: lines and lines[-1]["text"] == "end")
    assert max(len(line["text"]) for line in lines) <= 8 << 10
    assert not any("\x1b" in line["text"] for line in lines)


def test_the_last_lines_are_kept_in_bounded_memory() -> None:
    """A caller may have a function print what it sends: lines of 8 KiB, in each function."""

    async def kept() -> list[Line]:
        book = LogBook()
        for number in range(LINES_MOST):
            book.write(1, "out", f"{number} " + "x" * 8000)
        return book.tail()

    lines = asyncio.run(kept())
    assert LETTERS_MOST - 8010 < sum(len(line.text) for line in lines) <= LETTERS_MOST
    assert [line.number for line in lines] == list(range(LINES_MOST - len(lines) + 1, LINES_MOST + 1))


def test_logs_are_followed_until_the_function_is_gone(server: Server) -> None:
    server.deploy("followed")
    connection = server.connection()
    token = {"Authorization": f"Bearer {server.token}"}
    connection.request("GET", "/system/functions/followed/logs?follow=1&tail=0", headers=token)
    answer = connection.getresponse()
    server.invoke("followed", "say", "first")
    assert json.loads(answer.readline())["text"] == "first"
    assert server.system("DELETE", "functions/followed").status == 204
    assert answer.read() == b""
    connection.close()


def test_what_comes_while_a_follower_writes_is_not_kept_from_it() -> None:
    """Nor what was written last, when the function is removed meanwhile."""

    async def followed() -> list[str]:
        book = LogBook()
        seen: list[str] = []
        book.write(1, "out", "there")
        async for lines in book.follow(10):
            seen += [line.text for line in lines]
            if seen == ["there"]:
                book.write(1, "out", "meanwhile")
            elif seen[-1] == "meanwhile":
                book.write(1, "out", "at last")
                book.close()
        return seen

    assert asyncio.run(asyncio.wait_for(followed(), 60)) == ["there", "meanwhile", "at last"]


def test_an_answer_counts_until_its_caller_has_read_it() -> None:
    """It is in memory as long: whoever sends a body meanwhile may find no room for it."""
    with serving("--driver", "none", "--bodies", "8MiB") as server:
        server.deploy("large", most=2)
        caller = server.connection()
        caller.request("POST", f"/function/large?do=large&size={7 << 20}")
        server.becomes("large", lambda shown: shown["invocations"]["ok"] == 1)
        got = server.invoke("large", body=bytes(2 << 20))
        assert (got.status, got.error, got.ran) == (503, "refused", "no")
        assert len(caller.getresponse().read()) == 7 << 20
        caller.close()
        until(lambda: server.invoke("large", body=bytes(2 << 20)).status, (200).__eq__)
