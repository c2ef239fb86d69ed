"""`gpuferry functions …` as users type it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.running import server_environment
from tests.helpers.warm import CLI, Popen

from .serving import PYTHON, Server, serving

YIELDS = """
def handle(request):
    yield "one\\n"
    if request.body: raise ValueError("no two")
    yield "two\\n"
"""


def gpuferry(
    server: Server | None, *words: str, cwd: Path | None = None, **environment: str
) -> tuple[int, str, str]:
    here = {"GPUFERRY_RUNTIME_DIR": str(server.folder / "run") if server else "/nowhere"}
    pipe = subprocess.PIPE
    with Popen(
        [*CLI, "functions", *words],
        env={**server_environment(), **here, **environment},
        stdout=pipe,
        stderr=pipe,
        stdin=subprocess.DEVNULL,
        text=True,
        cwd=cwd,
    ) as process:
        stdout, stderr = process.communicate(timeout=120)
    return process.returncode, stdout, stderr


def test_a_function_from_its_file_to_its_end(server: Server, tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").write_text("WORD = 'from beside'\n")
    file = tmp_path / "detect.py"
    file.write_text("import neighbour\ndef handle(request):\n    print('seen')\n    return neighbour.WORD\n")
    status, said, wrong = gpuferry(server, "deploy", "typed", "detect.py", "--replicas", "0..1", cwd=tmp_path)
    assert (status, wrong) == (0, "")
    assert said == f"typed (revision 1): http://{server.address}/function/typed\n"
    assert gpuferry(server, "invoke", "typed")[:2] == (0, "from beside")
    listed = json.loads(gpuferry(server, "list", "--json")[1])
    assert listed["schema"] == "gpuferry.functions/1"
    assert "typed" in [function["name"] for function in listed["functions"]]
    assert "typed" in gpuferry(server, "list")[1]
    shown = json.loads(gpuferry(server, "show", "typed", "--json")[1])["function"]
    assert (shown["most"], shown["file"], shown["folder"]) == (1, "detect.py", str(tmp_path))
    assert "detect.py" in gpuferry(server, "show", "typed")[1]
    assert gpuferry(server, "logs", "typed")[1].split()[1:] == ["out", "seen"]
    answer = json.loads(gpuferry(server, "invoke", "typed", "--json", "-d", "x")[1])
    assert (answer["status"], answer["ran"], answer["body"]) == (200, "yes", "from beside")
    assert gpuferry(server, "remove", "typed")[0] == 2  # nobody is there to say yes
    assert gpuferry(server, "remove", "typed", "--yes")[0] == 0
    assert gpuferry(server, "show", "typed")[0] == 3


def test_what_is_wrong_is_said_with_its_status(server: Server, tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("import nothing_of_that_name\n")
    status, _, wrong = gpuferry(server, "deploy", "typed", str(broken))
    assert status == 1
    assert "No module named 'nothing_of_that_name'" in wrong
    assert gpuferry(server, "deploy", "typed", str(tmp_path / "none.py"))[0] == 3
    assert gpuferry(server, "deploy", "Typed", str(broken))[0] == 2
    assert gpuferry(server, "invoke", "typed")[0] == 3
    assert gpuferry(server, "list", GPUFERRY_FUNCTIONS_TOKEN="wrong")[0] == 6
    status, _, wrong = gpuferry(None, "list")
    assert status == 5
    assert "gpuferry functions serve" in wrong


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("words", "status", "why"),
    [
        (["deploy", "f", "empty.py"], 2, "empty.py: it is empty"),
        (["deploy", "f", "fine.py", "--python", "no-such-python"], 3, "no-such-python: no such program"),
        (["deploy", "f", "fine.py", "--python", "./fine.py"], 2, "`chmod +x ./fine.py`"),
        (["deploy", "f", "fine.py", "--python", "/tmp"], 2, "/tmp: it is a folder"),
        (["deploy", "f", "fine.py", "--", "ls"], 2, "fine.py: a Python file takes no arguments"),
        (["deploy", "f", "."], 2, ".: it is a folder"),
        (["deploy", "f", "fine.py", "--env", "=x"], 2, "--env '=x': NAME=VALUE is wanted"),
        (["deploy", "f", "fine.py", "--replicas", "0..0"], 2, "replicas 0..0: at least 1 and at most 64 may"),
        (["deploy", "f", "fine.py", "--replicas", "3..1"], 2, "replicas 3..1: the first is more than"),
        (["deploy", "f", "fine.py", "--start", "-10"], 2, "start: -10.0 is not from 0.001 to 3600"),
        (["deploy", "f", "fine.py", "--start", "nan"], 2, "start: nan is not from 0.001 to 3600"),
        (["deploy", "f", "fine.py", "--body", "2GiB"], 2, "body: 2147483648 is not from 0 to 1073741824"),
        (["serve", "--policy", "mqfg"], 2, "auto; did you mean mqfq?"),
        (["invoke", "echo", "-H", "A"], 2, "NAME:VALUE is wanted"),
        (["invoke", "echo", "-H", "A: b\nC: d"], 2, "NAME:VALUE is wanted"),
        (["invoke", "echo", "-H", "ü: b"], 2, "NAME:VALUE is wanted"),
        (["invoke", "echo", "-X", "GET /"], 2, "no method of HTTP"),
        (["invoke", "echo", "-X", "BREW"], 2, "Invalid method"),
    ],
)
def test_words_of_no_sense_are_said_to_be_that(
    server: Server, tmp_path: Path, words: list[str], status: int, why: str
) -> None:
    server.deploy("echo")
    (tmp_path / "empty.py").touch()
    (tmp_path / "fine.py").write_text(YIELDS)
    got, said, wrong = gpuferry(server, *words, cwd=tmp_path)
    assert (got, said) == (status, "")
    assert why in wrong


def test_the_interpreter_is_found_where_programs_are(server: Server, tmp_path: Path) -> None:
    (tmp_path / "fine.py").write_text("def handle(request):\n    return 'fine'\n")
    words = ("deploy", "found", "fine.py", "--python", Path(PYTHON).name)
    environment = {"PATH": f"{Path(PYTHON).parent}:{os.environ['PATH']}"}
    assert gpuferry(server, *words, cwd=tmp_path, **environment)[0] == 0
    assert server.show("found")["python"] == PYTHON


def test_who_reads_no_more_is_no_failure_of_the_server(server: Server) -> None:
    server.deploy("endless-words", "def handle(request):\n    while True: yield 'x' * 10000\n")
    pipe = subprocess.PIPE
    with Popen(
        [*CLI, "functions", "invoke", "endless-words"],
        env={**server_environment(), "GPUFERRY_RUNTIME_DIR": str(server.folder / "run")},
        stdout=pipe,
        stderr=pipe,
        stdin=subprocess.DEVNULL,
    ) as process:
        assert process.stdout
        assert process.stderr
        assert process.stdout.read(1) == b"x"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode not in (None, 5)  # unreachable


def test_a_server_that_dies_is_said_to_the_one_who_follows_its_logs() -> None:
    with serving("--driver", "none") as server:
        server.deploy("dying")
        environment = {**server_environment(), "GPUFERRY_RUNTIME_DIR": str(server.folder / "run")}
        pipe = subprocess.PIPE
        with Popen(
            [*CLI, "functions", "logs", "dying", "-f"],
            env=environment,
            stdout=pipe,
            stderr=pipe,
            stdin=subprocess.DEVNULL,
            text=True,
        ) as process:
            server.invoke("dying", "say", "a line")
            assert process.stdout
            assert process.stdout.readline().endswith("a line\n")
            server.process.kill()
            _, wrong = process.communicate(timeout=120)
        assert (process.returncode, "the function server has gone" in wrong) == (5, True)


def test_the_address_may_be_as_in_a_functions_url(server: Server) -> None:
    url = f"http://{server.address}/"
    assert gpuferry(server, "list", "--server", url, GPUFERRY_FUNCTIONS_TOKEN=server.token)[0] == 0


def test_a_header_may_be_any_text(server: Server) -> None:
    server.deploy("echo")
    said = gpuferry(server, "invoke", "echo", "-H", "X-Mine: ü€", "--json")[1]
    assert json.loads(said)["status"] == 200


def test_who_removes_says_how_long_it_waits() -> None:
    """What is being deployed of the function comes first, and may take longer than any fixed time."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        status, _, wrong = gpuferry(
            None, "remove", "any", "--yes", "--server", address, "--request-timeout", "0.05"
        )
    assert status == 5
    assert "may have happened; it had 0.05 s" in wrong


@pytest.mark.parametrize(
    "said",
    [b"\x3c\0\0\0\xff\xffGPUFERRY\n", b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>"],
    ids=["guests", "pages"],
)
def test_what_answers_there_is_something_else(said: bytes) -> None:
    """As the port of guests, whose first bytes are no reason, or a server of pages."""
    with socket.create_server(("127.0.0.1", 0)) as other:

        def greet() -> None:
            with other.accept()[0] as connection:
                connection.sendall(said)
                connection.recv(1000)

        threading.Thread(target=greet, daemon=True).start()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        status, _, wrong = gpuferry(None, "list", "--server", address)
    assert status == 5
    assert f"what answers at {address} is no function server" in wrong
    assert "GPUFERRY\n" not in wrong


def test_the_page_and_the_settings(server: Server) -> None:
    status, link, _ = gpuferry(server, "page")
    assert status == 0
    key = link.strip().partition("#")[2]
    assert server.ask("GET", "/system/status", Authorization=f"Bearer {key}").status == 200


def test_the_link_to_the_page_opens_it_or_is_none(server: Server) -> None:
    """Of an address that is a URL it had another scheme, and without a token a key for nothing."""
    url = f"http://{server.address}"
    named: Any = {"GPUFERRY_FUNCTIONS": f"{url}/", "GPUFERRY_FUNCTIONS_TOKEN": server.token}
    status, link, _ = gpuferry(None, "page", **named)
    assert (status, link.partition("#")[0]) == (0, f"{url}/")
    status, link, wrong = gpuferry(None, "page", GPUFERRY_FUNCTIONS=url)
    assert (status, link) == (6, "")
    assert "no token" in wrong


def test_an_answer_is_printed_as_it_comes_and_said_to_be_broken_where_it_is(server: Server) -> None:
    server.deploy("printed", YIELDS)
    assert gpuferry(server, "invoke", "printed") == (0, "one\ntwo\n", "")
    for form in ((), ("--json",)):
        status, said, wrong = gpuferry(server, "invoke", "printed", "-d", "x", *form)
        assert (status, said) == (1, "" if form else "one\n")
        assert "the answer broke off" in wrong
        assert "functions logs printed" in wrong
