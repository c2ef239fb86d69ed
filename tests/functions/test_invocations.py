"""What an invocation gets: the handler's answer, or an error that says whether it ran."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from gpuferry.monitor.functions import process

from .serving import DEEDS, Meeting, Server, gone, until

ASYNC = "async def handle(request):\n    return request.text().upper()\n"
BODY = "def handle(body):\n    return body[::-1]\n"


@pytest.fixture(scope="module", autouse=True)
def deeds(server: Server) -> None:
    server.deploy("deeds", most=2)


@pytest.mark.parametrize(
    ("said", "status", "kind", "body"),
    [
        ("b'\\0x'", 200, "application/octet-stream", b"\0x"),
        ("'ü'", 200, "text/plain; charset=utf-8", "ü".encode()),
        ("{'a': 1}", 200, "application/json", b'{"a": 1}'),
        ("None", 204, None, b""),
        ("('no', 404)", 404, "text/plain; charset=utf-8", b"no"),
        ("(b'<p>', 200, {'Content-Type': 'text/html'})", 200, "text/html", b"<p>"),
    ],
)
def test_what_a_handler_returns(
    server: Server, said: str, status: int, kind: str | None, body: bytes
) -> None:
    got = server.invoke("deeds", "evaluate", said.encode())
    assert (got.status, got.body, got.ran) == (status, body, "yes")
    assert got.headers.get("Content-Type") == kind or kind is None


@pytest.mark.parametrize(
    "said",
    [
        "object()",
        "{'a': float('nan')}",
        "('a', 99)",
        "('a',)",
        "('a', True)",
        "('a', 200, {'A\\n': 'b'})",
        "('a', 200, {'a': 'b\\nc: d'})",
    ],
)
def test_what_is_no_answer_is_an_error_that_ran(server: Server, said: str) -> None:
    got = server.invoke("deeds", "evaluate", said)
    assert (got.status, got.ran) in {(500, "yes"), (502, "yes")}


def test_what_a_handler_sees(server: Server) -> None:
    got = server.ask("PUT", "/function/deeds/a%20b/..//c?do=facts&x=%26&x=2&empty=", "ü".encode(), X_Mine="1")
    facts = json.loads(got.body)
    assert facts["method"] == "PUT"
    assert facts["path"] == "/a%20b/..//c"
    assert facts["query"] == {"do": "facts", "x": "2", "empty": ""}
    assert facts["headers"]["x-mine"] == "1"
    assert facts["body"] == "ü"


def test_the_servers_token_is_not_the_functions(server: Server) -> None:
    got = server.ask("POST", "/function/deeds?do=facts", "", Authorization=f"Bearer {server.token}")
    assert "authorization" not in json.loads(got.body)["headers"]
    got = server.ask("POST", "/function/deeds?do=facts", "", Authorization="Bearer mine")
    assert json.loads(got.body)["headers"]["authorization"] == "Bearer mine"


def test_handlers_of_other_kinds(server: Server) -> None:
    server.deploy("async", ASYNC)
    assert server.invoke("async", body="abc").body == b"ABC"
    server.deploy("body", BODY)
    assert server.invoke("body", body="abc").body == b"cba"


def test_large_bodies_go_both_ways(server: Server) -> None:
    body = os.urandom(5 << 20)
    assert server.invoke("deeds", body=body).body == body


@pytest.mark.parametrize("do", ["raise", "exit"])
def test_an_exception_ends_the_invocation_and_not_its_replica(server: Server, do: str) -> None:
    server.deploy("raising", most=1)
    pid = server.invoke("raising", "pid").body
    got = server.invoke("raising", do)
    assert (got.status, got.ran, got.error) == (500, "yes", "raised")
    assert "handler.py" in json.loads(got.body)["trace"]
    assert server.invoke("raising", "pid").body == pid


@pytest.mark.some(1)
@pytest.mark.parametrize(("do", "how"), [("crash", "status 7"), ("fault", "SIGSEGV"), ("odd", "signal 40")])
def test_a_crash_hurts_its_own_invocation_only(server: Server, do: str, how: str) -> None:
    server.deploy("crashing", most=2)
    other = Meeting(server, "crashing")
    other.come()
    got = server.invoke("crashing", do)
    assert (got.status, got.ran, got.error) == (502, "yes", "crashed")
    assert how in json.loads(got.body)["why"]
    assert server.invoke("crashing", body="again").body == b"again"
    other.go("as ever")
    assert other.asked.got().body == b"as ever"


def test_a_killed_idle_replica_is_replaced(server: Server) -> None:
    server.deploy("killed", most=1)
    pid = int(server.invoke("killed", "pid").body)
    os.kill(pid, signal.SIGKILL)
    assert int(server.invoke("killed", "pid").body) != pid
    assert any("SIGKILL" in line["text"] for line in server.logs("killed"))


def test_an_endless_handler_is_ended_with_its_process(server: Server) -> None:
    """One that had not begun by then has not run."""
    server.deploy("endless", most=1, timeout=1.0)
    pid = server.show("endless")["replicas"][0]["pid"]
    began = server.folder / "endless-began"
    got = server.invoke("endless", "evaluate", f"open({str(began)!r}, 'w') and exec('while True: pass')")
    assert (got.status, got.error) == (504, "timeout")
    assert gone(pid)
    assert got.ran == "yes" or not began.exists()
    server.deploy("endless", most=1)  # with time enough on a slow machine
    assert server.invoke("endless", body="again").body == b"again"


def test_a_leak_ends_at_the_limit(server: Server) -> None:
    server.deploy("leaking", most=1, memory=96 << 20)
    pid = int(server.invoke("leaking", "pid").body)
    got = server.invoke("leaking", "leak")
    assert (got.status, got.ran) in {(500, "yes"), (502, "yes")}  # MemoryError, or it was seen first
    assert int(server.invoke("leaking", "pid").body) != pid


def test_what_a_child_takes_counts_too(server: Server) -> None:
    server.deploy("parent", most=1, memory=96 << 20)
    child = "__import__('subprocess').run([__import__('sys').executable, '-c', %r])"
    # Two children, each below the limit of one process.
    each = "import time\nb = bytearray(60 << 20)\nb[::4096] = b'x' * len(b[::4096])\ntime.sleep(600)"
    two = (
        f"import subprocess, sys, time\n[subprocess.Popen([sys.executable, '-c', {each!r}]) for _ in 'ab']\n"
        "time.sleep(600)"
    )
    got = server.invoke("parent", "evaluate", child % two)
    assert (got.status, got.error, got.ran) == (502, "memory", "yes")


def test_shared_memory_counts_too(server: Server) -> None:
    """Once, also where children share it: 60 MiB that three have are no 180."""
    source = DEEDS + (
        "\nimport mmap\n"
        "def handle(request):\n"
        "    size = int(request.query['size'])\n"
        "    leaked.append(mmap.mmap(-1, size))\n"
        "    for at in range(0, size, 1 << 20): leaked[-1][at:at + (1 << 20)] = bytes(1 << 20)\n"
        "    for _ in 'ab':\n"
        "        if os.fork() == 0:\n"
        "            sum(leaked[-1][::4096]); time.sleep(600)\n"
        "    time.sleep(float(request.query['seconds']))\n"
        "    return str(os.getpid())\n"
    )
    server.deploy("sharing", source, most=1, memory=96 << 20)
    assert server.invoke("sharing", size=60 << 20, seconds=0.5).status == 200
    got = server.invoke("sharing", size=200 << 20, seconds=600)
    assert (got.status, got.error, got.ran) == (502, "memory", "yes")


def test_a_replica_has_a_limit_of_memory_whatever_was_said(server: Server) -> None:
    server.deploy("unsaid", most=1)
    shown = server.show("unsaid")
    assert shown["memory"] == 0
    assert 0 < shown["memory_limit"] <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


@pytest.mark.system
def test_a_replica_with_too_many_processes_is_ended(server: Server) -> None:
    """With all of them; the last one begun does not outlive the first."""
    server.deploy("fertile", most=1)
    said = "[os.fork() or os.kill(os.getpid(), signal.SIGSTOP) for _ in range(520)] and time.sleep(600)"
    got = server.invoke("fertile", "evaluate", said)
    assert (got.status, got.error, got.ran) == (502, "processes", "yes")
    assert server.invoke("fertile", body="again").body == b"again"


def test_an_answer_that_is_too_large_is_none(server: Server) -> None:
    server.deploy("large", body=1000)
    assert server.invoke("large", "large", size=1000).status == 200
    got = server.invoke("large", "large", size=1001)
    assert (got.status, got.ran, got.error) == (502, "yes", "bad_answer")
    assert server.invoke("large", "large", size=10).status == 200


def test_a_replica_that_breaks_the_protocol_is_replaced(server: Server) -> None:
    source = DEEDS + (
        "\ndef handle(request):\n"
        "    import json, os, sys\n"
        "    if request.body == b'bad':\n"
        "        os.write(json.loads(sys.argv[1])['socket'], b'\\xff' * 64)\n"
        "    return 'fine'\n"
    )
    server.deploy("liar", source, most=1)
    got = server.invoke("liar", body="bad")
    assert (got.status, got.ran, got.error) == (502, "yes", "bad_answer")
    assert server.invoke("liar").body == b"fine"


LIAR = (
    DEEDS
    + """
import struct
def handle(request):
    if request.body:
        socket = j.loads(sys.argv[1])["socket"]
        said = request.text().replace("ID", str(request.id)).encode()
        os.write(socket, struct.pack("!IQ", len(said), 0) + said)
        time.sleep(600)
    return "fine"
"""
)


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "said",
    [
        "[" * 100_000,
        '{"say": "done", "id": ID, "status": Infinity, "headers": []}',
        '{"say": "done", "id": ID, "status": 200, "headers": [["a"]]}',
        '{"say": "begun", "id": ID}',  # once more
        '{"say": "raised", "id": ID, "gpu": "\\u001b[2J"}',
    ],
)
def test_what_a_replica_makes_up_fails_its_own_invocation(server: Server, said: str) -> None:
    """What it said is no answer: nothing of it is believed, and no defect of the server's is told."""
    server.deploy("inventor", LIAR, most=1)
    got = server.invoke("inventor", body=said)
    assert (got.status, got.ran, got.error) == (502, "yes", "bad_answer")
    assert server.invoke("inventor").body == b"fine"
    assert all("\x1b" not in line["text"] for line in server.logs("inventor"))


def test_why_a_replica_did_not_start_is_shown_as_text(server: Server) -> None:
    source = "raise ValueError('\x1b[2J' + chr(0xd800))\n"
    got = server.system("PUT", "functions/painter", {"source": source, "folder": "/"})
    assert got.status == 422
    assert b"\x1b" not in got.body
    assert b"ValueError" in got.body


PAINTER = """
def parts():
    yield "one"
    raise ValueError("\x1b[2J")

def handle(request):
    if request.query["do"] == "lie": return "fine", 200, {"X-Gpuferry-Error": "crashed", "X-Mine": "1"}
    if request.query["do"] == "parts": return parts()
    raise ValueError("\x1b[2J")
"""


def test_what_an_exception_says_is_shown_as_text(server: Server) -> None:
    """To the caller, and in the log where an answer had begun."""
    server.deploy("brush", PAINTER, most=1)
    got = server.invoke("brush", "raise")
    assert (got.status, got.error) == (500, "raised")
    assert "\x1b" not in json.loads(got.body)["why"] + json.loads(got.body)["trace"]
    with pytest.raises(http.client.IncompleteRead):
        server.invoke("brush", "parts")
    texts = until(
        lambda: [line["text"] for line in server.logs("brush")], lambda texts: "broke off" in str(texts)
    )
    assert all("\x1b" not in text for text in texts)


def test_a_handler_does_not_speak_for_the_server(server: Server) -> None:
    server.deploy("ventriloquist", PAINTER, most=1)
    got = server.invoke("ventriloquist", "lie")
    assert (got.body, got.headers.get("X-Mine"), got.headers.get("X-Gpuferry-Error")) == (b"fine", "1", None)


def test_children_of_a_dead_replica_end_with_it(server: Server) -> None:
    server.deploy("family", most=1)
    said = "__import__('subprocess').Popen(['sleep', '600']).pid"
    child = int(server.invoke("family", "evaluate", f"str({said})").body)
    assert not gone(child)
    assert server.invoke("family", "crash").status == 502
    until(lambda: gone(child), bool)


AWAY = """
import os, signal, subprocess, threading, time

def comet():
    # Never two looks with the same pid: it forks, and the parent ends.
    os.setsid()
    signal.alarm(60)
    while True:
        if os.fork(): os._exit(0)
        with open(COMET, "w") as file: file.write(str(os.getpid()))

def handle(request):
    pids = [subprocess.Popen(["sleep", "600"], start_new_session=True).pid]
    thread = threading.Thread(target=lambda: pids.append(subprocess.Popen(["setsid", "sleep", "600"]).pid))
    thread.start()
    thread.join()
    reads, writes = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(writes, str(os.getpid()).encode())
            os.execvp("sleep", ["sleep", "600"])
        os._exit(0)
    pids.append(int(os.read(reads, 20)))
    if os.fork() == 0: comet()
    while not os.path.exists(COMET): time.sleep(0.001)
    return pids
"""


@pytest.mark.parametrize("how", ["removed", "crashed", "killed"])
def test_what_has_left_its_session_or_parent_ends_too(server: Server, how: str) -> None:
    """A process of its own session, a child of a thread, a daemon, and one that is never the same."""
    comet = server.folder / f"comet-{how}"
    server.deploy("away", f"COMET = {str(comet)!r}\n" + AWAY, most=1)
    pids = json.loads(server.invoke("away").body)
    replica = server.show("away")["replicas"][0]["pid"]
    assert not any(map(gone, pids))
    if how == "removed":
        server.system("DELETE", "functions/away")
    else:
        os.kill(replica, signal.SIGKILL if how == "killed" else signal.SIGSEGV)
    until(lambda: all(map(gone, pids)), bool)
    until(lambda: comet_has_ended(comet), bool)


def comet_has_ended(file: Path) -> bool:
    """Whether nobody writes it any more."""
    before = file.stat().st_mtime_ns
    time.sleep(0.05)
    return file.stat().st_mtime_ns == before


LATE = """
import importlib.util, itertools, os, subprocess, sys, time

spec = importlib.util.spec_from_file_location("wrapper", sys.argv[1])
wrapper = importlib.util.module_from_spec(spec)
spec.loader.exec_module(wrapper)
wrapper.prctl(wrapper.PR_SET_CHILD_SUBREAPER, 1)
subprocess.Popen(["setsid", "sleep", "600"], stdout=subprocess.DEVNULL)
time.monotonic = itertools.count(0.0, wrapper.END_SECONDS).__next__  # it stands still between any two looks
wrapper.end_all({}, ())
for pid in wrapper.descendants(os.getpid()):
    os.waitpid(pid, 0)  # who is killed may take longer to be gone than looks last
print(wrapper.descendants(os.getpid()))
"""


def test_a_supervisor_that_stands_still_ends_all_the_same() -> None:
    """Once its time was over it left all that had come of the replica, for good."""
    command = [sys.executable, "-c", LATE, str(process.WRAPPER)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, timeout=100)
    assert done.stdout == "[]\n"


ODD = """
import os, sys

class Mute(Exception):
    def __str__(self): raise ValueError("no text")

async def parts():
    raise KeyError("k")
    yield

def handle(request):
    do = request.query["do"]
    if do == "cookies": return "x", 200, [("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")]
    if do == "mute": raise Mute
    if do == "close": os.closerange(0, 3); return "closed"
    if do == "none": sys.stdout = sys.stderr = None; return "none"
    if do == "headers": return "x", 200, {f"X-{number}": "x" * 8000 for number in range(200)}
    if do == "raise": raise KeyboardInterrupt
    if do == "parts": return parts()
    return str(os.getpid())
"""


def test_odd_handlers_keep_their_replica(server: Server) -> None:
    """Errors without a text, closed descriptors, headers that come twice."""
    server.deploy("odd", ODD, most=1)
    pid = server.invoke("odd", "pid").body
    with contextlib.closing(server.connection()) as connection:
        connection.request("POST", "/function/odd?do=cookies")
        assert connection.getresponse().headers.get_all("Set-Cookie") == ["a=1", "b=2"]
    for do, why in (("mute", "Mute, whose text cannot be made"), ("raise", "raised KeyboardInterrupt")):
        got = server.invoke("odd", do)
        assert (got.status, got.error) == (500, "raised")
        assert json.loads(got.body)["why"].endswith(why)
    trace = json.loads(server.invoke("odd", "parts").body)["trace"].splitlines()
    assert "handler.py" in trace[1]  # nothing of ours before
    got = server.invoke("odd", "headers")
    assert (got.error, json.loads(got.body)["why"]) == (
        "raised",
        "the handler raised ValueError: handle returned headers of 1600890 characters, and may 65536",
    )
    assert server.invoke("odd", "none").body == b"none"
    assert server.invoke("odd", "raise").error == "raised"
    assert server.invoke("odd", "close").body == b"closed"
    assert server.invoke("odd", "mute").error == "raised"
    assert server.invoke("odd", "pid").body == pid


def test_who_cannot_deploy_is_told_the_last_words(server: Server) -> None:
    """There is no function yet, and so no log."""
    said = {"command": ["/no/such/program"], "folder": "/"}
    got = server.system("PUT", "functions/silent", said)
    assert (got.status, b"cannot execute /no/such/program: No such file" in got.body) == (422, True)
    source = "import os, sys\nsys.stderr.write('my words\\n')\nsys.stderr.flush()\nos._exit(3)"
    said = {"source": source, "folder": "/"}
    got = server.system("PUT", "functions/silent", said)
    assert (got.status, b"status 3: my words" in got.body) == (422, True)
